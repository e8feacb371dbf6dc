"""GGUF files as model folders: converted once into a cache, then loaded like any other folder.

    FILE.gguf, `smollm2` ──▶ lock ──▶ NAME-DIGEST.tmp-PID ── rename ──▶ NAME-DIGEST/

The weights come out of their quantisation as float32, exactly as transformers reads them. The lock
is for nodes that start together: one converts, the others wait. A folder is there whole or not at
all, whatever is killed when.
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
"""Version of the converted folders; another number converts anew."""
_NAME_CHARS = 60  # a folder name may have 255, with digest and endings


class GgufError(Exception):
    """A file cannot be converted, or is not there. One line."""


def gguf_file(model: str) -> Path | None:
    """Return the file that a model's name stands for; None where it stands for none."""
    if model == SMOLLM2:
        return packaged_file()
    path = expanded(model)
    return path if path.suffix.lower() == ".gguf" and path.is_file() else None


def converted(model: str, file: Path, check: Callable[[Any], None]) -> Path:
    """Return the folder with a file's model, made now if it is not there yet.

    `check` may refuse the model's configuration before a weight is read. Blocks for some ten
    seconds a hundred million weights, or for another process that converts the same file. Raises
    GgufError.
    """
    try:
        folder = cache_folder() / _folder_name(model, file)
        if _is_whole(folder):
            return folder
        if importlib.util.find_spec("gguf") is None:
            raise GgufError(f"reading GGUF files needs gguf, which is not installed: {INSTALL}")
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = folder.with_name(f"{folder.name}.lock")
        waiting = partial(log.info, "another process converts this model: waiting for it")
        with locked(lock, seconds=HOUR_S, on_wait=waiting):
            for left in folder.parent.glob(f"{folder.name}.tmp-*"):  # what a killed one left
                shutil.rmtree(left, ignore_errors=True)
            if not _is_whole(folder):
                _convert(file, folder, check)
        return folder
    except TimeoutError:
        raise GgufError(f"another process has been converting {folder} for an hour") from None
    except OSError as error:
        where = error.filename or cache_folder()
        why = "no space left" if is_full(error) else error.strerror or type(error).__name__
        raise GgufError(f"cannot convert {file.name}: {where}: {why}") from error


def cache_folder() -> Path:
    """Return where converted models are kept. Raises GgufError where there is none."""
    try:
        return cache.cache_folder("models")
    except LookupError as error:
        raise GgufError(str(error)) from None


def lacks_weights(info: Mapping[str, Any]) -> str:
    """Return a line about what a loader's report names as missing from a model's files."""
    missing = sorted(info["missing_keys"])
    return f"lacks weights: {', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}"


def _folder_name(model: str, file: Path) -> str:
    """Name a conversion by its file: another size or time of it is another file."""
    found = file.stat()
    # A package's file is the same in every environment that has it.
    where = "" if model == SMOLLM2 else f"{file.resolve()} {found.st_mtime_ns}"
    text = f"{_FORMAT} {where} {found.st_size}"
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem)[:_NAME_CHARS]
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _is_whole(folder: Path) -> bool:
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
            # They would be drawn by lot, and the folder would hold them like any others.
            raise GgufError(f"{file.name} {lacks_weights(info)}")
        # The weights are plain numbers here; saying otherwise, the folder would not load.
        model.hf_quantizer = None
        vars(model.config).pop("quantization_config", None)
        with failures_as_os_errors():
            model.save_pretrained(temporary)
            tokenizer.save_pretrained(temporary)
        for path in temporary.iterdir():
            sync(path)
        if folder.exists():  # not whole
            shutil.rmtree(folder)
        temporary.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_counts(file: Path) -> None:
    """Raise GgufError where the file's head speaks of more than there is, or than can be built.

    The reader takes what lies beyond the end for nothing, and may count such nothings for ever;
    and layers are made one by one before a weight is looked at.
    """
    from gguf import GGUFReader  # an extra

    class ToTheEnd(GGUFReader):
        def _get(self, offset: Any, dtype: Any, count: Any = 1, override_order: Any = None) -> Any:
            size = int(np.dtype(dtype).itemsize) * int(count)
            if int(offset) + size > len(self.data):
                raise ValueError("it ends before what it speaks of")
            return super()._get(offset, dtype, count, override_order)

    try:
        fields = ToTheEnd(file).fields
        layers = [int(one.contents()) for name, one in fields.items() if "block_count" in name]
        if max(layers, default=0) > MOST_LAYERS:
            raise ValueError(f"it says that it has {max(layers):,} layers")
    except Exception as error:  # as in _read
        raise GgufError(f"cannot read {file.name}: {first_line(error)}") from error


def _read(loader: Any, file: Path, **options: Any) -> Any:
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # its bars
            return loader.from_pretrained(
                file.parent,
                gguf_file=file.name,
                local_files_only=True,
                trust_remote_code=False,
                **options,
            )
    except Exception as error:  # a spoilt file makes the reader raise anything at all
        raise GgufError(f"cannot read {file.name}: {first_line(error)}") from error
