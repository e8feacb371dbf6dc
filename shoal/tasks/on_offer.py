"""`shoal tasks --swarm`: the tasks that members add to the swarm of a running node."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from shoal.layout import Rows, number, peer_name
from shoal.nearby import running_node
from shoal.view.node import RunningNode
from shoal_base.lines import say_json
from shoal_base.node_folders import NODE_FOLDER
from shoal_base.terminal import Terminal
from shoal_ipc.answers.form import read
from shoal_ipc.answers.tasks import OfferedTask, Tasks
from shoal_ipc.client import NodeRefused, NodeUnavailable
from shoal_settings.exits import EXIT_FAILED, EXIT_OK, fail
from shoal_settings.parser import Parser

DESCRIPTION = """\
List the tasks that members have added to the swarm of a running node: what each is, who offers it,
how many nodes train on it, and what it earns there.

  shoal tasks --swarm                  the tasks on offer
  shoal tasks add words                fetch one, show it, and ask whether to train on it
  shoal tasks remove words             stop training on it

Exit codes: 0 ok, 1 failed, 2 usage, 3 no node there."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal tasks --swarm`; return the exit code."""
    parser = Parser(prog="shoal tasks --swarm", description=DESCRIPTION)
    add_folder(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args(argv)

    def run(node: RunningNode) -> None:
        answer = node.ask("tasks")
        if arguments.json:
            say_json(answer)
        else:
            show(Terminal(), read(Tasks, answer))

    return with_node("tasks", arguments.data_dir, run)


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Add the flag that names the node."""
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="the node's folder (.shoal/node, or the one started last)",
    )


def with_node(command: str, folder: Path | None, run: Callable[[RunningNode], None]) -> int:
    """Run a function with the node of a folder; return the exit code."""
    try:
        run(RunningNode(running_node(NODE_FOLDER if folder is None else folder), command))
    except (NodeRefused, NodeUnavailable) as error:
        raise fail(command, str(error), EXIT_FAILED) from None
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    return EXIT_OK


def show(console: Terminal, found: Tasks) -> None:
    """Print the tasks as a table."""
    if not found.tasks:
        console.print("no task is added to this swarm: `shoal tasks add FILE.toml` adds your own")
        return
    rows = Rows(["task", "title", "kind", "offered by", "nodes", "reward there", "here", "state"])
    for one in found.tasks:
        offered_by = ", ".join(peer_name(console, peer) for peer in one.offered_by[:2])
        more = len(one.offered_by) - 2
        rows.add_row(
            one.name,
            one.title or "-",
            kind_of(one),
            offered_by + (f" and {more} more" if more > 0 else "") or "this node",
            str(one.nodes),
            "-" if one.reward_peers is None else number(one.reward_peers),
            "-" if one.reward_local is None else number(one.reward_local),
            one.state + (f": {one.why}" if one.why else ""),
        )
    rows.print(console)
    if any(one.state == "offered" for one in found.tasks):
        console.print("`shoal tasks add NAME` shows one, and asks whether to train on it")


def kind_of(one: OfferedTask) -> str:
    """Return what a task is, in words."""
    kind = "game" if one.questions is None else f"{one.questions:,} questions"
    return f"{kind}, code" if one.has_code else kind
