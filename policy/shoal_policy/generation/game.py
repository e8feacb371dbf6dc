"""One game while it is played: tokens are appended, and nothing is rendered or encoded again.

So what is trained on is what was sampled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from shoal_policy.generation.transcript import Conversation, PlayGames
from shoal_policy.model.loading import Policy
from shoal_policy.model.prompting import decode_completion, turn_ids
from shoal_policy.rollouts import Answer
from shoal_tasks.turns import SEPARATOR, join_messages
from shoal_tasks.types import Play
from shoal_wire.types import FinishReason


@dataclass(slots=True, kw_only=True)
class PlayedGame(Conversation):
    """One game while it is played; `place` is its row among all that were asked together."""

    prompt: Sequence[int]
    place: int
    ids: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def add_message(self, policy: Policy, sample: Answer) -> None:
        """Append what the policy said. One that was cut ends the game: it has no end token."""
        ids, text = list(sample.ids), sample.text
        if sample.finish_reason is FinishReason.LENGTH:
            self.ended = FinishReason.LENGTH
        if SEPARATOR in text:
            # Nobody could tell it from two messages: only what stands before it was said.
            self.ended = FinishReason.LENGTH
            ids, text = _before_separator(policy, ids)
        self.said += range(len(self.ids), len(self.ids) + len(ids))
        self.ids += ids
        self.logprobs += sample.logprobs[: len(ids)]
        self.messages.append(text)

    def add_answer(self, policy: Policy, play: Play) -> None:
        """Append what the environment answered, or end the game.

        It ends too where the model has no positions left for another message.
        """
        if (heard := self.hear(play)) is None:
            return
        ids = turn_ids(policy, heard)
        if len(self.prompt) + len(self.ids) + len(ids) >= policy.max_positions:
            self.ended = FinishReason.LENGTH
        else:
            self.ids += ids

    def answer(self) -> Answer:
        """Return it as one of a group's answers."""
        return Answer(
            ids=tuple(self.ids),
            text=join_messages(self.messages),
            finish_reason=self.ended or FinishReason.LENGTH,
            # A server may have given them of some messages alone.
            logprobs=tuple(self.logprobs) if len(self.logprobs) == len(self.said) else (),
            said=tuple(self.said),
        )


def _before_separator(policy: Policy, ids: Sequence[int]) -> tuple[list[int], str]:
    """Return the tokens that end before the separator, and the text that they say before it.

    The first token stays, whatever it says: the policy chose it, and the game ended by it.
    """
    kept = list(ids)
    while len(kept) > 1 and SEPARATOR in decode_completion(policy, kept):
        kept.pop()
    return kept, decode_completion(policy, kept).split(SEPARATOR, 1)[0]


def go_on(policy: Policy, games: Sequence[PlayedGame], play: PlayGames) -> list[PlayedGame]:
    """Play what was said; return the games that go on."""
    waiting = [game for game in games if game.ended is None]
    if not waiting:
        return []
    for game, answered in zip(waiting, play([game.request for game in waiting]), strict=True):
        game.add_answer(policy, answered)
    return [game for game in waiting if game.ended is None]


def message_seed(seed: int, place: int, turn: int) -> int:
    """The seed of what is drawn for one message; its first one is drawn with the others' first."""
    digest = hashlib.sha256(f"{seed}/{place}/{turn}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
