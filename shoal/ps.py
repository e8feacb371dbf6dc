"""`shoal ps`: the nodes, bootstrap peers, judges and swarms that this user runs now."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.json_output import PeerProcess
from shoal.layout import Rows
from shoal.running_peers import RunningPeer, running_peers, shown_folder, status_of
from shoal_base.lines import say, say_json
from shoal_base.terminal import Terminal
from shoal_settings.exits import EXIT_OK
from shoal_settings.parser import Parser

DESCRIPTION = """\
List the nodes, bootstrap peers, judges and swarms that you run on this machine: their folder,
process, role and round, and what their trainer does. `shoal stop` ends them.

  shoal ps
  shoal ps --json    for programs

Exit codes: 0 ok, 2 usage."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal ps`; return the exit code."""
    parser = Parser(prog="shoal ps", description=DESCRIPTION)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args(argv)
    rows = [_row(peer) for peer in running_peers()]
    if arguments.json:
        say_json({"schema_version": 1, "peers": rows})
    elif rows:
        table = Rows(["folder", "pid", "role", "round", "state"])
        for row in rows:
            number = "-" if row["round"] is None else str(row["round"])
            table.add_row(row["folder"], str(row["pid"]), row["role"], number, row["state"])
        table.print(Terminal())
    else:
        say("nothing is running")
    return EXIT_OK


def _row(peer: RunningPeer) -> PeerProcess:
    status = status_of(peer)
    return {
        "folder": shown_folder(peer.folder),
        "pid": peer.pid,
        "role": peer.role,
        "round": status.round,
        "state": status.state,
        "parent_pid": peer.parent_pid,
    }
