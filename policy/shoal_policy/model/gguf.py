"""GGUF files as model folders: converted once into a cache, then loaded like any other folder.

    FILE.gguf, `smollm2` ──▶ lock ──▶ NAME-DIGEST.tmp-PID ── rename ──▶ NAME-DIGEST/

Weights are dequantised to float32, exactly as transformers reads them. The lock is for nodes that
start together: one converts, the others wait. A folder appears complete or not at all, even if the
process is killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from shoal_base import cache_folder as cache
from shoal_base.files import expanded, is_full, locked, sync
from shoal_base.visible import first_line
from shoal_base.waits import HOUR_S
from shoal_policy.model.writing import failures_as_os_errors
from shoal_settings.early import INSTALL, MOST_LAYERS, SMOLLM2, packaged_file

log = logging.getLogger(__name__)

_FORMAT = 2
"""Version of the converted folders; a change converts all models again."""
_NAME_CHARS = 60  # a file name may have 255, with digest and suffixes


class GgufError(Exception):
    """A file is missing or cannot be converted. One line."""


def gguf_file(model: str) -> Path | None:
    """Return the file that a model name refers to; None if it is not a GGUF file."""
    if model == SMOLLM2:
        return packaged_file()
    path = expanded(model)
    return path if path.suffix.lower() == ".gguf" and path.is_file() else None


def converted_folder(model: str, file: Path, check: Callable[[Any], None]) -> Path:
    """Return the folder with a file's model, converting it first if necessary.

    `check` may reject the model's configuration before weights are read. Blocks for about ten
    seconds per hundred million weights, or while another process converts the same file. Raises
    GgufError.
    """
    try:
        folder = cache_folder() / _folder_name(model, file)
        if _is_complete(folder):
            return folder
        if importlib.util.find_spec("gguf") is None:
            raise GgufError(f"reading GGUF files needs gguf, which is not installed: {INSTALL}")
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = folder.with_name(f"{folder.name}.lock")
        waiting = partial(log.info, "another process converts this model: waiting for it")
        with locked(lock, seconds=HOUR_S, on_wait=waiting):
            for left in folder.parent.glob(f"{folder.name}.tmp-*"):  # left by a killed process
                shutil.rmtree(left, ignore_errors=True)
            if not _is_complete(folder):
                _convert(file, folder, check)
        return folder
    except TimeoutError:
        raise GgufError(f"another process has been converting {folder} for an hour") from None
    except OSError as error:
        where = error.filename or cache_folder()
        why = "no space left" if is_full(error) else error.strerror or type(error).__name__
        raise GgufError(f"cannot convert {file.name}: {where}: {why}") from error


def cache_folder() -> Path:
    """Return the folder of converted models. Raises GgufError if there is none."""
    try:
        return cache.cache_folder("models")
    except LookupError as error:
        raise GgufError(str(error)) from None


def describe_missing_weights(info: Mapping[str, Any]) -> str:
    """Return a message about the weights that a loader reports as missing."""
    missing = sorted(info["missing_keys"])
    return f"lacks weights: {', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}"


def _folder_name(model: str, file: Path) -> str:
    """Name a conversion after its file; a different size or time means a different file."""
    found = file.stat()
    # A packaged file is identical in every environment.
    where = "" if model == SMOLLM2 else f"{file.resolve()} {found.st_mtime_ns}"
    text = f"{_FORMAT} {where} {found.st_size}"
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem)[:_NAME_CHARS]
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _is_complete(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def _convert(file: Path, folder: Path, check: Callable[[Any], None]) -> None:
    log.info("converting %s, once, into %s", file.name, folder)
    temporary = folder.with_name(f"{folder.name}.tmp-{os.getpid()}")
    try:
        _check_counts(file)
        check(_read(AutoConfig, file))
        tokenizer = _read(AutoTokenizer, file)
        model, info = _read(
            AutoModelForCausalLM, file, dtype=torch.float32, output_loading_info=True
        )
        if info["missing_keys"]:
            # They would be initialised randomly and saved like trained weights.
            raise GgufError(f"{file.name} {describe_missing_weights(info)}")
        # The weights are unquantised now; with the old flag the folder would not load.
        model.hf_quantizer = None
        vars(model.config).pop("quantization_config", None)
        with failures_as_os_errors():
            model.save_pretrained(temporary)
            tokenizer.save_pretrained(temporary)
        for path in temporary.iterdir():
            sync(path)
        if folder.exists():  # incomplete
            shutil.rmtree(folder)
        temporary.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_counts(file: Path) -> None:
    """Raise GgufError if the header names more data than the file has, or too many layers.

    The reader treats data beyond the end as empty and may loop over it forever, and layers are
    created one by one before any weight is checked.
    """
    from gguf import GGUFReader  # an extra

    class StrictReader(GGUFReader):
        def _get(self, offset: Any, dtype: Any, count: Any = 1, override_order: Any = None) -> Any:
            size = int(np.dtype(dtype).itemsize) * int(count)
            if int(offset) + size > len(self.data):
                raise ValueError("the file is shorter than its header says")
            return super()._get(offset, dtype, count, override_order)

    try:
        fields = StrictReader(file).fields
        layers = [int(one.contents()) for name, one in fields.items() if "block_count" in name]
        if max(layers, default=0) > MOST_LAYERS:
            raise ValueError(f"the header claims {max(layers):,} layers")
    except Exception as error:  # as in _read
        raise GgufError(f"cannot read {file.name}: {first_line(error)}") from error


def _read(loader: Any, file: Path, **options: Any) -> Any:
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # hides its progress bars
            return loader.from_pretrained(
                file.parent,
                gguf_file=file.name,
                local_files_only=True,
                trust_remote_code=False,
                **options,
            )
    except Exception as error:  # the reader raises arbitrary errors for a damaged file
        raise GgufError(f"cannot read {file.name}: {first_line(error)}") from error
