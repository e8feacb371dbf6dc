"""Default folders of nodes: one for each model, numbered where taken.

    .shoal/node, node-2 …            the embedded model that nobody has to name
    .shoal/node-MODEL, -MODEL-2 …    any other

A folder that holds another model's checkpoint is passed over, and one that holds this model's from
before there was a folder for each is gone on with.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shoal_base.bounded import FEW

NODE_FOLDER: Final = Path(".shoal/node")
METRICS_FILE: Final = "metrics.jsonl"
"""File of a node's folder in which its trainer notes every round."""
TOY: Final = "tiny"
"""The model whose folder is not named after it."""

_MAX_NAME_CHARS = 40  # a path to a socket may have about a hundred
_CHECKPOINT = re.compile(r"round-(\d+)(?:\.(\d+))?")


def folders_for(model: str, base: Path = NODE_FOLDER) -> Iterator[Path]:
    """Yield the folders for a node of a model, the first that is free being its own.

    Looks at the checkpoints in them.
    """
    if model == TOY:
        yield from (one for one in numbered(base) if model_in(one) in (None, model))
        return
    yield from (one for one in numbered(base) if model_in(one) == model)
    own = base.with_name(f"{base.name}-{name_of(model)}")
    yield from (one for one in numbered(own) if model_in(one) in (None, model))


def numbered(base: Path) -> Iterator[Path]:
    """Yield a folder, and beside it those numbered from 2 on."""
    yield base
    yield from (base.with_name(f"{base.name}-{number}") for number in range(2, FEW))


def beside(base: Path, file: str) -> list[Path]:
    """Return the folders of nodes beside the one of the embedded model that hold a file."""
    return sorted(path.parent for path in base.parent.glob(f"{base.name}-*/{file}"))


def name_of(model: str) -> str:
    """Return a model's name as part of a folder's: short, safe, the same for the same model.

    A folder is named by its last part, with a mark of the whole path.
    """
    whole = _as_folder(model)
    is_path, whole = whole is not None, whole or model
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(whole).name if is_path else model).strip("-._")
    if is_path or len(name) > _MAX_NAME_CHARS or not name or name.isdigit():
        mark = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:6]
        name = f"{name[:_MAX_NAME_CHARS] or 'model'}-{mark}"
    return name


def _as_folder(model: str) -> str | None:
    """Return the folder that a model's name is; None where it is no folder's."""
    try:
        path = Path(model).expanduser()
        is_file = path.suffix.lower() == ".gguf" and path.is_file()
        if model.startswith(("/", ".", "~")) or path.is_dir() or is_file:
            return str(path.resolve())
    except (OSError, ValueError, RuntimeError):  # NUL, a loop of links, a user that is not there
        pass
    return None


def newest_checkpoint(folder: Path) -> Path | None:
    """Return a folder's newest checkpoint by its name; None where there is none."""
    try:
        names = [(_CHECKPOINT.fullmatch(path.name), path) for path in _checkpoints(folder)]
    except OSError:
        return None
    found = [(int(match[1]), int(match[2] or 0), path) for match, path in names if match]
    return max(found)[2] if found else None


def model_in(folder: Path) -> str | None:
    """Return the model of a folder's newest checkpoint; None where there is none to be read."""
    newest = newest_checkpoint(folder)
    try:
        document = json.loads((newest / "state.json").read_text()) if newest else {}
        return str(document["model_name"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _checkpoints(folder: Path) -> list[Path]:
    return list((folder / "checkpoints").iterdir())
