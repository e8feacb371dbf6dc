"""Default folders of nodes: one for each model and choice of tasks, numbered if taken.

    .shoal/node, node-2 …            the default model and tasks
    .shoal/node-NAMES, -NAMES-2 …    all others; `shoal_settings.default_folder` chooses NAMES

Folders with another model's checkpoint are skipped.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from shoal_base.bounded import FEW

NODE_FOLDER: Final = Path(".shoal/node")
METRICS_FILE: Final = "metrics.jsonl"
"""File of a node's folder with a line for each of its trainer's rounds."""
TOY: Final = "tiny"
"""The default model, whose folder does not have its name."""

_MAX_NAME_CHARS = 40  # a path to a socket may have about a hundred
_CHECKPOINT = re.compile(r"round-(\d+)(?:\.(\d+))?")


def folders_for(model: str, base: Path) -> Iterator[Path]:
    """Yield the numbered folders that a node of a model may use; it takes the first free one.

    Looks at the checkpoints in them.
    """
    yield from (one for one in numbered(base) if model_in(one) in (None, model))


def with_names(base: Path, names: Sequence[str]) -> Path:
    """Return the sibling of `base` that is named after a run's model, tasks or swarm."""
    label = "-".join(names)
    if len(label) > _MAX_NAME_CHARS:
        mark = hashlib.sha256(label.encode("utf-8", "surrogatepass")).hexdigest()[:6]
        label = f"{label[:_MAX_NAME_CHARS]}-{mark}"
    return base.with_name(f"{base.name}-{label}") if label else base


def numbered(base: Path) -> Iterator[Path]:
    """Yield a folder, and its siblings numbered from 2."""
    yield base
    yield from (base.with_name(f"{base.name}-{number}") for number in range(2, FEW))


def folders_with(file: str, base: Path = NODE_FOLDER) -> list[Path]:
    """Return the default folders of nodes that have a file, the unnamed one first."""
    own = [base] if (base / file).exists() else []
    return own + sorted(path.parent for path in base.parent.glob(f"{base.name}-*/{file}"))


def name_of(model: str) -> str:
    """Return a model's name as part of a folder's: short, safe, the same for the same model.

    A model folder's name is its last component, plus a hash of the whole path.
    """
    whole = _as_folder(model)
    is_path, whole = whole is not None, whole or model
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(whole).name if is_path else model).strip("-._")
    if is_path or len(name) > _MAX_NAME_CHARS or not name or name.isdigit():
        mark = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:6]
        name = f"{name[:_MAX_NAME_CHARS] or 'model'}-{mark}"
    return name


def _as_folder(model: str) -> str | None:
    """Return a model's name as the path of a folder; None if it is not one."""
    try:
        path = Path(model).expanduser()
        is_file = path.suffix.lower() == ".gguf" and path.is_file()
        if model.startswith(("/", ".", "~")) or path.is_dir() or is_file:
            return str(path.resolve())
    except (OSError, ValueError, RuntimeError):  # NUL, a loop of links, a user that is not there
        pass
    return None


def newest_checkpoint(folder: Path) -> Path | None:
    """Return a folder's newest checkpoint, by name; None if there is none."""
    try:
        names = [(_CHECKPOINT.fullmatch(path.name), path) for path in _checkpoints(folder)]
    except OSError:
        return None
    found = [(int(match[1]), int(match[2] or 0), path) for match, path in names if match]
    return max(found)[2] if found else None


def model_in(folder: Path) -> str | None:
    """Return the model of a folder's newest checkpoint; None if none is readable."""
    name = _state_in(folder).get("model_name")
    return None if name is None else str(name)


def swarm_in(folder: Path) -> str:
    """Return the digest of the swarm of a folder's newest checkpoint; empty if it is not known."""
    return str(_state_in(folder).get("swarm") or "")


def _state_in(folder: Path) -> dict[str, object]:
    newest = newest_checkpoint(folder)
    try:
        document = json.loads((newest / "state.json").read_text()) if newest else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _checkpoints(folder: Path) -> list[Path]:
    return list((folder / "checkpoints").iterdir())
