"""The trainer's source of questions and rewards: the sandboxed task worker. No tensors."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from enum import StrEnum

from shoal_policy.rollouts import OwnGroup, Question
from shoal_tasks.families import example_coordinates, trial_coordinates
from shoal_tasks.prompts import Example, answer_text
from shoal_tasks.rows import read_worked_answers
from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import GroupRequest, Play, PlayRequest, ScoreResult, Split, TaskCoordinates
from shoal_tasks.wire_tasks import coordinates_of, inline_reward, make_task
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.digests import question_digest
from shoal_wire.rules import is_held_out, is_reserved
from shoal_wire.types import Completion, Digest, FinishReason, InlineTask, Task

log = logging.getLogger(__name__)

_MAX_LOGGED = 16
"""Maximum number of different reward errors logged: untrusted text may cause any number."""
_CANDIDATES_PER_EXAMPLE = 32
"""Tasks checked per example: in some families most questions are held out or skipped."""
MAX_GROUP_S = 120.0
"""Maximum time of this node's own OpenEnv server or judge for one external group, in addition to
the current answer. A guess: eight answers of an LLM that takes 10 s each, and half as much again.
"""
MAX_EXTERNAL_S = MAX_GROUP_S
"""Time after which an own server or judge begins no further external group in one call. A guess:
own answers, which only this node scores, may need as long."""


class MissingReward(StrEnum):
    """Why this node's own OpenEnv server or judge gave an external group no rewards."""

    WAITS = "waits"
    """It is unavailable, or busy with other groups: it may score this one later."""
    FAILED = "failed"
    """It took too long for this group, or scored none of its answers; it would fail again."""


def fill_zeros(rewards: list[float] | MissingReward, count: int) -> list[float]:
    """Return a group's rewards; zeros for `count` answers without rewards."""
    return [0.0] * count if isinstance(rewards, MissingReward) else rewards


class TaskSource:
    """Samples questions and verifies completions of a swarm's task families."""

    def __init__(
        self,
        worker: SyncTaskWorker,
        families: Sequence[FamilySpec],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` returns seconds."""
        self._worker = worker
        self._clock = clock
        self._families = tuple(families)
        self._by_name = {family.name: family for family in families}
        self._held_out: dict[int, list[Question]] = {}
        self._logged: set[str] = set()
        self._num_out_of_range = 0

    @property
    def num_families(self) -> int:
        """Return the number of families in the swarm."""
        return len(self._families)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the family names, in the swarm's order."""
        return tuple(self._by_name)

    def expected(self, tasks: Sequence[Task]) -> list[str | None]:
        """Return the expected answers; None if any valid one is accepted."""
        return [item.answer for item in self._worker.items([coordinates_of(one) for one in tasks])]

    def draw(self, rng: random.Random, count: int) -> list[Question]:
        """Sample `count` fresh questions, families with replacement by the swarm's weights."""
        return [self.question(at, text) for at, text in self._worker.draw(rng, count)]

    def held_out(self, per_family: int) -> list[Question]:
        """Return the evaluation's questions by family: always the same, never used in training.

        None of a family that is too small.
        """
        if per_family not in self._held_out:
            found = self._worker.held_out(per_family, families=self._families)
            self._held_out[per_family] = [self.question(at, text) for at, text in found]
        return list(self._held_out[per_family])

    def has_family_of(self, task: Task) -> bool:
        """Return whether a task is of one of these families; an inline task needs none."""
        family = self._by_name.get(task.family)
        is_known = family is not None and family.digest == task.config_digest
        return task.inline is not None or is_known

    def for_training(self, tasks: Sequence[Task]) -> list[Question | Split]:
        """Return the questions of external tasks, regenerated from their coordinates.

        For a task that is not for training, by its seed or its question, its split instead:
        `UNAVAILABLE` if this node's own server would decide that and is unavailable.
        """
        generated = [coordinates_of(task) for task in tasks if task.inline is None]
        made = iter(self._worker.questions_and_splits(generated) if generated else ())
        found: list[Question | Split] = []
        for task in tasks:
            if task.inline is not None:
                text, part = task.inline.question, self._part_of_inline(task.inline)
            else:
                text, part = next(made)
                part = Split.HELD_OUT if is_reserved(task) else part
            found.append(self._as_question(task, text) if part is Split.TRAINING else part)
        return found

    def _as_question(self, task: Task, text: str) -> Question:
        return Question(
            task=task,
            text=text,
            tagged=self._tagged(task.family),
            system=self.system(task.family),
            max_turns=self.max_turns(task.family) if task.inline is None else 0,
            is_code=task.inline is None and self._runs_code(task.family),
        )

    def _part_of_inline(self, task: InlineTask) -> Split:
        """Return the split of a free-text question, compared with all held-out questions."""
        known = {one.text for questions in self._held_out.values() for one in questions}
        is_kept = is_held_out(Digest(question_digest(task.question))) or task.question in known
        return Split.HELD_OUT if is_kept else Split.TRAINING

    def examples(self, count: int) -> dict[str, list[Example]]:
        """Return up to `count` worked examples per family, no question twice: always the same.

        Their answers differ as far as possible, since a model repeats what it sees most. Empty if
        the generator, or the row, has no answer to show.
        """
        found = {}
        for family in self._families:
            chosen = self._training_only(
                example_coordinates(family, _CANDIDATES_PER_EXAMPLE * count)
            )
            tagged = self._tagged(family.name)
            worked = read_worked_answers(family) if tagged else {}
            shown: dict[str, Example] = {}
            for item in self._worker.items(chosen) if chosen else ():
                if item.example:
                    lead = worked.get(item.question)
                    text = answer_text(item.example, tagged=tagged)
                    text = f"{lead}\n{text}" if lead else text
                    shown[item.question] = Example(question=item.question, answer=text)
            first = {one.answer: one for one in reversed(shown.values())}
            others = [one for one in shown.values() if one is not first[one.answer]]
            answered = sorted(first.values(), key=list(shown.values()).index)
            found[family.name] = [*answered, *others][:count]
        return found

    def trials(self, family: str, count: int) -> list[Question]:
        """Return a family's trial questions: always the same, neither shared nor trained on.

        For a file of rows they are training rows, since it has no others.
        """
        candidates = trial_coordinates(self._by_name[family], _CANDIDATES_PER_EXAMPLE * count)
        chosen = self._training_only(candidates)[:count]
        texts = self._worker.questions(chosen) if chosen else []
        return [self.question(at, text) for at, text in zip(chosen, texts, strict=True)]

    def _training_only(self, chosen: Sequence[TaskCoordinates]) -> list[TaskCoordinates]:
        """Return the coordinates whose split is training."""
        parts = self._worker.parts(chosen) if chosen else []
        return [at for at, part in zip(chosen, parts, strict=True) if part is Split.TRAINING]

    def digest(self, family: str) -> str:
        """Return the digest of a family's configuration; 32 hexadecimal digits."""
        return self._by_name[family].digest.hex()

    def play(self, requests: Sequence[PlayRequest]) -> list[Play]:
        """Return environments' replies to the first messages of games, in order."""
        plays = self._worker.play(requests) if requests else []
        for request, one in zip(requests, plays, strict=True):
            self._log_error(request.task.family, one.error)
        return plays

    def verify_own(self, groups: Sequence[OwnGroup]) -> list[list[float]]:
        """Return the rewards of own groups, one list per group; zeros without rewards."""
        answered = [
            (group.question.task, [(a.text, a.finish_reason) for a in group.answers])
            for group in groups
        ]
        verified = self._verify(answered, group_s=math.inf, all_s=math.inf)
        counts = [len(group.answers) for group in groups]
        return list(map(fill_zeros, verified, counts))

    def verify(
        self, groups: Sequence[tuple[Task, Sequence[Completion]]]
    ) -> list[list[float] | MissingReward]:
        """Return the rewards of external groups by this node's own verifier (SAPO, Alg. 1).

        An own OpenEnv server or judge has `MAX_GROUP_S` per group; groups not begun within
        `MAX_EXTERNAL_S` wait.
        """
        answered = [
            (task, [(c.text, c.finish_reason) for c in completions]) for task, completions in groups
        ]
        return self._verify(answered, group_s=MAX_GROUP_S, all_s=MAX_EXTERNAL_S)

    def rewards(self, groups: Sequence[tuple[Task, Sequence[Completion]]]) -> list[list[float]]:
        """Return the rewards as `verify` does, with zeros for groups without rewards."""
        return list(map(fill_zeros, self.verify(groups), [len(each) for _, each in groups]))

    def _verify(
        self,
        groups: Sequence[tuple[Task, Sequence[tuple[str, FinishReason]]]],
        *,
        group_s: float,
        all_s: float,
    ) -> list[list[float] | MissingReward]:
        requests = [
            None
            if task.inline is not None
            else GroupRequest(task=coordinates_of(task), answers=tuple(answers))
            for task, answers in groups
        ]
        together = [
            one for one in requests if one and not self._is_scored_one_by_one(one.task.family)
        ]
        results = iter(self._score(together))
        until = self._clock() + all_s
        found: list[list[float] | MissingReward] = []
        for (task, answers), each in zip(groups, requests, strict=True):
            if task.inline is not None:
                found.append([inline_reward(task.inline, *answer) for answer in answers])
            elif each is not None and self._is_scored_one_by_one(task.family):
                found.append(self._score_one_by_one(each, until, group_s))
            else:
                found.append([one.reward for one in next(results)])
        return found

    def _is_scored_one_by_one(self, family: str) -> bool:
        """Return whether a family is scored answer by answer, by a server, judge or unit tests."""
        spec = self._by_name.get(family)
        return spec is not None and (spec.is_local or spec.is_on_a_server or spec.runs_code)

    def _score(self, groups: Sequence[GroupRequest]) -> list[list[ScoreResult]]:
        results = self._worker.score_groups(groups) if groups else []
        for group, each in zip(groups, results, strict=True):
            for result in each:
                if not self._by_name[
                    group.task.family
                ].runs_code:  # otherwise the completion's own error
                    self._log_error(group.task.family, result.error)
                self._num_out_of_range += bool(result.note)
                self._log_note(result.note)
        return results

    def _score_one_by_one(
        self, group: GroupRequest, until: float, group_s: float
    ) -> list[float] | MissingReward:
        """Return one group's rewards by an own server or judge, answer by answer.

        If a judge fails on an answer, the whole group earns equal rewards, so that its failure
        gives no signal.
        """
        began = self._clock()
        if began > until:
            return MissingReward.WAITS
        results: dict[tuple[str, FinishReason], ScoreResult] = {}
        for answer in dict.fromkeys(group.answers):
            if self._clock() - began > group_s:
                self._warn_slow(group.task.family, group_s)
                return MissingReward.FAILED
            ((results[answer],),) = self._score([GroupRequest(task=group.task, answers=(answer,))])
            if results[answer].is_deferred and len(results) == 1:
                return MissingReward.WAITS
        judged = list(results.values())
        is_broken = [one.is_deferred or one.crashed for one in judged]
        if self._by_name[group.task.family].is_local:
            failed = [bool(one.error) or one.timed_out for one in judged]
            if all(failed) and not any(is_broken):
                return MissingReward.FAILED
            is_broken += failed
        if any(is_broken):
            return [0.0] * len(group.answers)
        return [results[answer].reward for answer in group.answers]

    def _log_error(self, family: str, error: str) -> None:
        """Warn once about each error of a reward function."""
        if error and error not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add(error)
            log.warning("the reward of %s counts as 0 where its function fails: %s", family, error)

    def take_num_out_of_range(self) -> int:
        """Return the number of rewards outside `reward_range` since the last call."""
        count, self._num_out_of_range = self._num_out_of_range, 0
        return count

    def _log_note(self, note: str) -> None:
        """Warn once about each note on a reward that may be unintended."""
        if note and note not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add(note)
            log.warning("%s", note)

    def _warn_slow(self, family: str, group_s: float) -> None:
        """Warn once per family that its server or judge is too slow."""
        if family not in self._logged:
            self._logged.add(family)
            log.warning(
                "%s: its server, judge or tests took over %.0f s for one group", family, group_s
            )

    def question(self, at: TaskCoordinates, text: str) -> Question:
        """Return an own question from its coordinates and text."""
        return self._as_question(make_task(at, text, self._by_name[at.family]), text)

    def system(self, family: str) -> str:
        """Return the family's system message; empty for none."""
        spec = self._by_name.get(family)
        return "" if spec is None else spec.system

    def max_turns(self, family: str) -> int:
        """Return the maximum number of messages in a game of this family; 0 for no game."""
        spec = self._by_name.get(family)
        return spec.max_turns if spec is not None and spec.is_environment else 0

    def _runs_code(self, family: str) -> bool:
        spec = self._by_name.get(family)
        return spec is not None and spec.runs_code

    def _tagged(self, family: str) -> bool:
        spec = self._by_name.get(family)
        is_tagged = spec is not None and spec.is_tagged
        # A game uses the format of its environment.
        return is_tagged and not self.max_turns(family)
