"""TRL's `GRPOTrainer` in a swarm, by its `rollout_func` (TRL 1.16).

    prompts ─▶ own completions ──▶ published, verified ────────────▶ ┐
            └▶ external groups ◀── sampled, verified, retokenized ─┴─▶ ids, rewards ─▶ TRL's update

TRL takes no advantages from a `rollout_func`. It computes them from the rewards of each
`num_generations` rows, by the formula that is our default (`choice.advantage`). So an external
group replaces the rows of a prompt, with rewards of this node's verifier. Completions that
are not better than their group's mean have a mask of zeros: they count for the advantages and are
not trained on, as in a node (`positive`, docs/losses.md). Rows that a smaller group does not fill
have no reward, and TRL skips them.
"""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from shoal.api.groups import Group, LeasedGroup, SwarmError
from shoal.api.swarm import Swarm
from shoal_base.files import write_atomically
from shoal_policy.choice.advantage import group_advantages, has_signal
from shoal_policy.model.loading import Policy
from shoal_policy.model.retokenized import Retokenized, retokenize
from shoal_policy.rollouts import Question, public_model_name
from shoal_wire.rules import check_completion
from shoal_wire.types import Completion, FinishReason, GroupId, SamplingParams

STATE_FILE: Final = "shoal-groups.json"
"""File next to TRL's checkpoints: the external groups that the newest one was trained on."""
_MAX_SAMPLED: Final = 4
"""Groups sampled for each external group of a batch, at most: many have no signal."""

Prompt = str | list[dict[str, str]]
_Scored = tuple[LeasedGroup, list[float]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Row:
    """One completion as TRL takes it."""

    prompt_ids: list[int]
    ids: list[int]
    reward: float | None
    """None for a row that TRL skips."""
    mask: list[int]
    """1 for each token that is trained on."""
    logprobs: list[float | None] | None


@dataclass(frozen=True, slots=True)
class TrlReader:
    """The part of a policy that `shoal_policy.model.retokenized` uses."""

    tokenizer: Any
    eos_ids: frozenset[int]
    eos_id: int


class Sharing(ABC):
    """Connects one of TRL's trainers to a swarm."""

    def __init__(self, swarm: Swarm) -> None:
        self._swarm = swarm
        self.num_external = 0
        """External groups that the trainer received."""

    @abstractmethod
    def _do(self, call: Callable[..., T], *given: Any, **named: Any) -> T:
        """Call a method of the swarm, one call at a time."""

    @abstractmethod
    def _trained_on(self) -> list[GroupId]:
        """External groups that no checkpoint contains yet."""

    @abstractmethod
    def settle(self) -> None:
        """Acknowledge the groups trained on: a checkpoint contains them."""

    def end(self) -> None:  # noqa: B027 - leases may end by themselves
        """Release the groups that will not be trained on; other leases end with the connection."""

    def begin(self, path: Path, step: int) -> None:
        """Acknowledge again the groups in the checkpoint from which a training resumes."""
        try:
            state = json.loads(path.read_text())
            groups = [GroupId(bytes.fromhex(one)) for one in state["groups"]]
            is_older = state["step"] <= step
        except (OSError, ValueError, LookupError, TypeError):
            return
        if is_older:
            self._do(self._swarm.acknowledge, groups)

    def record(self, path: Path, step: int) -> None:
        """Write the external groups that the next checkpoint will contain."""
        self._do(self._write_state, path, step, self._trained_on())

    def _write_state(self, path: Path, step: int, groups: Sequence[GroupId]) -> None:
        self._swarm.publish(
            []
        )  # waits for the disk, so that no round in a checkpoint is generated again
        path.parent.mkdir(parents=True, exist_ok=True)
        ids = [one.hex() for one in (*self._swarm.unconfirmed, *groups)]
        write_atomically(path, json.dumps({"step": step, "groups": ids}).encode())

    def _publish(
        self, groups: Sequence[Group], args: Any, *, author: str, version: int, top_k: int = 0
    ) -> None:
        """Publish the parts of groups that peers accept; `args` are the trainer's."""
        rules = self._swarm.rules
        fit = [[c for c in one.answers if check_completion(c, rules) is None] for one in groups]
        self._swarm.publish(
            [
                Group(group.question, answers[: rules.max_completions])
                for group, answers in zip(groups, fit, strict=True)
                if len(answers) >= rules.min_completions
            ],
            author=author,
            version=version,
            round_number=version + 1,
            sampling=SamplingParams(
                temperature=args.temperature,
                top_p=args.top_p,
                top_k=top_k,
                max_new_tokens=args.max_completion_length,
            ),
            wait=False,
        )


def retokenize_external(
    reads: TrlReader, group: LeasedGroup, rewards: Sequence[float], max_tokens: int
) -> list[tuple[Retokenized, float]]:
    """Return an external group in own tokens, with rewards; empty if it has no signal.

    Only completions that stay the same text in own tokens are included. A question written by a
    peer is not: TRL's tokenizer would parse special tokens in it.
    """
    if group.source.group.task.inline is not None:
        return []
    tagged, is_code = group.question.tagged, group.question.is_code
    read = [
        (reading, reward)
        for completion, reward in zip(group.answers, rewards, strict=True)
        if (
            reading := retokenize(
                cast(Policy, reads), completion, tagged, max_tokens, is_code=is_code
            )
        )
    ]
    return read if has_signal([reward for _, reward in read]) else []


class Rollouts(Sharing):
    """Shares a `GRPOTrainer`'s completions with a swarm, and adds external groups to its batches.

    It is the trainer's `rollout_func`, its method `reward` the reward, `dataset` the prompts.
    External groups are acknowledged when a checkpoint contains them, and at the end of the
    training.
    """

    def __init__(
        self,
        swarm: Swarm,
        *,
        external: int | None = None,
        prompt: Callable[[Question], Prompt] | None = None,
        author: str = "",
    ) -> None:
        """Connect a trainer to a swarm.

        Args:
            swarm: From `shoal.connect`.
            external: Most external groups in a generation batch; half of its groups if None.
            prompt: Builds the prompt of a question; the chat of `Swarm.messages` if None.
            author: Model name that peers see; the one in the model's configuration if empty.
        """
        super().__init__(swarm)
        self._external, self._author = external, author
        self._prompt: Callable[[Question], Prompt] = prompt or swarm.messages
        self._questions: dict[str, Question] = {}
        self._pending: list[GroupId] = []
        """External groups trained on that no checkpoint contains yet."""
        self._calls = ThreadPoolExecutor(1, thread_name_prefix="shoal")
        """Runs the swarm's calls in order. TRL computes while the node answers."""
        self._unawaited: list[Future[Any]] = []
        """Calls whose results are not read yet."""
        self._prefetched: Future[list[_Scored]] | None = None
        """External groups sampled for the next batch while TRL trains on this one."""
        self._ready: deque[_Scored] = deque()
        self._has_begun = False

    def dataset(self, count: int, *, seed: int | None = None) -> Any:
        """Return `count` questions of the swarm as a `datasets.Dataset` with a column `prompt`."""
        rows = []
        for question in self._do(self._swarm.tasks, count, seed=seed):
            prompt = self._prompt(question)
            self._questions[_key(prompt)] = question
            rows.append({"prompt": prompt})
        return importlib.import_module("datasets").Dataset.from_list(rows)

    def reward(self, shoal_reward: Sequence[float | None], **_: Any) -> list[float | None]:
        """Return the rewards of the rollouts: the trainer's reward function."""
        return list(shoal_reward)

    def __call__(self, prompts: list[Prompt], trainer: Any) -> dict[str, Any]:
        """Generate for prompts, as TRL requires of a `rollout_func`.

        Raises:
            SwarmError: a prompt is not from `dataset`, or the trainer has several processes.
        """
        if trainer.accelerator.num_processes > 1:
            raise SwarmError("a trainer in a swarm has one process: start it with one")
        if not trainer.model.training:
            rows = self._own(prompts, trainer, trainer.num_generations_eval, share=False)
            return _output(rows)
        self._begin(trainer)
        size = trainer.num_generations
        num_groups = len(prompts) // size
        num_external = (
            num_groups // 2 if self._external is None else min(self._external, num_groups)
        )
        if self._prefetched is None and not self._ready:
            self._prefetch(num_external)  # the first batch waits for them
        external = self._external_rows(num_external, size, trainer)
        num_own = len(prompts) - len(external)
        own = self._own(prompts[:num_own], trainer, size, share=True) if num_own else []
        self._prefetch(num_external)
        return _output([*own, *external])

    def _prefetch(self, num_external: int) -> None:
        """Sample groups for the next batch, while TRL computes."""
        missing = _MAX_SAMPLED * num_external - len(self._ready)
        if missing > 0:
            self._prefetched = self._calls.submit(self._sample, missing)

    def _do(self, call: Callable[..., T], *given: Any, **named: Any) -> T:
        """Call a method of the swarm after the queued calls; raises their errors."""
        found = self._calls.submit(call, *given, **named).result()
        unawaited, self._unawaited = self._unawaited, []
        for one in unawaited:
            one.result()
        return found

    def _begin(self, trainer: Any) -> None:
        """Register the checkpoint callback, and acknowledge the groups in a loaded checkpoint."""
        if self._has_begun:
            return
        self._has_begun = True
        path = Path(trainer.args.output_dir) / STATE_FILE
        trainer.add_callback(build_ack_callback(self, path))
        self.begin(path, trainer.state.global_step)

    def _trained_on(self) -> list[GroupId]:
        return self._pending

    def settle(self) -> None:
        """Acknowledge the groups trained on: a checkpoint contains them."""
        self._do(self._swarm.acknowledge, self._pending)
        self._pending.clear()

    def end(self) -> None:
        """Release the groups that were sampled and not trained on."""
        self._take_prefetched()
        self._do(self._swarm.release, [group for group, _ in self._ready])
        self._ready.clear()

    def _own(
        self, prompts: Sequence[Prompt], trainer: Any, size: int, *, share: bool
    ) -> list[_Row]:
        """Generate as TRL itself does; share and verify."""
        prompt_ids, images, fields = trainer._tokenize_prompts(list(prompts))
        found, logprobs = trainer._generate_single_turn(prompt_ids, images, fields, size)
        reads = _reads(trainer)
        groups = [
            Group(
                self._question(prompts[at]),
                [completion_of_ids(reads, ids) for ids in found[at : at + size]],
            )
            for at in range(0, len(prompts), size)
        ]
        rewards = [reward for group in self._do(self._swarm.verify, groups) for reward in group]
        if share:
            self._share(groups, trainer)
        return [
            _Row(prompt_ids[n], list(ids), rewards[n], [1] * len(ids), logprobs and logprobs[n])
            for n, ids in enumerate(found)
        ]

    def _share(self, groups: Sequence[Group], trainer: Any) -> None:
        """Publish groups, while TRL computes."""
        config = getattr(trainer.model, "config", None)
        named = public_model_name(getattr(config, "_name_or_path", ""))
        publish = partial(
            self._publish,
            groups,
            trainer.args,
            author=self._author or named or "trl",
            version=trainer.state.global_step,
            top_k=max(0, trainer.args.top_k or 0),
        )
        self._unawaited.append(self._calls.submit(publish))

    def _external_rows(self, num_external: int, size: int, trainer: Any) -> list[_Row]:
        """Return rows of up to `num_external` sampled groups with signal."""
        rows: list[_Row] = []
        left = _MAX_SAMPLED * num_external
        while len(rows) < num_external * size and left > 0:
            sampled = self._next(min(left, num_external - len(rows) // size))
            if not sampled:
                break
            left -= len(sampled)
            without_signal = []
            for group, rewards in sampled:
                if found := self._rows(group, rewards, size, trainer):
                    rows += found
                    self._pending.append(group.id)
                    self.num_external += 1
                else:
                    without_signal.append(group)
            if without_signal:
                self._unawaited.append(self._calls.submit(self._swarm.acknowledge, without_signal))
        return rows

    def _next(self, count: int) -> list[_Scored]:
        """Return up to `count` of the groups that were sampled in advance."""
        self._take_prefetched()
        return [self._ready.popleft() for _ in range(min(count, len(self._ready)))]

    def _take_prefetched(self) -> None:
        prefetched, self._prefetched = self._prefetched, None
        if prefetched is not None:
            self._ready.extend(prefetched.result())

    def _sample(self, count: int) -> list[_Scored]:
        """Sample and verify; in the thread of the swarm's calls."""
        sampled = self._swarm.draw(count)
        return list(zip(sampled, self._swarm.verify(sampled), strict=True)) if sampled else []

    def _rows(
        self, group: LeasedGroup, rewards: Sequence[float], size: int, trainer: Any
    ) -> list[_Row]:
        """Return an external group as `size` rows; none if it has no signal."""
        read = retokenize_external(_reads(trainer), group, rewards, trainer.max_completion_length)
        if not read:
            return []
        chosen = _with_signal(read, size)
        (prompt_ids,), _, _ = trainer._tokenize_prompts([self._prompt(group.question)])
        advantages = group_advantages([reward for _, reward in chosen])
        rows = [
            _row(prompt_ids, reading, reward, is_trained=advantage > 0)
            for (reading, reward), advantage in zip(chosen, advantages, strict=True)
        ]
        blank = _Row(prompt_ids, rows[0].ids, None, [0] * len(rows[0].ids), rows[0].logprobs)
        return [*rows, *[blank] * (size - len(rows))]

    def _question(self, prompt: Prompt) -> Question:
        question = self._questions.get(_key(prompt))
        if question is None:
            raise SwarmError("a prompt is not from this swarm: train on Rollouts.dataset(…)")
        return question


def _with_signal(
    read: Sequence[tuple[Retokenized, float]], size: int
) -> Sequence[tuple[Retokenized, float]]:
    """Return at most `size` completions, the first ones, with at least two different rewards."""
    first, rest = read[:size], read[size:]
    if has_signal([reward for _, reward in first]):
        return first
    return [*first[:-1], next(one for one in rest if one[1] != first[0][1])]


def _row(prompt_ids: list[int], reading: Retokenized, reward: float, *, is_trained: bool) -> _Row:
    num = len(reading.ids)
    unscored_mask = reading.unscored_mask or (False,) * num
    mask = [int(is_trained and not skipped) for skipped in unscored_mask]
    # Unknown log-probabilities: TRL's importance-sampling correction skips them.
    return _Row(prompt_ids, list(reading.ids), reward, mask, [None] * num)


def _output(rows: Sequence[_Row]) -> dict[str, Any]:
    """Return rows as a `rollout_func` returns them."""
    has_logprobs = any(one is not None for row in rows for one in row.logprobs or ())
    return {
        "prompt_ids": [row.prompt_ids for row in rows],
        "completion_ids": [row.ids for row in rows],
        "logprobs": [row.logprobs for row in rows] if has_logprobs else None,
        "env_mask": [row.mask for row in rows],
        "shoal_reward": [row.reward for row in rows],
    }


def _reads(trainer: Any) -> TrlReader:
    ids = list(trainer.eos_token_ids)
    return TrlReader(trainer._tokenizer, frozenset(ids), ids[0])


def completion_of_ids(reads: TrlReader, ids: Sequence[int]) -> Completion:
    """Return sampled tokens as text, with special tokens except the end."""
    is_ended = bool(ids) and ids[-1] in reads.eos_ids
    text = reads.tokenizer.decode(
        ids[:-1] if is_ended else ids,
        skip_special_tokens=False,
        clean_up_tokenization_spaces=False,
    )
    finish = FinishReason.STOP if is_ended else FinishReason.LENGTH
    return Completion(text=text, num_tokens=len(ids), finish_reason=finish)


def _key(prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True)


def build_ack_callback(rollouts: Sharing, path: Path) -> Any:
    """Return the callback of `transformers` that acknowledges groups at checkpoints."""
    base: Any = importlib.import_module("transformers").TrainerCallback

    class AckOnSave(base):
        def on_train_begin(self, _args: Any, state: Any, *_given: Any, **_: Any) -> None:
            rollouts.begin(path, state.global_step)

        def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
            if control.should_save:  # before the weights: the process may end in between
                rollouts.record(path, state.global_step)

        def on_save(self, *_given: Any, **_: Any) -> None:
            rollouts.settle()

        def on_train_end(self, *_given: Any, **_: Any) -> None:
            rollouts.settle()
            rollouts.end()

    return AckOnSave()
