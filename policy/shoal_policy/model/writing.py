"""Uniform errors for the libraries that write models."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from safetensors import SafetensorError


@contextlib.contextmanager
def failures_as_os_errors() -> Iterator[None]:
    """Within, any error of a failed write becomes OSError.

    torch raises RuntimeError, safetensors its own error, tokenizers a bare Exception.
    """
    try:
        yield
    except Exception as error:
        if not (type(error) is Exception or isinstance(error, RuntimeError | SafetensorError)):
            raise
        full = "No space left" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error
