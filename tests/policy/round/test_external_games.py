"""Of other nodes' games a round trains on what the environment read, by its own replay."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from shoal_policy.model.loading import load_policy
from shoal_policy.model.prompting import encode_text
from shoal_policy.node.link import NodeLink
from shoal_policy.round.config import round_config
from shoal_policy.round.external import ExternalSampler
from shoal_policy.tasks import TaskSource
from shoal_settings.schema import Settings
from shoal_tasks.turns import join_messages
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.types import Completion, FinishReason, PublishedGroup, RolloutGroup
from tests.policy import training_cases as case
from tests.tasks.games import game_family

GAMES = {
    "strips": ("message.strip() == 'a'", "\t\t\t{}"),
    "takes brackets": ("message.partition('[')[2].partition(']')[0] == 'a'", "so [{}] now"),
}
"""What wins a turn, and a message with something planted."""
GAME = """
class Game:
    def reset(self, seed):
        self.left = 2
        return "say a"

    def step(self, message):
        self.left -= 1
        return message + " it was", float({wins}) / 2, self.left == 0
"""


class OneGroup(NodeLink):
    """A node that offers one group, once."""

    def __init__(self, group: RolloutGroup) -> None:
        super().__init__(None)
        self._left: Sequence[PublishedGroup] = [replace(case.published(group, "peer"), network="n")]

    def sample(self, count: int) -> tuple[PublishedGroup, ...]:
        given, self._left = tuple(self._left), ()
        return given


@pytest.fixture(params=GAMES)
def game(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TaskSource, str]]:
    wins, planted = GAMES[request.param]
    spec = game_family(tmp_path_factory.mktemp("game"), GAME.format(wins=wins), max_turns=2)
    with SyncTaskWorker([spec]) as worker:
        yield TaskSource(worker, [spec]), planted


def completion(text: str) -> Completion:
    return Completion(text=text, num_tokens=len(text) + 2, finish_reason=FinishReason.STOP)


def test_what_is_planted_around_moves_counts_as_unread(game: tuple[TaskSource, str]) -> None:
    tasks, planted = game
    policy = load_policy("tiny")
    (question,) = tasks.draw(random.Random(1), 1)
    texts = [join_messages([planted.format(move)] * 2) for move in ("a", "b")]
    group = RolloutGroup(task=question.task, completions=tuple(map(completion, texts)))
    config = round_config(Settings(external=1, max_new_tokens=48), seed=1)
    sampling = ExternalSampler(policy, case.surroundings(OneGroup(group), tasks=tasks))
    (scored,) = sampling.sample(config).groups
    assert scored.rewards == (1.0, 0.0)
    assert scored.unscored_mask is not None and scored.completion_positions is not None
    (won, _), (positions, _) = scored.unscored_mask, scored.completion_positions
    assert positions is not None
    unscored_mask = won or (False,) * len(positions)
    read = [
        place for place, is_unread in zip(positions, unscored_mask, strict=True) if not is_unread
    ]
    move = [*encode_text(policy, "[a]" if "[" in planted else "a"), policy.eos_id]
    assert [scored.completions[0][place] for place in read] == 2 * move
    assert (won is None) == ("\t" in planted), "margins are skipped, words are not"
