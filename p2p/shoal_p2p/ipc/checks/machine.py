"""Checks of the machine: room on its disk, file descriptors, the sandbox. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from shoal_ipc.answers.doctor import Finding, State
from shoal_p2p.ipc.checks.seen import Seen, found

DISK_WARN_BYTES: Final = 2 * 1024**3
"""Space below which two checkpoints of a small model do not fit beside the database."""
DISK_BAD_BYTES: Final = DISK_WARN_BYTES // 10
"""Space below which the database and the logs cannot grow as they may."""
FILES_WANTED: Final = 1024
"""A lower limit does not hold the connections that a node has by default, and its files."""
FILES_SPARE: Final = FILES_WANTED // 16
"""File descriptors below which the next peers that come take all."""


def disk(seen: Seen) -> Iterator[Finding]:
    """Room in the data directory."""
    free = seen.status.disk.free_bytes or 0
    state: State = "ok"
    if free < DISK_WARN_BYTES:
        state = "bad" if free < DISK_BAD_BYTES else "warn"
    do = "" if state == "ok" else "make room: checkpoints and the outbox are written there"
    says = f"{free / 1024**3:.1f} GiB free in the data directory"
    if seen.status.disk.full:
        state, says = "bad", f"full: {says}"
        do = "make room: training goes on by itself then"
    yield found("disk", says, state, do)


def sandbox(seen: Seen) -> Iterator[Finding]:
    """Layers that keep the task worker's code in."""
    worker = seen.status.worker
    if not worker.sandbox:
        return
    do = (
        "allow user namespaces, or use Linux 5.13 or newer with Landlock; until then rewards and "
        "games in Python are refused, unless weak_sandbox accepts the risk"
    )
    state: State = "ok" if worker.is_sandboxed else "warn"
    yield found("sandbox", worker.sandbox, state, "" if worker.is_sandboxed else do)


def files(seen: Seen) -> Iterator[Finding]:
    """File descriptors in use."""
    used, limit = seen.facts.files_open, seen.facts.files_limit
    state: State = "warn" if limit < FILES_WANTED else "ok"
    if limit - used < FILES_SPARE:
        state = "bad"
    do = "raise the limit (ulimit -n 4096) or lower max_connections"
    says = f"{used} of {limit} file descriptors in use"
    yield found("files", says, state, "" if state == "ok" else do)
