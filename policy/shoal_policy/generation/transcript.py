"""A game in text alone, for servers that speak no token ids. No tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shoal_policy.rollouts import Answer, Question
from shoal_tasks.turns import SEPARATOR, join_messages
from shoal_tasks.types import Play, PlayRequest
from shoal_wire.types import FinishReason

PlayGames = Callable[[Sequence[PlayRequest]], list[Play]]
"""Returns environments' answers to the beginnings of games: `tasks.TaskSource.play`."""


def no_games(requests: Sequence[PlayRequest]) -> list[Play]:
    """The `PlayGames` of a swarm without games."""
    return [Play(observations=(), done=False, reward=0.0, error="no games") for _ in requests]


@dataclass(slots=True, kw_only=True)
class Conversation:
    """The messages of one answer while it is made: a question's one, or a game's."""

    question: Question
    messages: list[str] = field(default_factory=list)
    ended: FinishReason | None = None
    """The reason why it ended; None while it goes on. STOP says that a game's environment ended it,
    LENGTH that it did not: the messages that a game has are used up, or the environment failed."""

    def hear(self, play: Play) -> str | None:
        """Return what the environment answered to the latest message; None where it goes no
        further, for the reason that `ended` names then."""
        answered = not play.error and len(play.observations) >= len(self.messages)
        if answered and play.done:
            self.ended = FinishReason.STOP
        elif not answered or len(self.messages) >= self.question.max_turns:
            self.ended = FinishReason.LENGTH
        return play.observations[-1] if self.ended is None else None

    @property
    def request(self) -> PlayRequest:
        """The request to its environment."""
        return PlayRequest(task=self.question.coordinates, messages=tuple(self.messages))


@dataclass(slots=True, kw_only=True)
class Transcript(Conversation):
    """One answer of a server: a question's, or a game's while it is played."""

    number: int
    """The question's place among all that are asked."""
    observations: list[str] = field(default_factory=list)
    counted: int = 0
    """Tokens, by the server's count."""

    def add_message(self, answer: Answer) -> None:
        """Append what the server's model said."""
        text, self.counted = answer.text, self.counted + answer.num_tokens
        if not self.question.max_turns or answer.finish_reason is FinishReason.LENGTH:
            self.ended = answer.finish_reason
        if self.question.max_turns and SEPARATOR in text:
            # Nobody could tell it from two messages: only what stands before it was said.
            text, self.ended = text.split(SEPARATOR, 1)[0], FinishReason.LENGTH
        self.messages.append(text)

    def add_play(self, play: Play) -> None:
        """Append what the environment answered, or end the game."""
        if (heard := self.hear(play)) is not None:
            self.observations.append(heard)

    def answer(self) -> Answer:
        """Return it as one of a group's answers."""
        return Answer(
            ids=(),
            text=join_messages(self.messages),
            finish_reason=self.ended or FinishReason.LENGTH,
            logprobs=(),
            counted=self.counted,
        )
