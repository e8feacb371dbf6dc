"""The one entry point, `shoal`. Each command is imported only when it is asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

from shoal_settings.exits import EXIT_OK, EXIT_USAGE

COMMANDS = {
    "node": ("p2p.__main__", "join a swarm (or start one), train, share and learn"),
    "bootstrap": ("bootstrap.__main__", "a meeting point: stable address, relays, trains nothing"),
    "swarm": (
        "shoal.swarm.command",
        "a bootstrap and N nodes on this machine, a live table",
    ),
    "trainer": ("policy.__main__", "the trainer process alone (a node starts its own)"),
    "experiment": (
        "shoal.experiment.__main__",
        "does sharing help? the paper's comparison on this machine, with table and figures",
    ),
    "tasks": ("shoal.tasks", "list task families; show one with a sample and its scores"),
    "publish": ("shoal.publish", "share a file of completions through a node"),
    "answer": ("shoal.answer", "answer questions yourself, and share the answers"),
    "export": ("shoal.export.command", "the rollouts a node has seen, as a data set"),
    "judge": ("p2p.judge.__main__", "ask nodes, score their answers, keep signed records"),
    "debug": ("shoal.debug.command", "look inside a running node"),
}
"""Name → module with `main(argv)`, and what it does. A string, not an import: the node's package
must not depend on the trainer's."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `shoal`; return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return EXIT_OK if arguments else EXIT_USAGE
    if arguments[0] == "--version":
        print(f"shoal {version('shoal')}")
        return EXIT_OK
    entry = COMMANDS.get(arguments[0])
    if entry is None:
        print(
            f"shoal: no command {arguments[0]!r}; there are {', '.join(COMMANDS)}", file=sys.stderr
        )
        return EXIT_USAGE
    command: Callable[[Sequence[str]], int] = importlib.import_module(entry[0]).main
    return command(arguments[1:])


def _usage() -> str:
    rows = "\n".join(f"  {name:<10} {text}" for name, (_, text) in COMMANDS.items())
    return (
        "usage: shoal COMMAND [flags]\n\n"
        "Post-train a language model by reinforcement learning together with others, over a\n"
        "peer-to-peer network and with no server.\n\n"
        f"commands:\n{rows}\n\n"
        "`shoal COMMAND --help` explains each. Start with `shoal node`: alone it trains alone."
    )


if __name__ == "__main__":
    sys.exit(main())
