"""`shoal stop`: ends nodes, bootstrap peers, judges and swarms in order, and waits for that."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil

from shoal.json_output import StoppedPeer
from shoal.running_peers import RunningPeer, running_peers, shown_folder, top_level
from shoal_base.lines import say, say_json
from shoal_base.waits import MINUTE_S, POLL_S
from shoal_p2p.data_dir import owner_of
from shoal_settings.exits import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NO_NODE, EXIT_OK, fail
from shoal_settings.parser import Parser, path, whole

DESCRIPTION = """\
Stop what you run on this machine, as Ctrl-C in its terminal does: a trainer writes its last
checkpoint, a node sends its last batches, and a swarm ends its nodes. Waits until each has ended.
The same command that started one resumes it.

  shoal stop                  the one that runs, if it is the only one
  shoal stop .shoal/swarm     the one in this folder
  shoal stop --all            everything that `shoal ps` lists

Exit codes: 0 ok, 1 one does not end, 2 usage, 3 nothing runs there."""

_FIRST: Final = ("node", "swarm")
"""Roles that are stopped first: a node sends its last batches through bootstrap peers."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal stop`; return the exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.folder and arguments.all:
        return fail("stop", "name folders, or --all").code
    try:
        chosen = _chosen(arguments.folder, stop_all=arguments.all)
        stopped = _stop(chosen, timeout_s=arguments.timeout, is_quiet=arguments.json)
    except KeyboardInterrupt:
        return fail("stop", "interrupted; what was asked to stop still does", EXIT_INTERRUPTED).code
    if arguments.json:
        say_json({"schema_version": 1, "stopped": stopped})
    return EXIT_OK


def _parser() -> Parser:
    parser = Parser(prog="shoal stop", description=DESCRIPTION)
    parser.add_argument(
        "folder", metavar="DIR", nargs="*", type=path, help="data directories, or a swarm's folder"
    )
    parser.add_argument("--all", action="store_true", help="stop everything that you run")
    parser.add_argument(
        "--timeout",
        type=whole(1, 86_400),
        default=round(MINUTE_S),
        metavar="SECONDS",
        help="how long to wait until all have ended",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    return parser


def _chosen(folders: Sequence[Path], *, stop_all: bool) -> list[RunningPeer]:
    """Return the peers to stop. Raises UsageExit if nothing runs there, or it is not clear what."""
    peers = running_peers()
    if folders:
        return [_in_folder(folder, peers) for folder in dict.fromkeys(map(Path.resolve, folders))]
    roots = top_level(peers)
    if not roots:
        raise fail("stop", "nothing is running", EXIT_NO_NODE)
    if len(roots) > 1 and not stop_all:
        there = ", ".join(shown_folder(peer.folder) for peer in roots)
        raise fail("stop", f"{len(roots)} are running; name one of {there}, or --all")
    return roots


def _in_folder(folder: Path, peers: Sequence[RunningPeer]) -> RunningPeer:
    for peer in peers:
        if peer.folder == folder:
            return peer
    if (pid := owner_of(folder)) is not None:
        why = f"{shown_folder(folder)} is in use by process {pid}, which is not yours to stop"
        raise fail("stop", why, EXIT_FAILED)
    raise fail("stop", f"nothing is running in {shown_folder(folder)}", EXIT_NO_NODE)


def _stop(peers: Sequence[RunningPeer], *, timeout_s: int, is_quiet: bool) -> list[StoppedPeer]:
    """Stop peers, nodes before other peers; return those stopped. Raises UsageExit on timeout."""
    began = time.monotonic()
    first = [peer for peer in peers if peer.role in _FIRST]
    stopped = []
    for batch in (first, [peer for peer in peers if peer not in first]):
        for peer in batch:
            if not is_quiet:
                say(f"stopping {shown_folder(peer.folder)} ({peer.role}, pid {peer.pid})")
            _signal(peer)
        for peer in batch:
            while owner_of(peer.folder) == peer.pid:
                if time.monotonic() - began > timeout_s:
                    raise fail("stop", _still_running(peer, timeout_s), EXIT_FAILED)
                time.sleep(POLL_S)
            stopped.append(
                StoppedPeer(
                    folder=shown_folder(peer.folder),
                    pid=peer.pid,
                    role=peer.role,
                    seconds=round(time.monotonic() - began, 1),
                )
            )
            if not is_quiet:
                say("stopped {folder} after {seconds} s".format(**stopped[-1]))
    return stopped


def _signal(peer: RunningPeer) -> None:
    """Ask a process to end, unless it just has."""
    try:
        process = psutil.Process(peer.pid)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)  # a suspended one handles signals when it continues
    except psutil.NoSuchProcess:
        pass
    except psutil.AccessDenied:
        raise fail("stop", f"process {peer.pid} is not yours to stop", EXIT_FAILED) from None


def _still_running(peer: RunningPeer, timeout_s: int) -> str:
    folder = shown_folder(peer.folder)
    return (
        f"{folder} still runs after {timeout_s} s; `shoal logs --data-dir {folder}` shows what it "
        f"does, `kill -9 {peer.pid}` ends it at once"
    )
