"""Tools for environments: a call in a message, its result in the next observation. Pure.

    class Game:
        def reset(self, seed):
            return "What is 3 * 4?\n" + offer(CALCULATOR)

        def step(self, message):
            result = answer_call(message, (CALCULATOR,))
            if result is not None:
                return result, 0.0, False
            return "", float(message.strip() == "12"), True

A call has the form of the model's chat template, or stands between the tool's tags:

    Qwen, Hermes   <tool_call>{"name": "calculator", "arguments": {"expression": "3 * 4"}}
    Llama          <|python_tag|>{"name": "calculator", "parameters": {"expression": "3 * 4"}}
    any other      <calculator>3 * 4</calculator>

The result has the form of the call. Every peer recomputes it when it replays a game, so nothing
here may depend on the machine, the clock or randomness, and results must never change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shoal_tasks.worker.calculator import calculate
from shoal_tasks.worker.snippets import run_snippet

CALCULATOR: Final = "calculator"
PYTHON: Final = "python"

MAX_CALL_CHARS: Final = 4000
"""Maximum characters of a call's argument: more than a model writes in one message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool."""

    name: str
    argument: str
    is_tagged: bool
    """True if it stood between the tool's tags, not in a chat template's form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool, which returns text for any argument."""

    run: Callable[[str], str]
    parameter: str
    """Name of its only argument in a chat template's form."""
    offer: str
    """The line that describes the tool to the policy."""


def offer(*names: str) -> str:
    """Return the description of tools for a first observation, one line for each."""
    return "\n".join(TOOLS[name].offer for name in names)


def answer_call(message: str, names: Sequence[str]) -> str | None:
    """Return the result of the first call in a message; None if it calls none of these tools."""
    call = call_in(message, names)
    if call is None:
        return None
    too_long = len(call.argument) > MAX_CALL_CHARS
    result = "error: too long" if too_long else TOOLS[call.name].run(call.argument)
    if call.is_tagged:
        return f"<result>{result}</result>"
    return f"<tool_response>\n{result}\n</tool_response>"


def call_in(message: str, names: Sequence[str]) -> ToolCall | None:
    """Return the call of one of these tools that begins first."""
    found: list[tuple[int, ToolCall]] = []
    for name in names:
        start = message.find(f"<{name}>")
        end = message.find(f"</{name}>", start)
        if start >= 0 and end >= 0:
            argument = message[start + len(name) + 2 : end]
            found.append((start, ToolCall(name=name, argument=argument, is_tagged=True)))
    for place in _FORMS.finditer(message):
        call = _from_json(message[place.end() :], names)
        if call is not None:
            found.append((place.start(), call))
            break
    return min(found, key=lambda one: one[0])[1] if found else None


_FORMS: Final = re.compile(r"<tool_call>|<\|python_tag\|>|\A\s*(?=\{)")
"""Marks before a call in the templates of Qwen, Hermes and Llama; Llama's call may have none."""
_ARGUMENTS: Final = ("arguments", "parameters")


def _from_json(text: str, names: Sequence[str]) -> ToolCall | None:
    try:
        document, _ = json.JSONDecoder().raw_decode(text[: 2 * MAX_CALL_CHARS].lstrip())
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    name = document.get("name")
    if not isinstance(name, str) or name not in names:
        return None
    arguments: Any = next((document[key] for key in _ARGUMENTS if key in document), None)
    if isinstance(arguments, dict):
        values = list(arguments.values())
        arguments = arguments.get(TOOLS[name].parameter, values[0] if len(values) == 1 else None)
    if not isinstance(arguments, str | int | float):
        return None
    return ToolCall(name=name, argument=str(arguments), is_tagged=False)


TOOLS: Final[Mapping[str, Tool]] = {
    CALCULATOR: Tool(
        run=calculate,
        parameter="expression",
        offer="You may calculate: <calculator>12 * 34</calculator>",
    ),
    PYTHON: Tool(
        run=run_snippet,
        parameter="code",
        offer="You may run Python: <python>print(12 * 34)</python>",
    ),
}
