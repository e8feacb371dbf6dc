"""One game in progress: tokens are only appended, never rendered or encoded again.

So training uses exactly the tokens that were sampled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from shoal_policy.generation.transcript import Conversation, PlayGames
from shoal_policy.model.loading import Policy
from shoal_policy.model.prompting import decode_completion, observation_ids
from shoal_policy.rollouts import Answer
from shoal_tasks.turns import SEPARATOR, join_messages
from shoal_tasks.types import Play
from shoal_wire.types import FinishReason


@dataclass(slots=True, kw_only=True)
class PlayedGame(Conversation):
    """One game in progress; `place` is its row among all answers of the request."""

    prompt: Sequence[int]
    place: int
    ids: list[int] = field(default_factory=list)
    completion_positions: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def add_message(self, policy: Policy, sample: Answer) -> None:
        """Append a message of the policy. A truncated one ends the game: it has no end token."""
        ids, text = list(sample.ids), sample.text
        if sample.finish_reason is FinishReason.LENGTH:
            self.ended = FinishReason.LENGTH
        if SEPARATOR in text:
            # It would look like two messages, so only the part before it is kept.
            self.ended = FinishReason.LENGTH
            ids, text = _before_separator(policy, ids)
        self.completion_positions += range(len(self.ids), len(self.ids) + len(ids))
        self.ids += ids
        self.logprobs += sample.logprobs[: len(ids)]
        self.messages.append(text)

    def add_observation(self, policy: Policy, play: Play) -> None:
        """Append the environment's observation, or end the game.

        The game also ends if the model has no positions left for another message.
        """
        if (observation := self.observe(play)) is None:
            return
        ids = observation_ids(policy, observation)
        if len(self.prompt) + len(self.ids) + len(ids) >= policy.max_positions:
            self.ended = FinishReason.LENGTH
        else:
            self.ids += ids

    def answer(self) -> Answer:
        """Return the game as one of a group's answers."""
        return Answer(
            ids=tuple(self.ids),
            text=join_messages(self.messages),
            finish_reason=self.ended or FinishReason.LENGTH,
            # A server may have reported them for some messages only.
            logprobs=tuple(self.logprobs)
            if len(self.logprobs) == len(self.completion_positions)
            else (),
            completion_positions=tuple(self.completion_positions),
        )


def _before_separator(policy: Policy, ids: Sequence[int]) -> tuple[list[int], str]:
    """Return the tokens up to the separator, and the text before it.

    The first token always stays, since the policy chose it and the game ended with it.
    """
    kept = list(ids)
    while len(kept) > 1 and SEPARATOR in decode_completion(policy, kept):
        kept.pop()
    return kept, decode_completion(policy, kept).split(SEPARATOR, 1)[0]


def continue_games(
    policy: Policy, games: Sequence[PlayedGame], play: PlayGames
) -> list[PlayedGame]:
    """Replay the games in their environments; return those that continue."""
    waiting = [game for game in games if game.ended is None]
    if not waiting:
        return []
    for game, answered in zip(waiting, play([game.request for game in waiting]), strict=True):
        game.add_observation(policy, answered)
    return [game for game in waiting if game.ended is None]


def message_seed(seed: int, place: int, turn: int) -> int:
    """Return the sampling seed of turn `turn` in game `place`; first turns use the batch's seed."""
    digest = hashlib.sha256(f"{seed}/{place}/{turn}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
