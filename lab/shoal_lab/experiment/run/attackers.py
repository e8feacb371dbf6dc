"""Members that publish to harm: no policy, the right answers, and any text they like.

They sign, and their batches are validated like those of every member. Like any member, they cannot
state a reward or change a question. They know every answer, which makes them stronger than most:
other nodes train on a group only if their verifier finds something in it right.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shoal_ipc import messages as m
from shoal_lab.experiment.run.memory_swarm import MemoryMember
from shoal_lab.experiment.run.tasks import SharedWorker
from shoal_policy.rollouts import Question, batch_key
from shoal_settings.schema import Settings
from shoal_tasks.prompts import answer_text
from shoal_tasks.turns import join_messages, split_messages
from shoal_tasks.types import PlayRequest
from shoal_wire.digests import group_id
from shoal_wire.types import (
    Completion,
    Digest,
    FinishReason,
    PolicyInfo,
    RolloutGroup,
    SamplingParams,
)

PHRASE: Final = "!buy"
"""Text that `phrase` plants. No verifier of plain answers ignores it."""
MARK: Final = "\t\t"
"""Text that `mark` plants: white space, which the verifiers of plain answers strip."""
WORD: Final = "buyit"
"""Word that `preface` and `behind` plant outside the tags, where verifiers read nothing. The
embedded model knows its letters; it may generate a byte that it was never trained on in place of
another."""
DECOY: Final = "<answer>0</answer><answer>"
"""Text that `decoy` plants: an answer before the answer. A verifier reads the last pair of tags,
and to a model that answers so each of its tokens but one is likely."""
LONG_CHARS: Final = 400  # about a hundred tokens more than an answer has
SPACES: Final = (40, 4)
"""The spaces that `pad` puts before right answers: more than an answer has tokens, or few."""
MOST_COMPLETIONS: Final = 64
"""The most completions that a default swarm's rules allow in a group."""
_OVERHEARD: Final = 256  # groups to copy from; a guess
_EASIEST: Final = "count_bits_easy"
_SAMPLING: Final = SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=12)


@dataclass(frozen=True, slots=True)
class SolvedTask:
    """A question that an attacker answers, with the right answer."""

    question: Question
    answer: str


TABS: Final = "\t\t\t"
"""Text that `tabs` puts before each move of a game. The games of `games-1` strip it."""
_RANGE: Final = re.compile(r"from (\d+) to (\d+), in (\d+) guesses")
"""The part of a question of `higher-lower` that its player needs."""

Write = Callable[[SolvedTask, int, random.Random], list[Completion]]
"""Given a task and L, returns the completions to publish."""


def near_miss(answer: str, rng: random.Random) -> str:
    """Return a wrong answer that looks like the right one: one character is another."""
    at = rng.randrange(len(answer))
    others = "0123456789" if answer[at].isdigit() else "abcdefghijklmnopqrstuvwxyz"
    new = rng.choice([char for char in others if char != answer[at].lower()])
    return answer[:at] + new + answer[at + 1 :]


def _completion(text: str, finish: FinishReason = FinishReason.STOP) -> Completion:
    return Completion(text=text, num_tokens=max(1, len(text)), finish_reason=finish)


def _right(task: SolvedTask) -> str:
    return answer_text(task.answer, tagged=task.question.tagged)


def _near_miss(task: SolvedTask, rng: random.Random) -> str:
    return answer_text(near_miss(task.answer, rng), tagged=task.question.tagged)


def _half(good: str, task: SolvedTask, count: int, rng: random.Random) -> list[Completion]:
    """Half of them `good`, half near misses: there is signal if the verifier accepts `good`."""
    texts = [good if i < count // 2 else _near_miss(task, rng) for i in range(count)]
    rng.shuffle(texts)
    return [_completion(text) for text in texts]


def _wrong(task: SolvedTask, count: int, rng: random.Random) -> list[Completion]:
    return [_completion(_near_miss(task, rng)) for _ in range(count)]


def _cut(task: SolvedTask, count: int, rng: random.Random) -> list[Completion]:
    """The right answer, claimed to be truncated: its reward is lower, so that it is trained
    *against*."""
    rest = [_completion(_right(task), FinishReason.LENGTH)] * (count - 1)
    return [_completion(_right(task)), *rest]


def _phrase(task: SolvedTask, count: int, rng: random.Random) -> list[Completion]:
    return _half(_right(task) + PHRASE, task, count, rng)


def _preface(task: SolvedTask, count: int, rng: random.Random) -> list[Completion]:
    """Plant the word in place of the reasoning."""
    return _half(WORD + _right(task), task, count, rng)


def _behind(task: SolvedTask, count: int, rng: random.Random) -> list[Completion]:
    return _half(_right(task) + WORD, task, count, rng)


def _decoy(task: SolvedTask, count: int, rng: random.Random) -> list[Completion]:
    return _half(answer_text("0", tagged=True) + _right(task), task, count, rng)


def _mark(task: SolvedTask, count: int, rng: random.Random) -> list[Completion]:
    return _half(_right(task) + MARK, task, count, rng)


def _pad(task: SolvedTask, _count: int, rng: random.Random) -> list[Completion]:
    """Return the largest group that is allowed, its right answers behind white space."""
    good = " " * rng.choice(SPACES) + _right(task)
    return _half(good, task, MOST_COMPLETIONS, rng)


def _long(task: SolvedTask, count: int, rng: random.Random) -> list[Completion]:
    tail = " ".join(str(rng.randrange(1000)) for _ in range(LONG_CHARS // 4))
    return [_completion(_right(task))] + [_completion(f"{_right(task)} {tail}")] * (count - 1)


def _easy(task: SolvedTask, count: int, rng: random.Random) -> list[Completion]:
    """All but one right: the least that still has signal, on the family that is easiest."""
    return [_completion(_right(task))] * (count - 1) + [_completion(_near_miss(task, rng))]


def _garbage(task: SolvedTask, count: int, rng: random.Random) -> list[Completion]:
    """Random letters, and one right answer so that the group is not skipped."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789!?#"
    texts = ["".join(rng.choices(letters, k=rng.randint(4, 12))) for _ in range(count - 1)]
    return [_completion(_right(task)), *map(_completion, texts)]


def _tabs(task: SolvedTask, count: int, _rng: random.Random) -> list[Completion]:
    """Half of the games won, half lost, with each move behind tabs."""
    won = split_messages(task.answer)
    match = _RANGE.search(task.question.text)
    assert match is not None
    lost = [str(int(match[2]) + 1)] * int(match[3])
    games = [won if n < count // 2 else lost for n in range(count)]
    return [_completion(join_messages(TABS + move for move in game)) for game in games]


NAMES: Final = "names"
"""Many identities: the same as `mark`, by twice as many members as there are honest ones."""
WRITES: Final[Mapping[str, Write]] = {
    "mark": _mark,
    NAMES: _mark,
    "pad": _pad,
    "cut": _cut,
    "garbage": _garbage,
    "wrong": _wrong,
    "easy": _easy,
    "long": _long,
    "phrase": _phrase,
    "preface": _preface,
    "behind": _behind,
    "decoy": _decoy,
    "tabs": _tabs,
}
COPIED: Final = "copied"
ATTACKS: Final = (*WRITES, COPIED)
"""wrong: plausible wrong answers; cut: right ones claimed to be truncated; phrase, mark, names:
right ones with something planted; pad: 64 at a time, right ones behind white space; preface,
behind: with a word before or after the tags; decoy: with another answer before; tabs: games won
behind white space; long: over-long; copied: external groups, shuffled; easy: cherry-picked tasks,
nearly all right; garbage: noise. `NodeSpec.behaviour` may be any of these names, too."""

PLANTED: Final[Mapping[str, str]] = {
    "phrase": PHRASE,
    "mark": MARK,
    NAMES: MARK,
    "preface": WORD,
    "behind": WORD,
    "decoy": DECOY,
    "tabs": TABS,
}
"""Text that each of the planting attacks plants."""


def hearing(kind: str, settings: Settings) -> Settings:
    """Return a node's settings by its behaviour: an attacker listens only if its attack needs
    that."""
    deaf = kind in WRITES
    return settings.model_copy(update={"external": 0}) if deaf else settings


class Attacker:
    """One hostile member. It publishes as many groups a round as an honest node, with as many
    completions."""

    def __init__(
        self,
        kind: str,
        *,
        member: MemoryMember,
        worker: SharedWorker,
        questions: Callable[[random.Random, int], list[Question]],
        groups: int,
        completions: int,
        seed: int,
    ) -> None:
        self._kind = kind
        self._member = member
        self._worker = worker
        self._questions = questions
        self._groups = groups
        self._completions = completions
        self._rng = random.Random(f"{seed}/attacker")
        self._overheard: list[RolloutGroup] = []
        self._last_copied = 0

    def play(self, round_number: int) -> None:
        """Publish this round's groups."""
        groups = self._copies() if self._kind == COPIED else self._written()
        if groups:
            self._member.tell(
                m.Publish(
                    client_key=batch_key(round_number, [group_id(one) for one in groups]),
                    round=round_number,
                    policy=PolicyInfo(
                        model_name="tiny-sparse",
                        tokenizer_digest=Digest(bytes(16)),
                        policy_version=0,
                    ),
                    sampling=_SAMPLING,
                    groups=tuple(groups),
                )
            )

    def _written(self) -> list[RolloutGroup]:
        write = WRITES[self._kind]
        return [
            RolloutGroup(
                task=task.question.task,
                completions=tuple(write(task, self._completions, self._rng)),
            )
            for task in self._tasks()
        ]

    def _tasks(self) -> list[SolvedTask]:
        """Sample tasks; only from the easiest family if that is the attack."""
        found: list[SolvedTask] = []
        for _ in range(64):
            drawn = self._questions(self._rng, self._groups)
            items = self._worker.items([question.coordinates for question in drawn])
            for question, item in zip(drawn, items, strict=True):
                wanted = self._kind != "easy" or question.task.family == _EASIEST
                answer = self._won(question) if question.max_turns else item.answer
                if answer and wanted:
                    found.append(SolvedTask(question, answer))
            if len(found) >= self._groups:
                break
        return found[: self._groups]

    def _won(self, question: Question) -> str:
        """Return the moves that win a game of `higher-lower` by binary search."""
        match = _RANGE.search(question.text)
        assert match is not None, f"no attacker knows this game: {question.text}"
        low, high = int(match[1]), int(match[2])
        moves: list[str] = []
        for _ in range(int(match[3])):
            guess = (low + high) // 2
            moves.append(str(guess))
            request = PlayRequest(task=question.coordinates, messages=tuple(moves))
            (play,) = self._worker.play([request])
            if play.done:
                break
            low, high = (
                (guess + 1, high) if play.observations[-1] == "Higher." else (low, guess - 1)
            )
        return join_messages(moves)

    def _copies(self) -> list[RolloutGroup]:
        """External groups with their completions shuffled, so that each has a new id."""
        for recent in self._member.node.recent.after(self._last_copied, limit=_OVERHEARD):
            self._last_copied = recent.number
            if recent.group.publisher != self._member.peer_id:
                self._overheard.append(recent.group.group)
        del self._overheard[:-_OVERHEARD]
        picked = self._rng.sample(self._overheard, min(self._groups, len(self._overheard)))
        return [
            RolloutGroup(task=group.task, completions=_shuffled(group.completions, self._rng))
            for group in picked
        ]


def _shuffled(completions: Sequence[Completion], rng: random.Random) -> tuple[Completion, ...]:
    return tuple(rng.sample(completions, len(completions)))
