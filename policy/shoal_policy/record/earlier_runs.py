"""`--no-resume`, `--new-run`: an earlier run is archived, and no later start resumes it.

    checkpoints/, metrics.jsonl, …  ── rename ──▶  earlier-1/, earlier-2/, …
    next-run/checkpoints/           ── rename ──▶  checkpoints/                  with --new-run

A node restarts a crashed trainer with the flags of its first start. `--no-resume` applies to the
node's run, not to each of its trainers: the first one to start over records the run's name.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from shoal_base.files import write_atomically
from shoal_base.node_folders import METRICS_FILE

MARK_FILE = "started-over"
STATE_FILE = "generator.json"
"""Round counter of a generate-only node."""
TENSORBOARD_FOLDER = "tensorboard"

_NEXT_RUN = "next-run"
"""Folder of a new run's first checkpoint until the earlier run is archived."""
_CHECKPOINTS = "checkpoints"
_RUN_FILES = (
    METRICS_FILE,
    f"{METRICS_FILE}.old",
    TENSORBOARD_FOLDER,
    STATE_FILE,
    _CHECKPOINTS,  # last: until it is gone, a kill leaves the earlier run to be taken up
)


class StartOverError(Exception):
    """An earlier run cannot be archived. One line."""


def archive_run(data_dir: Path) -> Path | None:
    """Move the files of an earlier run to a folder of their own; return it, None if there are none.

    Nothing is deleted. After a kill the next start over moves the rest.
    Raises StartOverError.
    """
    found = [data_dir / name for name in _RUN_FILES if (data_dir / name).exists()]
    if not found:
        return None
    target = data_dir / f"earlier-{max(_numbers(data_dir), default=0) + 1}"
    try:
        target.mkdir()
        for path in found:
            path.rename(target / path.name)
    except OSError as error:
        raise StartOverError(
            f"cannot move {error.filename} to {target}: {error.strerror}"
        ) from None
    return target


def replace_run(data_dir: Path, write: Callable[[Path], object]) -> Path | None:
    """Archive an earlier run and start one whose first checkpoint `write` writes into a folder.

    Returns the archive. After a kill either run is there, complete. Raises StartOverError, and what
    `write` raises, in which case nothing was changed.
    """
    waiting = data_dir / _NEXT_RUN
    discard_next_run(data_dir)
    write(waiting)
    aside = archive_run(data_dir)
    finish_replacement(data_dir)
    return aside


def discard_next_run(data_dir: Path) -> None:
    """Discard a new run's first checkpoint that a kill left behind."""
    shutil.rmtree(data_dir / _NEXT_RUN, ignore_errors=True)


def finish_replacement(data_dir: Path) -> None:
    """Move a new run's first checkpoint into place, also after a kill. Raises StartOverError."""
    waiting, place = data_dir / _NEXT_RUN / _CHECKPOINTS, data_dir / _CHECKPOINTS
    if place.exists() or not waiting.is_dir():
        return
    try:
        waiting.rename(place)
        waiting.parent.rmdir()
    except OSError as error:
        raise StartOverError(f"cannot move {waiting} to {place}: {error.strerror}") from None


def num_earlier_runs(data_dir: Path) -> int:
    """Return how many runs were archived here."""
    return len(_numbers(data_dir))


def has_started_over(data_dir: Path, run: str) -> bool:
    """Return whether a trainer of the node's run `run` has already started over."""
    try:
        return (data_dir / MARK_FILE).read_text() == run
    except OSError:
        return False


def mark_started_over(data_dir: Path, run: str) -> None:
    """Record that the node's run `run` has started over. Raises StartOverError."""
    try:
        write_atomically(data_dir / MARK_FILE, run.encode())
    except OSError as error:
        raise StartOverError(f"cannot write {data_dir / MARK_FILE}: {error.strerror}") from None


def _numbers(data_dir: Path) -> list[int]:
    suffixes = (path.name.removeprefix("earlier-") for path in data_dir.glob("earlier-*"))
    return [int(suffix) for suffix in suffixes if suffix.isdecimal()]
