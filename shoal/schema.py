"""`shoal schema`: the JSON schemas of what commands print with --json, made from their types."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import TypeAdapter

from shoal.shapes import commands, node, peer
from shoal_base.lines import say_json, say_lines
from shoal_settings.exits import EXIT_OK, fail
from shoal_settings.parser import Parser, did_you_mean

DESCRIPTION = """\
Print the JSON schema (draft 2020-12) of what a command prints with --json, or of all commands. Keys
of a version stay; others may come. An error is of the schema `error`, on standard error.

  shoal schema                 all, by command
  shoal schema debug status    of one

Exit codes: 0 ok, 2 usage."""

_SERVING = commands.Ready | commands.Config
_TRAINING = commands.RoundEvent | commands.Config
SHAPES: Final[Mapping[str, Any]] = {
    "error": commands.Failed,
    "node": _SERVING | commands.RoundEvent,
    "join": _SERVING | commands.RoundEvent,
    "bootstrap": _SERVING,
    "judge": _SERVING,
    "trainer": _TRAINING,
    "swarm": commands.SwarmEvent | commands.Config,
    "invite": commands.Invitation,
    "experiment": commands.Experiment,
    "tasks": commands.ShownFamily | commands.Families,
    "publish": commands.Published,
    "answer": commands.Answered,
    "export": commands.Exported,
    "judge report": commands.ReportOfJudges,
    "logs": commands.Entry,
    "schema": commands.Schemas,
    "completion": commands.Completion,
    "debug status": node.Status,
    "debug id": peer.Id,
    "debug peers": peer.Peers,
    "debug scores": peer.Scores,
    "debug block": peer.Order,
    "debug unblock": peer.Order,
    "debug protect": peer.Order,
    "debug mesh": peer.Mesh,
    "debug topics": peer.Topics,
    "debug buffer": node.Buffer,
    "debug contributions": node.Contributions,
    "debug fetch": node.Fetch,
    "debug doctor": peer.Doctor,
    "debug addresses": peer.Addresses,
    "debug ping": peer.Ping,
    "debug rollouts": node.Rollouts,
    "debug bugreport": peer.BugReport,
}
"""By the command's words: the type of each object that it prints."""
DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def main(argv: Sequence[str]) -> int:
    """Run `shoal schema`; return the exit code."""
    parser = Parser(prog="shoal schema", description=DESCRIPTION)
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="its words, as you type them")
    parser.add_argument("--json", action="store_true", help="in one line")
    arguments = parser.parse_args(argv)
    words = " ".join(arguments.command)
    if words and words not in SHAPES:
        meant = did_you_mean(words, SHAPES) or f"; there are {', '.join(SHAPES)}"
        return fail("schema", f"no schema of {words!r}{meant}").code
    shown = schema_of(words) if words else {"schema_version": 1, "schemas": schemas()}
    if arguments.json:
        say_json(shown)
    else:
        say_lines(json.dumps(shown, indent=1))
    return EXIT_OK


def schema_of(words: str) -> dict[str, Any]:
    """Return the schema of one command. Raises KeyError."""
    made = TypeAdapter(SHAPES[words]).json_schema(mode="serialization")
    return {"$schema": DRAFT, **made}


def schemas() -> dict[str, dict[str, Any]]:
    """Return all, by command."""
    return {words: schema_of(words) for words in SHAPES}
