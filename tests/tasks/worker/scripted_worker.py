"""A scripted replacement of the worker process, which follows a scenario frame by frame.

Its own file is the program: `install` copies it with a list of lives, one per launch (the last one
for all later launches), each a list of actions, one per frame (the last one for all later frames).
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LIVES: list[list[str]] = []


def install(folder: Path, lives: Sequence[Sequence[str]]) -> Path:
    """Write the program; return the command to run instead of Python."""
    program = folder / "worker"
    text = Path(__file__).read_text().replace("= []", f"= {json.dumps(lives)}", 1)
    program.write_text(f"#!{sys.executable} -IS\n{text}\nmain()\n")
    program.chmod(0o755)
    return program


def launched(folder: Path) -> list[int]:
    """Process ids of all launches so far."""
    try:
        return [int(line) for line in (folder / "pids").read_text().split()]
    except FileNotFoundError:
        return []


def question_of(item: dict[str, Any]) -> str:
    """The scripted worker's question of a task."""
    return f"{item['family']} {item['seed']}"


def main() -> None:
    """Run one life."""
    folder = Path(sys.argv[0]).parent
    with (folder / "pids").open("a") as file:
        file.write(f"{os.getpid()}\n")
    deeds = LIVES[min(len(launched(folder)), len(LIVES)) - 1]
    position = 0
    while header := sys.stdin.buffer.read(4):
        (length,) = struct.unpack(">I", header)
        request = json.loads(sys.stdin.buffer.read(length))
        act(deeds[min(position, len(deeds) - 1)], request)
        position += 1


def act(deed: str, request: dict[str, Any]) -> None:
    """Perform one frame's action."""
    if deed == "crash":
        os._exit(1)
    if deed == "hang":
        time.sleep(60)
    if deed == "close":
        os.close(1)
        time.sleep(60)
    out = sys.stdout.buffer
    if deed == "not a frame":
        out.write(b"\xff" * 64)
    elif deed == "not json":
        out.write(struct.pack(">I", 3) + b"{[}")
    else:
        body = json.dumps(reply(deed, request)).encode()
        frame = (struct.pack(">I", len(body)) + body) * (2 if deed == "twice" else 1)
        for part in [frame[i : i + 7] for i in range(0, len(frame), 7)]:
            out.write(part)
            if deed == "slice":
                out.flush()
                time.sleep(0.001)
    out.flush()


def reply(deed: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return an action's reply to a request."""
    if deed in ("error", "refuse"):
        kind = {"error": "RuntimeError", "refuse": "FamilyError"}[deed]
        return {"ok": False, "kind": kind, "error": "no"}
    done = {"ok": True, "cpu_seconds": 10**400 if deed == "spend" else 0}
    if request["op"] == "setup":
        return {**done, "layers": []}
    items = [] if deed == "forget" else request["items"]
    if request["op"] == "score":
        return {**done, "results": [{"reward": 10**400 if deed == "overpay" else 1} for _ in items]}
    made = [{"question": question_of(item), "part": "training"} for item in items]
    return {**done, "results": made}
