"""`--no-resume`, `--new-run`: an earlier run is set aside, and no later start takes it up again.

    checkpoints/, metrics.jsonl, …  ── rename ──▶  earlier-1/, earlier-2/, …
    next-run/checkpoints/           ── rename ──▶  checkpoints/                  with --new-run

A node starts a crashed trainer again with the flags of the first start. `--no-resume` among them
means the node's run, not each of its trainers: the first to start over leaves the run's name.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from shoal_base.files import write_atomically
from shoal_base.node_folders import METRICS_FILE

MARK_FILE = "started-over"
STATE_FILE = "generator.json"
"""File in which a generate-only node counts its rounds."""
TENSORBOARD_FOLDER = "tensorboard"

_NEXT_RUN = "next-run"
"""Folder in which a new run's first checkpoint waits until the earlier run is out of the way."""
_CHECKPOINTS = "checkpoints"
_LEFT_BY_A_RUN = (
    METRICS_FILE,
    f"{METRICS_FILE}.old",
    TENSORBOARD_FOLDER,
    STATE_FILE,
    _CHECKPOINTS,  # last: until it is gone, a kill leaves the earlier run to be taken up
)


class StartOverError(Exception):
    """An earlier run cannot be set aside. One line."""


def set_aside(data_dir: Path) -> Path | None:
    """Move what an earlier run left into a folder of its own; return it, None if nothing was there.

    Nothing is deleted. A kill in between leaves the rest for the next start over.
    Raises StartOverError.
    """
    found = [data_dir / name for name in _LEFT_BY_A_RUN if (data_dir / name).exists()]
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
    """Set an earlier run aside for one whose first checkpoint `write` writes into a folder.

    Returns where the earlier one is. A kill leaves either run, whole. Raises StartOverError, and
    what `write` does: nothing has been touched then.
    """
    waiting = data_dir / _NEXT_RUN
    drop_waiting(data_dir)
    write(waiting)
    aside = set_aside(data_dir)
    finish_replacing(data_dir)
    return aside


def drop_waiting(data_dir: Path) -> None:
    """Drop a new run's first checkpoint that a kill left waiting: another run begins."""
    shutil.rmtree(data_dir / _NEXT_RUN, ignore_errors=True)


def finish_replacing(data_dir: Path) -> None:
    """Put a new run's first checkpoint in its place, also after a kill. Raises StartOverError."""
    waiting, place = data_dir / _NEXT_RUN / _CHECKPOINTS, data_dir / _CHECKPOINTS
    if place.exists() or not waiting.is_dir():
        return
    try:
        waiting.rename(place)
        waiting.parent.rmdir()
    except OSError as error:
        raise StartOverError(f"cannot move {waiting} to {place}: {error.strerror}") from None


def num_earlier_runs(data_dir: Path) -> int:
    """Return how often a run was set aside here."""
    return len(_numbers(data_dir))


def has_started_over(data_dir: Path, run: str) -> bool:
    """Return whether a trainer of the node's run `run` started over already."""
    try:
        return (data_dir / MARK_FILE).read_text() == run
    except OSError:
        return False


def note_started_over(data_dir: Path, run: str) -> None:
    """Note that the node's run `run` need not start over again. Raises StartOverError."""
    try:
        write_atomically(data_dir / MARK_FILE, run.encode())
    except OSError as error:
        raise StartOverError(f"cannot write {data_dir / MARK_FILE}: {error.strerror}") from None


def _numbers(data_dir: Path) -> list[int]:
    suffixes = (path.name.removeprefix("earlier-") for path in data_dir.glob("earlier-*"))
    return [int(suffix) for suffix in suffixes if suffix.isdecimal()]
