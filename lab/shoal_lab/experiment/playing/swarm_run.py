"""One job by real processes on this machine's loopback: a bootstrap, N nodes and their trainers.

    bootstrap ─address─▶ nodes ─▶ their metrics.jsonl ─▶ one file, as a job in memory writes it

Nothing is deterministic here: nodes meet when they meet. A job that was cut goes on from the
nodes' own checkpoints.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from policy.record.metrics import METRICS_FILE
from shoal_base.children import environment, python
from shoal_base.log_file import CHILD_LOG, CHILD_LOG_BYTES, BoundedFile
from shoal_lab.experiment.plan import Job
from shoal_settings.loader import to_flags
from shoal_settings.schema import Command, Settings

LISTEN = "/ip4/127.0.0.1/tcp/0"
_POLL_SECONDS = 0.5
_READY_SECONDS = 120.0
_STOP_SECONDS = 30.0
_TAIL_BYTES = 8192
_CHUNK_BYTES = 65536

Line = dict[str, Any]


class SwarmFailed(Exception):  # noqa: N818 - reported to the user
    """A process of the swarm ended badly; the text names its log."""


def play_swarm(job: Job, folder: Path, emit: Callable[[Line], None]) -> None:
    """Run a job's nodes to their last round; then every line of theirs goes to `emit`.

    Blocks. Raises SwarmFailed.
    """
    name = _swarm_name(folder)
    with contextlib.ExitStack() as stack:
        address = _bootstrap(stack, folder / "b", job, name)
        nodes = []
        for index in range(job.num_nodes):
            data_dir = folder / f"n{index}"
            settings = job.node_settings(index, data_dir).model_copy(
                update={
                    "swarm_name": name,
                    "listen": (LISTEN,),
                    "bootstrap": (address,),
                    "mdns": False,
                    "log": "none",
                }
            )
            nodes.append((data_dir, _start(stack, "node", settings)))
        _wait(nodes, emit, job.rounds)
    for index in range(job.num_nodes):
        for line in _metrics(folder / f"n{index}"):
            emit({**line, "node": index})


def _swarm_name(folder: Path) -> str:
    """A name of its own: what else runs on this machine must not join. The same when it goes on."""
    return f"experiment-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]}"


def _bootstrap(stack: contextlib.ExitStack, data_dir: Path, job: Job, name: str) -> str:
    settings = job.node_settings(0, data_dir).model_copy(
        update={"swarm_name": name, "listen": (LISTEN,), "mdns": False, "json_output": True}
    )
    process = _start(stack, "bootstrap", settings, stdout=subprocess.PIPE)
    assert process.stdout is not None
    deadline = time.monotonic() + _READY_SECONDS
    for raw in process.stdout:
        with contextlib.suppress(ValueError):
            line = json.loads(raw)
            if line.get("addresses"):
                return str(line["addresses"][0])
        if time.monotonic() > deadline:
            break
    raise SwarmFailed(f"the bootstrap peer did not start: see {data_dir / CHILD_LOG}")


def _start(
    stack: contextlib.ExitStack,
    command: Command,
    settings: Settings,
    stdout: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [
            *python("-m", "shoal", command, "--supervised"),
            *to_flags(settings, command),
        ],
        stdin=subprocess.PIPE,  # its end tells the process that we are gone
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment(),
        start_new_session=True,
    )
    stack.callback(_stop, process)
    log = BoundedFile(settings.data_dir / CHILD_LOG, CHILD_LOG_BYTES)
    threading.Thread(target=_keep_log, args=(process, log), daemon=True).start()
    return process


def _keep_log(process: subprocess.Popen[bytes], log: BoundedFile) -> None:
    """Write what a process says until it ends, however much that is."""
    assert process.stderr is not None, "opened with a pipe"
    while chunk := os.read(process.stderr.fileno(), _CHUNK_BYTES):
        log.append(chunk)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait(
    nodes: Sequence[tuple[Path, subprocess.Popen[bytes]]],
    emit: Callable[[Line], None],
    rounds: int,
) -> None:
    """Until every node has ended; tells the least round that any has reached."""
    reported = 0
    while any(process.poll() is None for _, process in nodes):
        for data_dir, process in nodes:
            if process.poll():
                raise SwarmFailed(
                    f"a node ended with code {process.returncode}: see {data_dir / CHILD_LOG}"
                )
        least = min(_round_of(data_dir) for data_dir, _ in nodes)
        if reported < least < rounds:
            reported = least
            emit({"event": "progress", "round": least})
        time.sleep(_POLL_SECONDS)


def _round_of(data_dir: Path) -> int:
    """The last round that a node has written down; reads no more than the file's end."""
    try:
        with (data_dir / METRICS_FILE).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            tail = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return 0
    for line in reversed(tail):
        with contextlib.suppress(ValueError):
            return int(json.loads(line)["round"])
    return 0


def _metrics(data_dir: Path) -> Iterator[Line]:
    try:
        text = (data_dir / METRICS_FILE).read_text()
    except FileNotFoundError:
        return
    for line in text.splitlines():
        with contextlib.suppress(ValueError):  # the last may be half written
            yield json.loads(line)
