"""`shoal tasks GAME --play --model M`: a model plays one game of an environment in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.policy_flags import newest_checkpoint_in, policy_of_checkpoint, policy_of_model
from shoal.tasks.play import end_line, require_game
from shoal_base.terminal import Terminal
from shoal_settings.exits import fail
from shoal_settings.real_models import TOKENS
from shoal_tasks.families import coordinates
from shoal_tasks.spec import FamilySpec
from shoal_tasks.turns import split_messages
from shoal_tasks.types import Play, PlayRequest
from shoal_tasks.worker.sync import SyncTaskWorker

if TYPE_CHECKING:
    from shoal_policy.model.loading import Policy


def play_by_model(
    console: Terminal, spec: FamilySpec, seed: int, *, model: str, prompt: str
) -> None:
    """Print a game while a model plays. Raises UsageExit: an unusable model, or not a game."""
    require_game(spec)
    with Terminal(stderr=True).status("loading the model"):
        policy = _policy(model, prompt)
    # Late: torch takes seconds to import, and only this needs it.
    from shoal_policy.generation.generator import GenerationRequest
    from shoal_policy.generation.local_generator import LocalGenerator
    from shoal_policy.tasks import TaskSource
    from shoal_wire.types import SamplingParams

    with SyncTaskWorker([spec]) as worker:
        tasks = TaskSource(worker, [spec])
        at = coordinates(spec, seed)
        (first,) = worker.questions([at])
        shown = _Shown(console, tasks.play)
        console.print_lines(first)
        groups = LocalGenerator().generate(
            GenerationRequest(
                questions=[tasks.question(at, first)],
                policy=policy,
                play=shown.play,
                policy_version=0,
                num_completions=1,
                sampling=SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=TOKENS),
                seed=seed,
            )
        )
        if not groups:
            raise fail(
                "tasks", f"{model} has too short a context for this game's first observation"
            )
        (answer,) = groups[0].answers
        messages = split_messages(answer.text)
        shown.show(messages)
        ((reward,),) = tasks.verify_own(groups)
        end_line(console, len(messages), reward, is_over=str(answer.finish_reason) == "stop")


class _Shown:
    """Prints each turn when the environment is called."""

    def __init__(self, console: Terminal, play: Any) -> None:
        self._console = console
        self._play = play
        self._num_shown = 0

    def play(self, requests: Sequence[PlayRequest]) -> list[Play]:
        self.show(requests[0].messages)
        plays: list[Play] = self._play(requests)
        if plays[0].error:
            raise fail("tasks", plays[0].error)
        self._console.print_lines(plays[0].observations[-1])
        return plays

    def show(self, messages: Sequence[str]) -> None:
        """Print the messages that were not printed yet: the last one may have no answer."""
        for message in messages[self._num_shown :]:
            self._console.print()
            self._console.print_lines(message, head="> ")
        self._num_shown = len(messages)


def _policy(name: str, prompt: str) -> Policy:
    """Load a model, a checkpoint, or the newest checkpoint of a node's folder."""
    path = Path(name)
    if (path / "checkpoints").is_dir():
        newest = newest_checkpoint_in("tasks", path)
        if newest is None:
            raise fail("tasks", f"{name} has no checkpoint yet")
        path = newest
    if (path / "state.json").is_file():
        return policy_of_checkpoint("tasks", path)
    return policy_of_model("tasks", name, prompt=prompt)
