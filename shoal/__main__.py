"""The one entry point, `shoal`. Each command is imported only when it is asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from shoal_base.lines import guard_process, say, say_lines
from shoal_base.output import end_with_the_reader, flush_output
from shoal_settings.exits import EXIT_OK, EXIT_USAGE
from shoal_settings.parser import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command."""

    module: str
    """Has `main(argv)`. By name, since only the command that is asked for is imported."""
    does: str
    parts: Mapping[str, str] = field(default_factory=dict)
    """Its sub-commands that another module has: first word → module."""


COMMANDS = {
    "node": Command(
        module="p2p.__main__", does="join a swarm (or start one), train, share and learn"
    ),
    "invite": Command(module="shoal.invite", does="print one line with which others join"),
    "join": Command(module="shoal.join", does="a node in the swarm that an invitation names"),
    "bootstrap": Command(
        module="bootstrap.__main__",
        does="a meeting point: stable address, relays, trains nothing",
    ),
    "swarm": Command(
        module="shoal.swarm.command", does="a bootstrap and N nodes on this machine, a live table"
    ),
    "trainer": Command(
        module="policy.__main__", does="the trainer process alone (a node starts its own)"
    ),
    "experiment": Command(
        module="shoal.experiment.command",
        does="does sharing help? the paper's comparison on this machine, with table and figures",
    ),
    "tasks": Command(
        module="shoal.tasks", does="list task families; show one with a sample and its scores"
    ),
    "publish": Command(module="shoal.publish", does="share a file of completions through a node"),
    "answer": Command(
        module="shoal.answer", does="answer questions yourself, and share the answers"
    ),
    "export": Command(
        module="shoal.export.command", does="the rollouts a node has seen, as a data set"
    ),
    "judge": Command(
        module="p2p.judge.__main__",
        does="ask nodes, score their answers, keep signed records",
        parts={"report": "shoal.judge_report.command"},
    ),
    "watch": Command(module="shoal.watch.command", does="a node in this terminal, live"),
    "page": Command(module="shoal.page.entry", does="a web page of a node, or of a whole swarm"),
    "debug": Command(module="shoal.debug.command", does="look inside a running node"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `shoal`; return the exit code."""
    guard_process()
    end_with_the_reader()
    code = _run(argv)
    flush_output()
    return code


def _run(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["help"] and arguments[1:]:
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        say_lines(_usage())
        return EXIT_OK if arguments else EXIT_USAGE
    if arguments[0] == "--version":
        say(f"shoal {version('shoal')}")
        return EXIT_OK
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        there = f"{did_you_mean(name, COMMANDS)}; there are {', '.join(COMMANDS)}"
        say(f"shoal: no command {name!r}{there}", error=True)
        return EXIT_USAGE
    module = COMMANDS[name].module
    if rest and rest[0] in COMMANDS[name].parts:
        module, rest = COMMANDS[name].parts[rest[0]], rest[1:]
    run: Callable[[Sequence[str]], int] = importlib.import_module(module).main
    return run(rest)


def _usage() -> str:
    rows = "\n".join(f"  {name:<10} {command.does}" for name, command in COMMANDS.items())
    return (
        "usage: shoal COMMAND [flags]\n\n"
        "Post-train a language model by reinforcement learning together with others, over a\n"
        "peer-to-peer network and with no server.\n\n"
        f"commands:\n{rows}\n\n"
        "`shoal COMMAND --help` explains each. Start with `shoal node`: alone it trains alone."
    )


if __name__ == "__main__":
    sys.exit(main())
