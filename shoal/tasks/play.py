"""`shoal tasks GAME --play`: a person plays one game of an environment in the terminal."""

from __future__ import annotations

import sys

from shoal_base.terminal import Terminal
from shoal_base.visible import visible_lines
from shoal_settings.exits import fail
from shoal_tasks.families import FamilySpec, coordinates
from shoal_tasks.types import PlayRequest
from shoal_tasks.worker.sync import TaskWorker


def play(console: Terminal, spec: FamilySpec, seed: int) -> None:
    """Show what the environment says, and read a message a line until the game is over."""
    if not spec.is_environment:
        raise fail("tasks", f"{spec.name!r} does not answer back; --play needs an environment")
    task = coordinates(spec, seed)
    messages: list[str] = []
    earned = 0.0
    with TaskWorker([spec]) as worker:
        (first,) = worker.questions([task])
        _show(console, first)
        while len(messages) < spec.max_turns:
            console.print()
            console.print("> ", end="")
            line = sys.stdin.readline()
            if not line:
                break
            messages.append(line.rstrip("\n"))
            (answer,) = worker.play([PlayRequest(task=task, messages=tuple(messages))])
            if answer.error:
                raise fail("tasks", answer.error)
            _show(console, answer.observations[-1])
            earned = answer.reward
            if answer.done:
                _end(console, f"The game is over after {_turns(messages)}. Reward {earned:.2f}")
                return
    _end(console, f"The game ends unfinished after {_turns(messages)}. Reward {earned:.2f}")


def _end(console: Terminal, line: str) -> None:
    console.print()
    console.print(line)


def _turns(messages: list[str]) -> str:
    return f"{len(messages)} turn{'' if len(messages) == 1 else 's'}"


def _show(console: Terminal, text: str) -> None:
    for line in visible_lines(text):
        console.print(line, soft_wrap=True)
