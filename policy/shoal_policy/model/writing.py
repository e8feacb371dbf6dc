"""Writing models with libraries that each fail in a way of their own."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from safetensors import SafetensorError


@contextlib.contextmanager
def failures_as_os_errors() -> Iterator[None]:
    """Around what writes a model's folder: whatever a library raises for a failed write is OSError.

    torch reports one as RuntimeError, safetensors as its own error, tokenizers as a bare Exception.
    """
    try:
        yield
    except Exception as error:
        if not (type(error) is Exception or isinstance(error, RuntimeError | SafetensorError)):
            raise
        full = "No space left" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error
