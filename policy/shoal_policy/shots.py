"""Chooses the worked examples before a policy's questions: given, or tried at the start.

    examples, trials ──▶ answers without, answers with ──▶ what gives signal ──▶ shots.json
    (seeds of their own)                                        a line a family, kept for restarts

A group has signal if its rewards differ: only such a group trains anything. Trials are shared with
nobody and trained on by nobody; no random state of the training is touched.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from shoal_base.files import write_atomically
from shoal_policy.choice.advantage import has_signal
from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.local import OnStep
from shoal_policy.generation.local_generator import LocalGenerator
from shoal_policy.generation.questions import template_refusals
from shoal_policy.model.examples import NO_SHOTS, Shots, ShownExamples, common_prefix
from shoal_policy.model.loading import ModelError, Policy, PromptFormat
from shoal_policy.model.prompting import encode_prompt
from shoal_policy.record.phases import Phase
from shoal_policy.rollouts import OwnGroup, Question, sampling_params
from shoal_policy.tasks import TaskSource
from shoal_policy.trainer_context import Interrupted, TrainerContext
from shoal_settings.schema import Settings
from shoal_tasks.prompts import Example
from shoal_tasks.spec import FamilySpec
from shoal_wire.types import FinishReason, SamplingParams

log = logging.getLogger(__name__)

SHOTS_FILE: Final = "shots.json"
AUTO: Final = 4
"""Examples that `auto` tries."""

SPARE = 2
"""More examples than are shown: one that is asked itself is replaced."""
_FORMAT = 1
_TRIALS = 4
"""Questions of each family that are tried, and answers to each: a guess, for the start waits."""
_MOST_TOKENS = 2048
"""Most tokens of a family's examples together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """Result of one family's trials in one form of asking."""

    signal: int
    """Number of groups whose rewards differ."""
    reward: float
    """Mean over all answers."""
    ended: float
    """Share of the answers that ended by themselves."""

    @property
    def worth(self) -> tuple[float, float, float]:
        """The order of preference: signal; then reward; then answers that ended at all."""
        return (self.signal, self.reward, self.ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The choice for a family, and the trials behind it."""

    shots: int
    without: TrialResult
    shown: TrialResult
    """Result with examples."""
    trials: int
    """Questions tried in each way."""


def with_shots(
    policy: Policy,
    settings: Settings,
    around: TrainerContext,
    *,
    keep_in: Path | None,
    has_begun: bool = False,
) -> Policy:
    """Return the policy with the examples that settings ask for, trying them if need be.

    What is tried is kept in the folder `keep_in`. A run that `has_begun` without such a file was
    trained without examples and continues without. If stopped meanwhile there are none. Raises
    ModelError where the model has no form for examples that are asked for, and what the task worker
    raises.
    """
    asked = AUTO if settings.shots == "auto" else int(settings.shots)
    if policy.prompt_format is PromptFormat.TINY:
        if settings.shots not in ("auto", "0"):
            raise ModelError(
                f"model {policy.name!r} has no form for worked examples: leave --shots out"
            )
        return policy
    if asked == 0 or (settings.shots == "auto" and settings.generator != "self"):
        return policy
    full = replace(policy, shots=shots_of(policy, around.tasks, asked))
    if settings.shots != "auto":
        return full
    kept = _Kept(keep_in, full, sampling_params(settings), settings.prompt)
    if has_begun and not kept.is_there:
        log.info("this run began without worked examples, and goes on so; --shots N shows some")
        return policy
    try:
        chosen = _chosen(full, around, kept)
    except Interrupted:
        return policy
    families = full.shots.families
    return replace(policy, shots=Shots({name: families[name] for name in chosen if chosen[name]}))


def chosen_before(folder: Path, spec: FamilySpec) -> int | None:
    """Return how many examples a node in this folder chose for a family; None where none did."""
    try:
        families = json.loads((folder / SHOTS_FILE).read_text())["families"]
        return int(families[spec.digest.hex()]["shots"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def shots_of(policy: Policy, tasks: TaskSource, count: int) -> Shots:
    """Return `count` examples of every family that has some, or as many as its prompts hold."""
    found = {}
    for family, examples in tasks.examples(count + SPARE).items():
        questions = tasks.trials(family, _TRIALS)
        if not examples or not questions:
            continue
        shown = _fitting(policy, examples, questions, count)
        if shown is not None:
            found[family] = shown
    return Shots(found)


def _fitting(
    policy: Policy, examples: Sequence[Example], questions: Sequence[Question], count: int
) -> ShownExamples | None:
    """The most examples, at most `count`, that leave room; None where not one does."""
    room = min(_MOST_TOKENS, policy.max_positions // 2)
    for number in range(min(count, len(examples)), 0, -1):
        shown = ShownExamples(count=number, examples=tuple(examples))
        first = questions[0]
        # A question of one letter: what is common ends where a question begins.
        with template_refusals(policy):
            prompts = [
                encode_prompt(
                    policy,
                    text,
                    tagged=first.tagged,
                    system=first.system,
                    examples=shown.examples[:number],
                )
                for text in ("x", *(one.text for one in questions))
            ]
        prefix = common_prefix(prompts)
        if len(prefix) <= room:
            return replace(shown, prefix=prefix)
    return None


class _Kept:
    """The trials of earlier starts, in a file beside the run."""

    def __init__(
        self, folder: Path | None, policy: Policy, sampling: SamplingParams, prompt: str
    ) -> None:
        self.sampling = sampling
        self._path = None if folder is None else folder / SHOTS_FILE
        how = [policy.name, policy.tokenizer_digest.hex(), AUTO, asdict(sampling), _FORMAT]
        # Left out where nobody asks: what was kept before there was a choice holds good.
        how += [] if prompt == "auto" else [prompt]
        self._key = hashlib.sha256(json.dumps(how).encode()).hexdigest()[:16]
        self.is_there = self._path is not None and self._path.exists()

    def read(self) -> dict[str, int]:
        """Families' digests, and the examples chosen for each; empty where nothing fits."""
        try:
            document = json.loads(self._path.read_text()) if self._path else {}
            if document["key"] != self._key:
                return {}
            return {str(name): int(one["shots"]) for name, one in document["families"].items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return {}

    def add(self, choices: Mapping[str, tuple[str, Choice]]) -> None:
        """Keep choices, by the families' digests with their names."""
        if self._path is None:
            return
        earlier: dict[str, Any] = {}
        if self.read():
            earlier = json.loads(self._path.read_text())["families"]
        made = {digest: {"family": name, **asdict(one)} for digest, (name, one) in choices.items()}
        document = {"key": self._key, "families": earlier | made}
        try:
            write_atomically(self._path, json.dumps(document, indent=1).encode())
        except OSError as error:
            # Going on, a restart would ask otherwise than the run began.
            raise ModelError(f"cannot write {self._path}: {error.strerror}") from error


def _chosen(policy: Policy, around: TrainerContext, kept: _Kept) -> dict[str, int]:
    """Return how many examples each family gets, from what was kept or tried."""
    families = policy.shots.families
    digests = {name: around.tasks.digest(name) for name in families}
    known = kept.read()
    missing = [name for name in families if digests[name] not in known]
    if missing:
        log.info("trying, once, whether worked examples help (task families: %d)", len(missing))
        choices = _try(policy, around, missing, kept.sampling)
        kept.add({digests[name]: (name, one) for name, one in choices.items()})
        known |= {digests[name]: one.shots for name, one in choices.items()}
    return {name: known[digests[name]] for name in families}


def _try(
    policy: Policy, around: TrainerContext, families: Sequence[str], sampling: SamplingParams
) -> dict[str, Choice]:
    """Ask each family's trials without examples and with. Raises Interrupted when told to stop."""
    questions = [one for name in families for one in around.tasks.trials(name, _TRIALS)]
    num_answers = len(questions) * _TRIALS
    around.phases.enter(Phase.TRYING, of=2 * num_answers)

    def step(part: int) -> OnStep:
        def heard(done: int, fraction: float) -> None:
            if around.should_stop():
                raise Interrupted
            around.phases.step(part * num_answers + done, (part + fraction) / 2)

        return heard

    bare = replace(policy, shots=NO_SHOTS)
    without = _answered(bare, around.tasks, questions, sampling, step(0))
    shown = _answered(policy, around.tasks, questions, sampling, step(1))
    choices = {}
    for name in families:
        count = policy.shots.families[name].count
        choices[name] = Choice(
            shots=count if shown[name].worth > without[name].worth else 0,
            without=without[name],
            shown=shown[name],
            trials=sum(question.task.family == name for question in questions),
        )
        log.info("%s", _line(name, count, choices[name]))
    return choices


def _line(family: str, count: int, one: Choice) -> str:
    taken = f"{one.shots} worked examples" if one.shots else "no worked examples"
    return (
        f"{family}: {taken}: signal in {one.shown.signal} of {one.trials} groups with {count}, "
        f"in {one.without.signal} without; reward {one.shown.reward:.2f} and "
        f"{one.without.reward:.2f}"
    )


def _answered(
    policy: Policy,
    tasks: TaskSource,
    questions: Sequence[Question],
    sampling: SamplingParams,
    on_step: OnStep,
) -> dict[str, TrialResult]:
    """Answer the trials, by family. A question that does not fit earns nothing."""
    groups = LocalGenerator().answer(
        GenerationRequest(
            questions=questions,
            policy=policy,
            policy_version=0,
            num_completions=_TRIALS,
            sampling=sampling,
            seed=0,
            play=tasks.play,
            on_step=on_step,
        )
    )
    found: dict[str, list[tuple[OwnGroup, list[float]]]] = {q.task.family: [] for q in questions}
    for group, rewards in zip(groups, tasks.verify_own(groups), strict=True):
        found[group.question.task.family].append((group, rewards))
    return {family: _tried(rows) for family, rows in found.items()}


def _tried(rows: Sequence[tuple[OwnGroup, list[float]]]) -> TrialResult:
    rewards = [reward for _, earned in rows for reward in earned]
    answers = [answer for group, _ in rows for answer in group.answers]
    ended = sum(answer.finish_reason is FinishReason.STOP for answer in answers)
    return TrialResult(
        signal=sum(has_signal(earned) for _, earned in rows),
        reward=sum(rewards) / max(1, len(rewards)),
        ended=ended / max(1, len(answers)),
    )
