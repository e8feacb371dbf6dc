"""`shoal invite`: one line that lets other nodes join the swarm of a running peer."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from shoal.nearby import answers_at, running_node
from shoal.view.invitation import chosen, encoded
from shoal.view.node import RunningNode
from shoal_base.lines import say, say_json
from shoal_base.node_folders import NODE_FOLDER
from shoal_ipc.answers.doctor import Doctor, Facts
from shoal_ipc.answers.form import read, to_json
from shoal_ipc.answers.peer import JoinAddress, KeyFile
from shoal_ipc.client import NodeRefused, NodeUnavailable
from shoal_p2p.net.swarm_key import SwarmKeyError, load_swarm_key
from shoal_settings.exits import EXIT_FAILED, EXIT_OK, fail
from shoal_settings.parser import Parser, data_dir_flag
from shoal_tasks.run_memory import saved_task_files
from shoal_tasks.task_file import unshared_task_files
from shoal_wire.invite import InviteError

DESCRIPTION = """\
Print one line that lets other nodes join (`shoal join LINE`) the swarm of the node or bootstrap
peer that runs in --data-dir. It holds the swarm's digest and addresses of its peers, reachable ones
first. It holds the key of a private swarm only with --with-key.

  shoal invite > line.txt   of the node that runs in .shoal/node

Everything but the line goes to standard error, so that the line can be piped.
Exit codes: 0 ok, 1 failed, 2 usage, 3 no node there."""

_BOOTSTRAP_FOLDER = NODE_FOLDER.with_name("bootstrap")


def main(argv: Sequence[str]) -> int:
    """Run `shoal invite`; return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        node = RunningNode(_folder(arguments.data_dir), "invite")
        report = read(Doctor, node.ask("doctor"), shown=False)
        addresses = chosen(report.facts.addresses)
        if not addresses:
            raise fail("invite", "it has no listening address and no relay", EXIT_FAILED)
        key = _key(report.facts.key) if arguments.with_key else None
        line = encoded(report, addresses, key)
        files = unshared_task_files(saved_task_files(node.data_dir))
        _print(line, addresses, report, files, with_key=key is not None, as_json=arguments.json)
    except (InviteError, SwarmKeyError, NodeRefused, NodeUnavailable) as error:
        return fail("invite", str(error), EXIT_FAILED).code
    return EXIT_OK


def _print(
    line: str,
    addresses: Sequence[JoinAddress],
    report: Doctor,
    files: Sequence[str],
    *,
    with_key: bool,
    as_json: bool,
) -> None:
    reach = addresses[0].scope
    if as_json:
        keys = ("address", "scope", "dial_result", "relayed")
        say_json(
            {
                "schema_version": 1,
                "line": line,
                "swarm": to_json(report.swarm),
                "reach": reach,
                "addresses": [{key: getattr(one, key) for key in keys} for one in addresses],
                "private": report.facts.key is not None,
                "with_key": with_key,
                "task_files": list(files),
            }
        )
        return
    say(line)
    for hint in (*_hints(reach, report.facts, with_key=with_key), *map(_needed, files)):
        say(f"shoal invite: {hint}", error=True)


def _needed(file: str) -> str:
    return (
        f"a friend needs {file} and the files that it names: share = true in it lets their node "
        "fetch them"
    )


def _hints(reach: str, facts: Facts, *, with_key: bool) -> list[str]:
    """Return hints for the person who sends the line."""
    hints = []
    if reach == "loopback":
        hints.append(
            "only loopback addresses are known: the line works on this machine alone "
            "(--listen changes that)"
        )
    elif reach == "private":
        hints.append(
            "no public address and no relay is known: the line works in this network alone "
            "(`shoal doctor`)"
        )
    if with_key:
        hints.append("the line holds the swarm's key: its readers can join and decrypt")
    elif facts.key is not None:
        hints.append(
            "the swarm is private and the line lacks its key: send the key separately, or use "
            "--with-key"
        )
    if facts.allowed_peers:
        hints.append("the swarm has an allow list: only peers in its --allow-peers can join")
    return hints


def _key(key_file: KeyFile | None) -> bytes:
    """Read the key that the node uses; it does not pass through its socket."""
    if key_file is None:
        raise fail("invite", "--with-key: the swarm is public, it has no key")
    if key_file.problem:
        raise fail("invite", f"--with-key: {key_file.problem}", EXIT_FAILED)
    return load_swarm_key(Path(key_file.file))


def _folder(named: Path) -> Path:
    """Return the default folder: a node's, otherwise that of a bootstrap peer next to it."""
    found = running_node(named)
    if named is not NODE_FOLDER or answers_at(found):
        return found
    return _BOOTSTRAP_FOLDER if answers_at(_BOOTSTRAP_FOLDER) else found


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="shoal invite", description=DESCRIPTION)
    data_dir_flag(
        parser, "the peer's folder (.shoal/node, or the node started last, or the bootstrap)"
    )
    parser.add_argument(
        "--with-key", action="store_true", help="include the key of a private swarm"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser
