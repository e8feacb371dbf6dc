"""`shoal answer` for games: a person plays them turn by turn."""

from __future__ import annotations

from shoal.node_link import OpenNode
from shoal_base.terminal import Terminal, styled
from shoal_base.visible import visible_name
from shoal_settings.exits import fail
from shoal_tasks.hand_made import completion_of
from shoal_tasks.spec import FamilySpec
from shoal_tasks.turns import SEPARATOR, join_messages
from shoal_tasks.types import Play, PlayRequest, TaskCoordinates
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.manifest import SwarmRules
from shoal_wire.rules import check_completion
from shoal_wire.types import Completion, FinishReason


def play_games(
    link: OpenNode,
    worker: SyncTaskWorker,
    spec: FamilySpec,
    task: TaskCoordinates,
    first: str,
    console: Terminal,
) -> list[Completion]:
    """Return the games that a person has played from one start; empty if it was skipped.

    Raises EOFError at the end of input, and UsageExit where the environment fails.
    """
    rules = link.manifest.rules
    console.print()
    console.print(visible_name(spec.name), style="bold")
    found: list[Completion] = []
    while len(found) < rules.max_completions:
        number = len(found) + 1
        if found:
            enough = number > rules.min_completions
            why = "an empty line ends" if enough else f"{rules.min_completions} games are needed"
            console.print(f"game {number} from the same start; {why}", style="dim")
        console.print_lines(first.strip())
        game = _one_game(worker, spec, task, rules, console)
        if game is not None:
            found.append(game)
        elif not found or number > rules.min_completions:
            break
    return found


def _one_game(
    worker: SyncTaskWorker,
    spec: FamilySpec,
    task: TaskCoordinates,
    rules: SwarmRules,
    console: Terminal,
) -> Completion | None:
    """Return one game; None if its first line is empty."""
    messages: list[str] = []
    while len(messages) < spec.max_turns:
        text = console.input(styled((f"turn {len(messages) + 1}:", "dim"), " "))
        if not text.strip():
            break
        fault = (
            "a message holds no U+001E" if SEPARATOR in text else _fault([*messages, text], rules)
        )
        if fault is not None:
            console.print(f"peers would refuse that: {fault}")
            continue
        messages.append(text)
        answer = _play(worker, task, messages)
        console.print_lines(answer.observations[-1].strip())
        if answer.done:
            console.print(f"the game is over: reward {answer.reward:.2f}", style="dim")
            return completion_of(join_messages(messages))
    if not messages:
        return None
    console.print("game left unfinished", style="dim")
    return completion_of(join_messages(messages), FinishReason.LENGTH)


def _fault(messages: list[str], rules: SwarmRules) -> str | None:
    fault = check_completion(completion_of(join_messages(messages)), rules)
    return None if fault is None else str(fault)


def _play(worker: SyncTaskWorker, task: TaskCoordinates, messages: list[str]) -> Play:
    (answer,) = worker.play([PlayRequest(task=task, messages=tuple(messages))])
    if answer.error:
        raise fail("answer", answer.error)
    return answer
