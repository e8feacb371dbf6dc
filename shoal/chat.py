"""`shoal chat`: a conversation with a policy, in the terminal.

line ─▶ the turns so far ─▶ shoal_policy.serving (as `shoal serve` asks it) ─▶ answer
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shoal.policy_flags import chosen_policy, policy_flags
from shoal_base.lines import guard_process, say_json
from shoal_base.terminal import Terminal, styled
from shoal_base.visible import visible_name
from shoal_settings.exits import EXIT_OK
from shoal_settings.parser import Parser, whole

if TYPE_CHECKING:
    from shoal_policy.model.loading import Policy

DESCRIPTION = """\
Chat with a policy: a node's newest checkpoint (chosen once, at start) or any
model. Type a message and press Enter. An empty line begins a new conversation, Ctrl-D ends the
program. A model without a chat template has no conversations: it answers each line by itself.
Answers are sampled as in training, at temperature 1. Nothing is trained and nothing shared.

  shoal chat                   the policy of the node whose folder is here
  shoal chat --checkpoint .shoal/node/checkpoints/round-000100
  echo '2 + 3' | shoal chat --model tiny --json

Exit codes: 0 ok, 1 failed, 2 usage."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal chat` until its input ends; return the exit code."""
    arguments = _parser().parse_args(argv)
    guard_process()
    console = Terminal(stderr=arguments.json)
    policy = chosen_policy("chat", arguments)
    console.print(f"{visible_name(policy.name)} answers; Ctrl-D ends", style="dim")
    try:
        _talk(policy, arguments, console)
    except (EOFError, KeyboardInterrupt):
        console.print()
    return EXIT_OK


def _talk(policy: Policy, arguments: argparse.Namespace, console: Terminal) -> None:
    """Answer lines until there are none. Raises EOFError."""
    from shoal_policy.model.loading import PromptFormat
    from shoal_policy.serving.batcher import Batcher
    from shoal_policy.serving.replies import ServedRequest
    from shoal_policy.serving.requests import BadRequestError

    batcher = Batcher(policy)

    prompt = styled(("you:", "bold"), " ") if sys.stdin.isatty() else ""
    turns: list[dict[str, str]] = []
    while True:
        line = console.input(prompt)
        if not line.strip():
            turns.clear()
            continue
        turns.append({"role": "user", "content": line})
        try:
            body = {"messages": turns, "max_tokens": arguments.max_new_tokens}
            reply = ServedRequest("chat", batcher, body).reply()
        except BadRequestError as error:
            turns.pop()
            again = "; an empty line begins a new conversation" if turns else ""
            console.print(f"{error}{again}", style="red", soft_wrap=True)
            continue
        answer = reply["choices"][0]["message"]["content"]
        _show(reply, line, answer, console, as_json=arguments.json)
        if policy.prompt_format is PromptFormat.CHAT:
            turns.append({"role": "assistant", "content": answer})
        else:
            turns.clear()


def _show(
    reply: dict[str, Any], line: str, answer: str, console: Terminal, *, as_json: bool
) -> None:
    (choice,) = reply["choices"]
    if as_json:
        say_json(
            {
                "schema_version": 1,
                "model": reply["model"],
                "message": line,
                "answer": answer,
                "finish_reason": choice["finish_reason"],
                "num_tokens": reply["usage"]["completion_tokens"],
            }
        )
        return
    console.print_lines(answer)
    if choice["finish_reason"] == "length":
        console.print("(cut at --max-new-tokens)", style="dim")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="shoal chat", description=DESCRIPTION)
    policy_flags(parser)
    parser.add_argument(
        "--max-new-tokens",
        type=whole(1, 1 << 20),
        default=256,
        metavar="N",
        help="longest answer, in tokens (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object for each answer")
    return parser
