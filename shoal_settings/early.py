"""Refuses early what a trainer would refuse after seconds of imports.

Looks at names, files and this installation, and loads nothing. What it cannot know without torch or
the model is left to the trainer.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shoal_base.extras import is_installed
from shoal_base.files import expanded
from shoal_settings.loader import EMBEDDED
from shoal_settings.parser import did_you_mean
from shoal_settings.schema import Settings

_CONFIGS: Final = ("config.json", "adapter_config.json")
"""A model's folder has one of these files."""
_NAMES: Final = (*EMBEDDED, "smollm2")
_LIKENESS: Final = 0.8
"""Likeness, 0 to 1, from which an unknown name counts as a mistyped model of ours. A guess."""


def early_refusal(settings: Settings) -> str | None:
    """Return why a trainer with these settings could not start, in one line; None if it may."""
    return next(_refusals(settings), None)


def _refusals(settings: Settings) -> Iterator[str]:
    yield from _of_sinks(settings)
    if settings.no_train and settings.generator == "openai":
        return
    yield from _of_device(settings.device)
    # The checkpoint of a run that resumes holds its model.
    if not (settings.resume and (settings.data_dir / "checkpoints").is_dir()):
        yield from _of_model(settings.model)


def _of_sinks(settings: Settings) -> Iterator[str]:
    for name in settings.log.split(","):
        if name not in ("auto", "none") and not is_installed(name):
            yield f"--log {name}: it is not installed: pip install {name}"


def _of_device(device: str) -> Iterator[str]:
    name = device.partition(":")[0]
    if name == "mps" and sys.platform != "darwin":
        yield f"--device {device}: this machine has no Apple GPU; use --device cpu"
    if name == "cuda" and _lacks_cuda():
        yield (
            f"--device {device}: this machine has a torch that was built without CUDA; "
            "use --device cpu, or install what is missing"
        )


def _lacks_cuda() -> bool:
    """Return whether the installed torch says of itself that it has neither CUDA nor ROCm."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return False
    try:
        text = (Path(found.origin).parent / "version.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    built = dict(re.findall(r"^(cuda|hip)\b[^=\n]*= *(.*)$", text, re.M))
    return built.get("cuda") == "None" and built.get("hip", "None") == "None"


def quantised(model: str) -> str:
    """Return why a model of quantised weights is not trained, in one line."""
    return (
        f"cannot use model {model!r}: its weights are quantised, and adapters on such weights were "
        "never tried; take the model as it was before, with --lora-rank 16 --dtype bfloat16"
    )


def _is_quantised(config: Path) -> bool:
    try:
        known = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False  # its loader says what is wrong with it
    return isinstance(known, dict) and bool(known.get("quantization_config"))


def _of_model(model: str) -> Iterator[str]:
    if model in _NAMES:
        return
    folder = expanded(model)
    if folder.is_dir():
        if not any((folder / name).is_file() for name in _CONFIGS):
            yield f"cannot load model {model!r}: this folder has no config.json"
        elif _is_quantised(folder / _CONFIGS[0]):
            yield quantised(model)
    elif folder.is_file():
        return
    elif model.startswith(("/", ".", "~")):
        yield f"cannot load model {model!r}: no such folder"
    elif "/" not in model and (meant := did_you_mean(model, _NAMES, likeness=_LIKENESS)):
        yield f"there is no model {model!r}{meant}"
