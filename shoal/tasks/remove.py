"""`shoal tasks remove`: ends training on a task that was added to a running node."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.tasks.on_offer import add_folder, with_node
from shoal.view.node import RunningNode
from shoal_base.lines import say
from shoal_ipc import messages as m
from shoal_settings.parser import Parser

DESCRIPTION = """\
Stop training on a task that a running node has accepted or added, and delete the node's copy of its
files. The node goes on with its other tasks.

  shoal tasks remove words

Exit codes: 0 ok, 1 failed, 2 usage, 3 no node there."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal tasks remove`; return the exit code."""
    parser = Parser(prog="shoal tasks remove", description=DESCRIPTION)
    parser.add_argument("task", metavar="NAME", help="the task's name in `shoal tasks --swarm`")
    add_folder(parser)
    arguments = parser.parse_args(argv)

    def run(node: RunningNode) -> None:
        node.order_task(m.TaskAction.REMOVE, arguments.task)
        say(f"task {arguments.task} is removed")

    return with_node("tasks remove", arguments.data_dir, run)
