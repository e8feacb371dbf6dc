"""The entry point of `shoal`. A command is imported only when it runs."""

from __future__ import annotations

import errno
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from shoal_base.extras import LAB, missing_for_lab
from shoal_base.lines import guard_process, say, say_lines
from shoal_base.output import end_with_the_reader, flush_output
from shoal_settings.exits import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    UsageExit,
    errors_as_json,
    fail,
)
from shoal_settings.parser import did_you_mean
from shoal_tasks.errors import TaskError


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command."""

    module: str
    """Module with `main(argv)`, by name: only the command that runs is imported."""
    does: str
    group: str = "inspect"
    """Heading of its group in the list of commands."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Sub-commands in modules of their own: word → module."""
    takes_words: bool = False
    """True if its first argument may be something else than a sub-command."""


COMMANDS = {
    "node": Command(
        module="shoal_p2p.__main__",
        does="join or start a swarm, and train in it",
        group="run",
    ),
    "invite": Command(
        module="shoal.invite", does="print one line that lets other nodes join", group="run"
    ),
    "join": Command(
        module="shoal.join",
        does="run a node in the swarm of an invitation",
        group="run",
    ),
    "bootstrap": Command(
        group="run",
        module="shoal_bootstrap.__main__",
        does="run a meeting point: a stable address, relays, no training",
    ),
    "swarm": Command(
        module="shoal.swarm.command",
        does="run a bootstrap and N nodes on this machine, with a live table",
        group="run",
    ),
    "trainer": Command(
        module="shoal_policy.__main__",
        does="run the trainer process alone (a node starts its own)",
        group="run",
    ),
    "experiment": Command(
        module="shoal_lab.experiment.command",
        does="does sharing help? the paper's comparison, table and figures",
        group="measure",
    ),
    "tasks": Command(
        module="shoal.tasks.command",
        does="list task families; show one; write one for your data and try it",
        group="tasks and answers",
        parts={
            "new": "shoal.tasks.new_file",
            "try": "shoal.tasks.try_out",
            "lint": "shoal.tasks.lint",
            "add": "shoal.tasks.add",
            "remove": "shoal.tasks.remove",
        },
        takes_words=True,
    ),
    "publish": Command(
        module="shoal.publish",
        does="share a file of completions through a node",
        group="tasks and answers",
    ),
    "answer": Command(
        module="shoal.answer",
        does="answer questions yourself, and share the answers",
        group="tasks and answers",
    ),
    "chat": Command(
        module="shoal.chat",
        does="chat with a policy in this terminal",
        group="tasks and answers",
    ),
    "serve": Command(
        module="shoal.serve",
        does="serve a policy through OpenAI's API, for other programs",
        group="tasks and answers",
    ),
    "export": Command(
        module="shoal.export.command",
        does="the trained model, or the rollouts as a data set",
        group="tasks and answers",
        parts={"model": "shoal.export.model", "data": "shoal.export.data"},
    ),
    "judge": Command(
        module="shoal_p2p.judge.__main__",
        does="question nodes, score their answers, store signed records",
        group="measure",
        parts={"report": "shoal_lab.judge_report.command"},
    ),
    "ps": Command(module="shoal.ps", does="nodes and swarms that run on this machine"),
    "stop": Command(module="shoal.stop", does="stop a node or a swarm, or all", group="run"),
    "status": Command(module="shoal.status", does="a node at a glance"),
    "doctor": Command(module="shoal.doctor", does="what is wrong with a node, and what to do"),
    "watch": Command(module="shoal.watch.command", does="a node in this terminal, live"),
    "page": Command(module="shoal.page.command", does="a web page of a node, or of a whole swarm"),
    "debug": Command(
        module="shoal.debug.command", does="peers, scores, buffer, ledger; block a peer"
    ),
    "logs": Command(module="shoal.logs", does="what a node and its trainer logged; -f follows it"),
    "schema": Command(
        module="shoal.schema",
        does="the JSON schema of what a command prints with --json",
        group="shell and scripts",
    ),
    "completion": Command(
        module="shoal.completion",
        does="shell completion for bash, zsh and fish",
        group="shell and scripts",
    ),
}


GROUPS = ("run", "inspect", "tasks and answers", "measure", "shell and scripts")
"""Groups of commands, in the order in which they are listed."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `shoal`; return the exit code."""
    guard_process()
    end_with_the_reader()
    arguments = list(sys.argv[1:] if argv is None else argv)
    # A child prints errors as plain lines: its parent shows the last one.
    with errors_as_json("--json" in arguments and "--supervised" not in arguments):
        code = _run(arguments)
        flush_output()
    return code


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"] and arguments[1:]:
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        say_lines(_usage())
        return EXIT_OK if arguments else EXIT_USAGE
    if arguments[0] in ("--version", "-V", "version"):
        say(f"shoal {version('shoal')}")
        return EXIT_OK
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        there = f"{did_you_mean(name, COMMANDS)}; there are {', '.join(COMMANDS)}"
        return fail("", f"no command {name!r}{there}").code
    command = COMMANDS[name]
    module, parts = command.module, command.parts
    if rest and (rest[0] in parts or (parts and not command.takes_words and rest[0][:1] != "-")):
        if rest[0] not in parts:
            meant = f"{did_you_mean(rest[0], parts)}; there is {', '.join(parts)}"
            return fail(name, f"no command {rest[0]!r}{meant}").code
        name, module, rest = f"{name} {rest[0]}", parts[rest[0]], rest[1:]
    if not is_installed(module):
        return fail(name, missing_for_lab() or "").code
    run: Callable[[Sequence[str]], int] = importlib.import_module(module).main
    try:
        return run(rest)
    except UsageExit as end:
        return end.code
    except TaskError as error:
        return fail(name, str(error), EXIT_FAILED).code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        # An argument was looked up as a file; pathlib raises nothing else for it.
        if error.errno != errno.ENAMETOOLONG:
            raise
        return fail(name, f"file name too long: {error.filename}").code


def is_installed(module: str) -> bool:
    """Return whether the distribution that a command's module belongs to is installed."""
    return not module.startswith(f"{LAB}.") or missing_for_lab() is None


def _usage() -> str:
    groups: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name, command in COMMANDS.items():
        groups[command.group].append(f"  {name:<10} {command.does}")
    rows = "\n\n".join("\n".join([f"{group}:", *rows]) for group, rows in groups.items())
    return (
        "usage: shoal COMMAND [flags]\n\n"
        "Post-train language models with reinforcement learning across many machines:\n"
        "a peer-to-peer network without a server.\n\n"
        f"{rows}\n\n"
        "`shoal COMMAND --help` explains a command. Start with `shoal node`: it trains\n"
        "also while no other node is there."
    )


if __name__ == "__main__":
    sys.exit(main())
