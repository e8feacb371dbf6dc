"""`shoal schema`: the JSON schemas of the output of --json, generated from its types."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import DataclassSchema

from shoal import json_output
from shoal.log_lines import LogEntry
from shoal.view.model import ShownPeer
from shoal.view.node import words_of
from shoal_base.lines import say_json, say_lines
from shoal_ipc.answers.views import VIEWS
from shoal_settings.exits import EXIT_OK, fail
from shoal_settings.parser import Parser, did_you_mean

DESCRIPTION = """\
Print the JSON schema (draft 2020-12) of a command's --json output, or of all commands. Within a
version, keys are only added. An error on standard error has the schema `error`.

  shoal schema           of all commands
  shoal schema status    of one

Exit codes: 0 ok, 2 usage."""


_SERVING = json_output.Ready | json_output.Config
_TRAINING = json_output.RoundEvent | json_output.Config
SHAPES: Final[Mapping[str, Any]] = {
    "error": json_output.Failed,
    "node": _SERVING | json_output.RoundEvent,
    "join": _SERVING | json_output.RoundEvent,
    "bootstrap": _SERVING,
    "judge": _SERVING,
    "trainer": _TRAINING,
    "swarm": json_output.SwarmEvent | json_output.Config,
    "invite": json_output.Invitation,
    "experiment": json_output.ExperimentOutput,
    "tasks": json_output.ShownFamily | json_output.FamiliesOutput,
    "publish": json_output.Published,
    "answer": json_output.Answered,
    "export model": json_output.ExportedModel,
    "export data": json_output.Exported,
    "judge report": json_output.ReportOfJudges,
    "ps": json_output.PeerProcesses,
    "stop": json_output.StoppedPeers,
    "logs": LogEntry,
    "watch": ShownPeer,
    "page": json_output.PageReady,
    "chat": json_output.ChatAnswer,
    "serve": json_output.ServeReady,
    "schema": json_output.Schemas,
    "completion": json_output.CompletionOutput,
    **{" ".join(words_of(view)): kind for view, kind in VIEWS.items()},
    **{f"debug {order}": json_output.PeerAction for order in ("block", "unblock", "protect")},
    "debug bugreport": json_output.BugReport,
}
"""Types of the objects that each command prints, by the command's words."""
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


class _OfAnswers(GenerateJsonSchema):
    """Schemas in which every key is required, except those that only some peers have."""

    def dataclass_schema(self, schema: DataclassSchema) -> JsonSchemaValue:
        made = super().dataclass_schema(schema)
        required = (one for one in fields(schema["cls"]) if not one.metadata.get("absent"))
        return {**made, "required": [one.name for one in required]}


def schema_of(words: str) -> dict[str, Any]:
    """Return the schema of one command. Raises KeyError."""
    made = TypeAdapter(SHAPES[words]).json_schema(mode="serialization", schema_generator=_OfAnswers)
    return {"$schema": DRAFT, **made}


def schemas() -> dict[str, dict[str, Any]]:
    """Return all, by command."""
    return {words: schema_of(words) for words in SHAPES}
