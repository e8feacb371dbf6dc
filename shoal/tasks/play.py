"""`shoal tasks GAME --play`: a person plays one game of an environment in the terminal."""

from __future__ import annotations

import argparse
import sys

from shoal.layout import MAX_CELL_CHARS, cut
from shoal_base.terminal import Terminal
from shoal_base.visible import visible
from shoal_settings.exits import fail
from shoal_settings.parser import whole
from shoal_settings.trainer_settings import MAX_SHOTS
from shoal_tasks.families import coordinates
from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import PlayRequest
from shoal_tasks.worker.sync import SyncTaskWorker


def play(console: Terminal, spec: FamilySpec, seed: int) -> None:
    """Print the environment's messages, and read one message per line until the game ends."""
    require_game(spec)
    task = coordinates(spec, seed)
    messages: list[str] = []
    earned, is_over = 0.0, False
    with SyncTaskWorker([spec]) as worker:
        (first,) = worker.questions([task])
        console.print_lines(first)
        while len(messages) < spec.max_turns and not is_over:
            console.print()
            console.print("> ", end="")
            line = sys.stdin.readline()
            if not line:
                break
            messages.append(line.rstrip("\n"))
            (answer,) = worker.play([PlayRequest(task=task, messages=tuple(messages))])
            if answer.error:
                raise fail("tasks", answer.error)
            console.print_lines(answer.observations[-1])
            earned, is_over = answer.reward, answer.done
    end_line(console, len(messages), earned, is_over=is_over)


def add_prompt_flags(parser: argparse.ArgumentParser, *, shots: str) -> None:
    """Add the flags of a model's prompt; `shots` is the help of `--shots`."""
    parser.add_argument(
        "--prompt",
        choices=("auto", "chat", "plain"),
        default="auto",
        help="form of the prompt, as --prompt of a node (default: %(default)s)",
    )
    parser.add_argument("--shots", type=whole(0, MAX_SHOTS), metavar="N", help=shots)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def require_game(spec: FamilySpec) -> None:
    """Raise UsageExit for a family that is not a game."""
    if not spec.is_environment:
        raise fail("tasks", f"{spec.name!r} is not a game; --play needs an environment")


def short(text: str) -> str:
    """Return a text on one line, cut at a maximum length."""
    return cut(visible(" ".join(text.split())), MAX_CELL_CHARS)


def end_line(console: Terminal, num_messages: int, reward: float, *, is_over: bool) -> None:
    """Print how a game ended, and its reward."""
    turns = f"{num_messages} turn{'' if num_messages == 1 else 's'}"
    ended = f"is over after {turns}" if is_over else f"ends unfinished after {turns}"
    console.print()
    console.print(f"The game {ended}. Reward {reward:.2f}")
