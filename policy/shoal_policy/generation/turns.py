"""Games played by the policy: all of a round at once, turn by turn.

    opening: L answers to each first observation ─▶ the worker plays them ─▶ what it answers is
    appended ─▶ the rows that are still playing answer ─▶ …

Tokens are built by appending: what was sampled is never rendered or encoded again, so what is
trained on is what was sampled. A row that has ended leaves at once. What a row becomes depends on
the seed and its own place alone, not on when others end.

Each turn computes its rows' whole conversation anew, and the worker replays each game from its
beginning. So a game of T equal turns forwards about T / 2 times the tokens that it ends with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shoal_policy.generation.local import OnStep, Sample
from shoal_policy.model.loading import Policy
from shoal_policy.model.prompting import decode_completion, turn_ids
from shoal_policy.rollouts import Answer, Question
from shoal_tasks.turns import SEPARATOR, join_messages
from shoal_tasks.types import Play, PlayRequest
from shoal_wire.types import FinishReason, SamplingParams

PlayGames = Callable[[Sequence[PlayRequest]], list[Play]]
"""Returns environments' answers to the beginnings of games: `tasks.TaskSource.play`."""

Generate = Callable[..., list[list[Sample]]]
"""Signature of `shoal_policy.generation.local.generate`."""


@dataclass(slots=True, kw_only=True)
class Game:
    """One game while it is played; `place` is its row among all that were asked together."""

    question: Question
    prompt: Sequence[int]
    place: int
    ids: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    ended: FinishReason | None = None
    """How it ended; None while it goes on."""

    def add_message(self, policy: Policy, sample: Sample) -> None:
        """Append what the policy said. One that was cut ends the game: it has no end token."""
        ids, text = sample.ids, sample.text
        if sample.finish_reason is FinishReason.LENGTH:
            self.ended = FinishReason.LENGTH
        if SEPARATOR in text:
            # Nobody could tell it from two messages: only what stands before it was said.
            self.ended = FinishReason.LENGTH
            ids = _before_separator(policy, ids)
            text = decode_completion(policy, ids)
        self.said += range(len(self.ids), len(self.ids) + len(ids))
        self.ids += ids
        self.logprobs += sample.logprobs[: len(ids)]
        self.messages.append(text)

    def add_answer(self, policy: Policy, play: Play) -> None:
        """Append what the environment answered, or end the game.

        STOP says that the environment ended it, LENGTH that it did not: the messages that a game
        has are used up, the model has no positions left, or the environment failed.
        """
        answered = not play.error and len(play.observations) >= len(self.messages)
        if answered and play.done:
            self.ended = FinishReason.STOP
        elif not answered or len(self.messages) >= self.question.max_turns:
            self.ended = FinishReason.LENGTH
        else:
            heard = turn_ids(policy, play.observations[-1])
            if len(self.prompt) + len(self.ids) + len(heard) >= policy.max_positions:
                self.ended = FinishReason.LENGTH
            else:
                self.ids += heard

    @property
    def request(self) -> PlayRequest:
        """The request to its environment."""
        return PlayRequest(task=self.question.coordinates, messages=tuple(self.messages))

    def answer(self) -> Answer:
        """Return it as one of a group's answers."""
        return Answer(
            ids=tuple(self.ids),
            text=join_messages(self.messages),
            finish_reason=self.ended or FinishReason.LENGTH,
            logprobs=tuple(self.logprobs),
            said=tuple(self.said),
        )


def _before_separator(policy: Policy, ids: Sequence[int]) -> list[int]:
    kept = list(ids)
    while SEPARATOR in decode_completion(policy, kept):
        kept.pop()
    return kept


def answer_all(
    policy: Policy,
    questions: Sequence[Question],
    prompts: Sequence[Sequence[int]],
    *,
    opening: Callable[[OnStep], list[list[Sample]]],
    generate: Generate,
    play: PlayGames,
    sampling: SamplingParams,
    seed: int,
    on_step: OnStep = lambda _done, _fraction: None,
) -> list[tuple[Answer, ...]]:
    """Return each question's answers: its samples, or the games that begin with them.

    `opening` draws the first answers of all questions, and is told whom to tell of its progress.
    `generate` draws the messages after it. Raises what they and `play` raise.
    """
    num_turns = max([1, *(question.max_turns for question in questions)])
    opened = opening(_part(on_step, 0, 0, num_turns))
    games: list[list[Game]] = []
    for number, (question, prompt, row) in enumerate(zip(questions, prompts, opened, strict=True)):
        games.append([])
        for index, sample in enumerate(row if question.max_turns else ()):
            place = number * len(row) + index
            game = Game(question=question, prompt=prompt, place=place)
            game.add_message(policy, sample)
            games[-1].append(game)
    everything = [game for row in games for game in row]
    total = sum(map(len, opened))
    alive = _heard(policy, everything, play)
    for turn in range(1, num_turns):
        if not alive:
            break
        samples = generate(
            policy,
            [[*game.prompt, *game.ids] for game in alive],
            num_completions=1,
            params=sampling,
            generator=[_seed(seed, game.place, turn) for game in alive],
            on_step=_part(on_step, total - len(alive), turn, num_turns),
        )
        for game, (sample,) in zip(alive, samples, strict=True):
            game.add_message(policy, sample)
        alive = _heard(policy, alive, play)
    return [
        tuple(game.answer() for game in row) or tuple(sample.as_answer() for sample in samples)
        for row, samples in zip(games, opened, strict=True)
    ]


def _heard(policy: Policy, games: Sequence[Game], play: PlayGames) -> list[Game]:
    """Play what was said; return the games that go on."""
    waiting = [game for game in games if game.ended is None]
    if not waiting:
        return []
    for game, answered in zip(waiting, play([game.request for game in waiting]), strict=True):
        game.add_answer(policy, answered)
    return [game for game in waiting if game.ended is None]


def _seed(seed: int, place: int, turn: int) -> int:
    digest = hashlib.sha256(f"{seed}/{place}/{turn}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _part(on_step: OnStep, num_over: int, turn: int, num_turns: int) -> OnStep:
    """Return the progress of one turn, as part of all: answers before the last turn may go on."""

    def told(done: int, fraction: float) -> None:
        over = num_over + (done if turn == num_turns - 1 else 0)
        on_step(over, (turn + fraction) / num_turns)

    return told
