"""Checkpoints on disk: found, verified and named. No tensors.

Commands use this module to reject a folder before torch is imported.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shoal_base.visible import first_line

FORMAT_VERSION = 1

_NAME = re.compile(r"round-(\d{6,})(?:\.(\d+))?")
TEMPORARY = re.compile(r"round-\d{6,}(?:\.\d+)?\.tmp-.*")


class CheckpointError(Exception):
    """A checkpoint cannot be written or read. The text is one line and names the file."""


class NoRoomError(CheckpointError):
    """A checkpoint cannot be written because the disk is full; earlier ones are intact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerState:
    """A trainer's state apart from weights and optimiser.

    It has no random state: each round has seeds of its own (`shoal_policy.round.config`).
    """

    round: int
    """Rounds completed."""
    policy_version: int
    """Updates the policy has received."""
    consumed_ids: tuple[str, ...] = ()
    """Hex ids of groups whose effect this checkpoint contains, not yet confirmed by the node."""
    counters: Mapping[str, Any] = field(default_factory=dict)
    """Other values that must survive; JSON."""
    swarm: str = ""
    """Digest of the swarm in which these rounds ran, hex; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A checkpoint that was skipped, and why."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The newest complete checkpoint, if any, and newer unusable ones."""

    path: Path | None
    skipped: tuple[Skipped, ...]


def latest_checkpoint(directory: Path) -> Latest:
    """Return the newest checkpoint whose every byte is intact.

    Reads all of it. Corrupt and partial ones are listed, never deleted here.
    """
    root = directory / "checkpoints"
    skipped = []
    for path in newest_first(root):
        reason = fault_of(path, hashes=True)
        if reason is None:
            break
        skipped.append(Skipped(path=path, reason=reason))
    else:
        path = None
    if root.is_dir():
        leftovers = sorted(entry for entry in root.iterdir() if TEMPORARY.fullmatch(entry.name))
        skipped += [Skipped(path=entry, reason="interrupted while writing") for entry in leftovers]
    return Latest(path=path, skipped=tuple(skipped))


def read_state(path: Path) -> tuple[TrainerState, str]:
    """Return a checkpoint's state and the name of its model. Raises CheckpointError."""
    try:
        document = json.loads((path / "state.json").read_text())
        if document.get("format_version") != FORMAT_VERSION:
            raise CheckpointError(
                f"{path.name} has format {document.get('format_version')!r}; "
                f"this program reads {FORMAT_VERSION}"
            )
        return _state_from_json(document), document["model_name"]
    except CheckpointError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(f"{path} is not a checkpoint: it has no state.json") from None
    except Exception as error:  # damaged bytes may hold any JSON, or none
        raise CheckpointError(f"cannot read {path.name}: {cause_of(error)}") from error


def newest_first(root: Path) -> Iterator[Path]:
    """Return the checkpoints in a folder, complete or not, newest first by name."""
    return (path for _, _, path in sorted(numbered(root), reverse=True))


def numbered(root: Path) -> list[tuple[int, int, Path]]:
    """Return round, number among those of the same round, and path of each checkpoint."""
    names = [
        (_NAME.fullmatch(path.name), path) for path in (root.iterdir() if root.is_dir() else ())
    ]
    return [(int(match[1]), int(match[2] or 0), path) for match, path in names if match]


def fault_of(path: Path, *, hashes: bool) -> str | None:
    """Return why a checkpoint is not complete, or None. With `hashes` every byte is read."""
    try:
        manifest = json.loads((path / "manifest.json").read_text())
        files = manifest["files"]
        if "model/config.json" not in files and "model/adapter_config.json" not in files:
            return "its manifest lacks model/config.json"
        for name in ("state.json", "optimizer.pt"):
            if name not in files:
                return f"its manifest lacks {name}"
        for name, entry in files.items():
            file = path / name
            if file.stat().st_size != entry["size"]:
                return f"{name} has {file.stat().st_size} bytes instead of {entry['size']}"
            if hashes and sha256_of(file) != entry["sha256"]:
                return f"{name} was changed or damaged"
    except FileNotFoundError as error:
        return f"{Path(error.filename).relative_to(path).as_posix()} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"unreadable: {cause_of(error)}"
    return None


def state_to_json(state: TrainerState, model_name: str) -> dict[str, Any]:
    """Return the content of `state.json`."""
    return {
        "format_version": FORMAT_VERSION,
        "model_name": model_name,
        **asdict(state),
    }


def _state_from_json(document: dict[str, Any]) -> TrainerState:
    return TrainerState(
        round=int(document["round"]),
        policy_version=int(document["policy_version"]),
        consumed_ids=tuple(map(str, document["consumed_ids"])),
        counters=document["counters"],
        swarm=str(document.get("swarm", "")),
    )


def sha256_of(file: Path) -> str:
    """Return a file's SHA-256 in hex. Raises OSError."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def cause_of(error: Exception) -> str:
    """Return an error in one line; a full disk in plain words."""
    if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error):
        return "no space left on the disk"
    return first_line(error)
