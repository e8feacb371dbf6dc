"""A game as text, for servers without token ids. No tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shoal_policy.rollouts import Answer, Question
from shoal_tasks.turns import SEPARATOR, join_messages
from shoal_tasks.types import Play, PlayRequest
from shoal_wire.types import FinishReason

PlayGames = Callable[[Sequence[PlayRequest]], list[Play]]
"""Returns environments' replies to the first messages of games: `tasks.TaskSource.play`."""


def no_games(requests: Sequence[PlayRequest]) -> list[Play]:
    """The `PlayGames` of a swarm without games."""
    return [Play(observations=(), done=False, reward=0.0, error="no games") for _ in requests]


@dataclass(slots=True, kw_only=True)
class Conversation:
    """The messages of one answer in progress: one for a question, several for a game."""

    question: Question
    messages: list[str] = field(default_factory=list)
    ended: FinishReason | None = None
    """The reason for its end; None while it continues. STOP: the environment ended it. LENGTH: the
    game's messages are used up, or the environment failed."""

    def observe(self, play: Play) -> str | None:
        """Return the environment's reply to the latest message; None if the game has ended, and
        set `ended` to the reason."""
        answered = not play.error and len(play.observations) >= len(self.messages)
        if answered and play.done:
            self.ended = FinishReason.STOP
        elif not answered or len(self.messages) >= self.question.max_turns:
            self.ended = FinishReason.LENGTH
        return play.observations[-1] if self.ended is None else None

    @property
    def request(self) -> PlayRequest:
        """Return the request to its environment."""
        return PlayRequest(task=self.question.coordinates, messages=tuple(self.messages))


@dataclass(slots=True, kw_only=True)
class Transcript(Conversation):
    """One answer of a server: to a question, or a game in progress."""

    number: int
    """Index of the question in the request."""
    observations: list[str] = field(default_factory=list)
    counted: int = 0
    """Tokens, as counted by the server."""

    def add_message(self, answer: Answer) -> None:
        """Append a message of the server's model."""
        text, self.counted = answer.text, self.counted + answer.num_tokens
        if not self.question.max_turns or answer.finish_reason is FinishReason.LENGTH:
            self.ended = answer.finish_reason
        if self.question.max_turns and SEPARATOR in text:
            # It would look like two messages, so only the part before it is kept.
            text, self.ended = text.split(SEPARATOR, 1)[0], FinishReason.LENGTH
        self.messages.append(text)

    def add_play(self, play: Play) -> None:
        """Append the environment's observation, or end the game."""
        if (observation := self.observe(play)) is not None:
            self.observations.append(observation)

    def answer(self) -> Answer:
        """Return it as one of a group's answers."""
        return Answer(
            ids=(),
            text=join_messages(self.messages),
            finish_reason=self.ended or FinishReason.LENGTH,
            logprobs=(),
            counted=self.counted,
        )
