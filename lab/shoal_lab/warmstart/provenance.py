"""Records a folder's provenance, and checks whether another folder is the same to the byte."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

PROVENANCE_FILE: Final = "provenance.json"
FILES: Final = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)
"""Files of a made folder, apart from its provenance."""

_PACKAGES: Final = ("torch", "transformers", "tokenizers", "safetensors", "reasoning-gym")


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each of `FILES`, as hexadecimal; raises OSError if one is missing."""
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES}


def environment() -> dict[str, str]:
    """Return the versions and hardware that a made folder's bytes may depend on."""
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {
        **versions,
        "machine": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def write_provenance(folder: Path, *, profile: str, measured: Mapping[str, Any]) -> None:
    """Write `folder`'s provenance into it."""
    record = {
        "profile": profile,
        "made_with": environment(),
        "measured": measured,
        "sha256": digests(folder),
    }
    text = json.dumps(record, indent=2) + "\n"
    (folder / PROVENANCE_FILE).write_text(text, encoding="utf-8")


def read_provenance(folder: Path) -> dict[str, Any]:
    """Return `folder`'s provenance; raises OSError or ValueError if there is none."""
    return dict(json.loads((folder / PROVENANCE_FILE).read_text(encoding="utf-8")))


def differing(made: Path, shipped: Path) -> list[str]:
    """Return the names of the files of `made` that are not, byte for byte, those of `shipped`."""
    ours, theirs = digests(made), digests(shipped)
    return [name for name in FILES if ours[name] != theirs[name]]


def environment_changes(shipped: Path) -> list[str]:
    """Return, as lines, how this machine differs from the one that made `shipped`."""
    made_with = read_provenance(shipped)["made_with"]
    here = environment()
    return [
        f"{key}: {made_with.get(key)} then, {value} here"
        for key, value in here.items()
        if made_with.get(key) != value
    ]
