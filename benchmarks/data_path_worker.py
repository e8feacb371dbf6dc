"""Runs many nodes in one process, as `swarm_worker` does, and counts their costs for `data_path`.

It is run as a file, with the tree to measure on PYTHONPATH, so that an older one can be measured
too: all counters sit in what both trees share, namely Trio, system calls and noise.
"""

from __future__ import annotations

import functools
import json
import os
import random
import socket
import struct
import sys
import time
from collections import Counter
from typing import Any

import trio
import trio.testing
from noise.connection import NoiseConnection

from benchmarks import swarm_worker
from benchmarks.texts import reasoning
from shoal_base.collector import spare_collector

_HEADER = struct.Struct("!BBHII")
_CHARS, _NUM_TEXTS = 200, 4096
_KINDS = ("data", "window_updates", "pings", "go_away")


class _Steps(trio.abc.Instrument):
    """Counts task steps by the function that the task runs."""

    def __init__(self, counts: Counter[str], of_tasks: Counter[str]) -> None:
        self._counts = counts
        self._of_tasks = of_tasks

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._counts["steps"] += 1
        self._of_tasks[task.name] += 1

    def task_spawned(self, _task: trio.lowlevel.Task) -> None:
        self._counts["spawned"] += 1


class _Frames:
    """Counts the yamux frames in what one connection encrypts."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._begun = False
        self._buffer = bytearray()
        self._body = 0

    def take(self, plain: bytes) -> None:
        """Count the frames of the next plaintext; before yamux there is a negotiation in text."""
        self._begun = self._begun or plain[:1] == b"\0"
        if not self._begun:
            return
        self._buffer += plain
        while self._buffer:
            if self._body:
                piece = min(self._body, len(self._buffer))
                del self._buffer[:piece]
                self._body -= piece
                continue
            if len(self._buffer) < _HEADER.size:
                return
            _version, kind, flags, _stream, length = _HEADER.unpack(self._buffer[: _HEADER.size])
            del self._buffer[: _HEADER.size]
            self._body = length if kind == 0 else 0
            is_update = kind == 1
            self._counts["flags" if is_update and flags else _KINDS[kind]] += 1


def _count(counts: Counter[str]) -> None:
    """Wrap the functions that send, receive and encrypt."""
    with socket.socket() as some:
        socket_type: Any = type(trio.socket.from_stdlib_socket(some))
    for name in ("recv", "send"):

        def wrap(real: Any, name: str = name) -> Any:
            @functools.wraps(real)
            def counted(self: Any, *arguments: Any) -> Any:
                counts[name] += 1
                return real(self, *arguments)

            return counted

        setattr(socket_type, name, wrap(getattr(socket_type, name)))
    read, write = os.read, os.write

    def counted_read(descriptor: int, size: int) -> bytes:
        counts["recv"] += 1
        return read(descriptor, size)

    def counted_write(descriptor: int, data: Any) -> int:
        counts["send"] += 1
        return write(descriptor, data)

    os.read, os.write = counted_read, counted_write
    _count_frames(counts)


def _count_frames(counts: Counter[str]) -> None:
    encrypt = NoiseConnection.encrypt

    def counted(self: Any, data: bytes) -> bytes:
        counts["noise_messages"] += 1
        if not hasattr(self, "frames"):
            self.frames = _Frames(counts)
        self.frames.take(data)
        sealed: bytes = encrypt(self, data)
        return sealed

    NoiseConnection.encrypt = counted


def _texts_beforehand() -> None:
    """Publish texts made in advance: making them is not part of a delivery's cost."""
    rng = random.Random(4)
    made = [reasoning(rng, _CHARS) for _ in range(_NUM_TEXTS)]

    def pick(rng: random.Random, num_chars: int) -> str:
        return rng.choice(made)[:num_chars]

    worker: Any = swarm_worker
    worker.reasoning = pick


def main(config: dict[str, Any]) -> None:
    """Run the nodes; their snapshots include the counts."""
    spare_collector()
    _texts_beforehand()
    counts: Counter[str] = Counter()
    of_tasks: Counter[str] = Counter()
    instruments = []
    if config.pop("counted"):
        _count(counts)
        instruments = [_Steps(counts, of_tasks)]
    snapshot = swarm_worker.Fleet.snapshot

    async def with_counts(self: Any) -> Any:
        found = await snapshot(self)
        loop_s = time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)
        return {**found, "loop_cpu_s": loop_s, "counts": counts, "tasks": of_tasks}

    swarm_worker.Fleet.snapshot = with_counts  # type: ignore[method-assign]
    slowness = config.pop("slowness")
    clock = trio.testing.MockClock(rate=1.0) if slowness > 1.0 else None
    publish = swarm_worker.Fleet.publish

    async def slowly(self: Any, **how: Any) -> Any:
        if clock is not None:  # they have connected at full speed
            clock.rate = 1 / slowness
        return await publish(self, **how)

    swarm_worker.Fleet.publish = slowly  # type: ignore[method-assign]
    trio.run(swarm_worker.main, config, instruments=instruments, clock=clock)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
