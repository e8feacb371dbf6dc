"""Checks of the machine: disk space, file descriptors, the sandbox. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from shoal_ipc.answers.doctor import Finding, State
from shoal_p2p.ipc.checks.seen import Seen, found

DISK_WARN_BYTES: Final = 2 * 1024**3
"""Space below which two checkpoints of a small model and the database do not fit."""
DISK_BAD_BYTES: Final = DISK_WARN_BYTES // 10
"""Space below which the database and the logs cannot grow to their limits."""
FILES_WANTED: Final = 1024
"""A lower limit is too small for the default number of connections and the node's files."""
FILES_SPARE: Final = FILES_WANTED // 16
"""With fewer free file descriptors, the next few peers use up all of them."""


def disk(seen: Seen) -> Iterator[Finding]:
    """Free space in the data directory."""
    free = seen.status.disk.free_bytes or 0
    state: State = "ok"
    if free < DISK_WARN_BYTES:
        state = "bad" if free < DISK_BAD_BYTES else "warn"
    remedy = (
        "" if state == "ok" else "free some space: checkpoints and the outbox are written there"
    )
    message = f"{free / 1024**3:.1f} GiB free in the data directory"
    if seen.status.disk.full:
        state, message = "bad", f"full: {message}"
        remedy = "free some space: training then continues by itself"
    yield found("disk", message, state, remedy)


def sandbox(seen: Seen) -> Iterator[Finding]:
    """Layers of the task worker's sandbox."""
    worker = seen.status.worker
    if not worker.sandbox:
        return
    remedy = (
        "allow user namespaces, or use Linux 5.13 or newer with Landlock; until then rewards and "
        "games in Python are refused, unless weak_sandbox accepts the risk"
    )
    state: State = "ok" if worker.is_sandboxed else "warn"
    yield found("sandbox", worker.sandbox, state, "" if worker.is_sandboxed else remedy)


def files(seen: Seen) -> Iterator[Finding]:
    """File descriptors in use."""
    used, limit = seen.facts.files_open, seen.facts.files_limit
    state: State = "warn" if limit < FILES_WANTED else "ok"
    if limit - used < FILES_SPARE:
        state = "bad"
    remedy = "raise the limit (ulimit -n 4096) or lower max_connections"
    message = f"{used} of {limit} file descriptors in use"
    yield found("files", message, state, "" if state == "ok" else remedy)
