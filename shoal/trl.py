"""TRL's `GRPOTrainer` in a swarm, by its `rollout_func` (TRL 1.16).

    prompts ─▶ own completions ──▶ published, verified ──▶ ┐
            └▶ places of others ◀─ drawn, verified, read ──┴─▶ ids and rewards ─▶ TRL's update

TRL takes no advantages from a `rollout_func`. It makes them from the rewards of each
`num_generations` rows, by the formula that is our default (`choice.advantage`). So a group
of another node stands in the place of a prompt's own rows, with rewards by the verifier here. Of
these, what is not better than its group has a mask of zeros: it sets the advantages of the others
and is not trained on, as in a node (`positive`, docs/losses.md). A place that a smaller group
leaves empty holds a row without a reward, which TRL leaves out.
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
"""Beside TRL's checkpoints: the groups of others that the newest one has learnt from."""
_LOOK: Final = 4
"""Groups drawn ahead and looked at for each place, at most: many have nothing to learn from."""

Prompt = str | list[dict[str, str]]
_Scored = tuple[LeasedGroup, list[float]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Row:
    """One completion as TRL takes it."""

    prompt_ids: list[int]
    ids: list[int]
    reward: float | None
    """None where TRL is to leave the row out."""
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
    """A trainer's place in a swarm, whichever of TRL's trainers it is."""

    def __init__(self, swarm: Swarm) -> None:
        self._swarm = swarm
        self.num_external = 0
        """Groups of others that the trainer was given."""

    @abstractmethod
    def _do(self, call: Callable[..., T], *given: Any, **named: Any) -> T:
        """Make a call of the swarm, when no other one is under way."""

    @abstractmethod
    def _trained_on(self) -> list[GroupId]:
        """Groups of others that no checkpoint has yet."""

    @abstractmethod
    def settle(self) -> None:
        """Acknowledge what was trained on: a checkpoint has it."""

    def end(self) -> None:  # noqa: B027 - leases may end by themselves
        """Give back what will not be trained on; what is left ends with the connection."""

    def begin(self, path: Path, step: int) -> None:
        """Tell the node again what the checkpoint has that a training goes on from."""
        try:
            state = json.loads(path.read_text())
            groups = [GroupId(bytes.fromhex(one)) for one in state["groups"]]
            is_older = state["step"] <= step
        except (OSError, ValueError, LookupError, TypeError):
            return
        if is_older:
            self._do(self._swarm.acknowledge, groups)

    def note(self, path: Path, step: int) -> None:
        """Write which groups of others the checkpoint of a step is about to have."""
        self._do(self._note, path, step, self._trained_on())

    def _note(self, path: Path, step: int, groups: Sequence[GroupId]) -> None:
        self._swarm.publish([])  # waits for the disk: no round in a checkpoint is made again
        path.parent.mkdir(parents=True, exist_ok=True)
        ids = [one.hex() for one in (*self._swarm.unconfirmed, *groups)]
        write_atomically(path, json.dumps({"step": step, "groups": ids}).encode())

    def _publish(
        self, groups: Sequence[Group], args: Any, *, author: str, version: int, top_k: int = 0
    ) -> None:
        """Publish what of the groups peers accept; `args` are the trainer's."""
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


def read_of_another(
    reads: TrlReader, group: LeasedGroup, rewards: Sequence[float], room: int
) -> list[tuple[Retokenized, float]]:
    """Return a group of another as the tokenizer reads it; none where nothing can be learnt.

    Only completions that it reads as the same text, whole, are taken. A question in a peer's own
    words is not: TRL's tokenizer would take special tokens from it.
    """
    if group.source.group.task.inline is not None:
        return []
    tagged, is_code = group.question.tagged, group.question.is_code
    read = [
        (reading, reward)
        for completion, reward in zip(group.answers, rewards, strict=True)
        if (reading := retokenize(cast(Policy, reads), completion, tagged, room, is_code=is_code))
    ]
    return read if has_signal([reward for _, reward in read]) else []


class Rollouts(Sharing):
    """Shares a `GRPOTrainer`'s completions with a swarm, and gives it groups of others.

    It is the trainer's `rollout_func`, its method `reward` the reward, `dataset` the prompts.
    Groups of others are acknowledged when a checkpoint has them, and at the end of the training.
    """

    def __init__(
        self,
        swarm: Swarm,
        *,
        external: int | None = None,
        prompt: Callable[[Question], Prompt] | None = None,
        author: str = "",
    ) -> None:
        """Join a swarm with one trainer.

        Args:
            swarm: From `shoal.connect`.
            external: Groups of others in a generation batch, at most; half of its groups if None.
            prompt: Makes a prompt of a question; the chat of `Swarm.messages` if None.
            author: The model's name, told to peers; by the model's configuration if empty.
        """
        super().__init__(swarm)
        self._external, self._author = external, author
        self._prompt: Callable[[Question], Prompt] = prompt or swarm.messages
        self._questions: dict[str, Question] = {}
        self._pending: list[GroupId] = []
        """Trained on, in no checkpoint yet."""
        self._calls = ThreadPoolExecutor(1, thread_name_prefix="shoal")
        """Makes the swarm's calls one after another. TRL computes while the node answers."""
        self._later: list[Future[Any]] = []
        """Calls that nobody has waited for yet."""
        self._ahead: Future[list[_Scored]] | None = None
        """Groups of others that are drawn for the next batch while TRL trains on this one."""
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
        """Return the rewards that the rollouts came with: the trainer's reward function."""
        return list(shoal_reward)

    def __call__(self, prompts: list[Prompt], trainer: Any) -> dict[str, Any]:
        """Answer prompts, as TRL asks of a `rollout_func`.

        Raises:
            SwarmError: a prompt that is not of `dataset`, or a trainer of several processes.
        """
        if trainer.accelerator.num_processes > 1:
            raise SwarmError(
                "a swarm is joined by a trainer of one process: start it without others"
            )
        if not trainer.model.training:
            rows = self._own(prompts, trainer, trainer.num_generations_eval, share=False)
            return _output(rows)
        self._begin(trainer)
        size = trainer.num_generations
        num_groups = len(prompts) // size
        places = num_groups // 2 if self._external is None else min(self._external, num_groups)
        if self._ahead is None and not self._ready:
            self._draw_ahead(places)  # the first batch: it waits for them
        others = self._others(places, size, trainer)
        kept = len(prompts) - len(others)
        own = self._own(prompts[:kept], trainer, size, share=True) if kept else []
        self._draw_ahead(places)
        return _output([*own, *others])

    def _draw_ahead(self, places: int) -> None:
        """Draw what the next batch may need, while TRL computes."""
        missing = _LOOK * places - len(self._ready)
        if missing > 0:
            self._ahead = self._calls.submit(self._draw, missing)

    def _do(self, call: Callable[..., T], *given: Any, **named: Any) -> T:
        """Make a call of the swarm after those that were put off; raises what one of them did."""
        found = self._calls.submit(call, *given, **named).result()
        later, self._later = self._later, []
        for one in later:
            one.result()
        return found

    def _begin(self, trainer: Any) -> None:
        """Listen for checkpoints, and tell the node again what the one that was loaded has."""
        if self._has_begun:
            return
        self._has_begun = True
        path = Path(trainer.args.output_dir) / STATE_FILE
        trainer.add_callback(settling(self, path))
        self.begin(path, trainer.state.global_step)

    def _trained_on(self) -> list[GroupId]:
        return self._pending

    def settle(self) -> None:
        """Acknowledge what was trained on: a checkpoint has it."""
        self._do(self._swarm.acknowledge, self._pending)
        self._pending.clear()

    def end(self) -> None:
        """Give back what was drawn ahead and not trained on."""
        self._take_ahead()
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
        """Publish what of the groups peers accept, while TRL computes."""
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
        self._later.append(self._calls.submit(publish))

    def _others(self, places: int, size: int, trainer: Any) -> list[_Row]:
        """Draw groups of others until the places are filled, or nothing more is there."""
        rows: list[_Row] = []
        left = _LOOK * places
        while len(rows) < places * size and left > 0:
            drawn = self._next(min(left, places - len(rows) // size))
            if not drawn:
                break
            left -= len(drawn)
            of_no_use = []
            for group, rewards in drawn:
                if found := self._rows(group, rewards, size, trainer):
                    rows += found
                    self._pending.append(group.id)
                    self.num_external += 1
                else:
                    of_no_use.append(group)
            if of_no_use:
                self._later.append(self._calls.submit(self._swarm.acknowledge, of_no_use))
        return rows

    def _next(self, count: int) -> list[_Scored]:
        """Return up to so many groups of those that were drawn ahead; none to wait for."""
        self._take_ahead()
        return [self._ready.popleft() for _ in range(min(count, len(self._ready)))]

    def _take_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._ready.extend(ahead.result())

    def _draw(self, count: int) -> list[_Scored]:
        """Draw and verify; within the thread of the swarm's calls."""
        drawn = self._swarm.draw(count)
        return list(zip(drawn, self._swarm.verify(drawn), strict=True)) if drawn else []

    def _rows(
        self, group: LeasedGroup, rewards: Sequence[float], size: int, trainer: Any
    ) -> list[_Row]:
        """Return a group of another as `size` rows; none where there is nothing to learn from."""
        read = read_of_another(_reads(trainer), group, rewards, trainer.max_completion_length)
        if not read:
            return []
        chosen = _with_signal(read, size)
        (prompt_ids,), _, _ = trainer._tokenize_prompts([self._prompt(group.question)])
        advantages = group_advantages([reward for _, reward in chosen])
        rows = [
            _row(prompt_ids, reading, reward, is_taught=advantage > 0)
            for (reading, reward), advantage in zip(chosen, advantages, strict=True)
        ]
        blank = _Row(prompt_ids, rows[0].ids, None, [0] * len(rows[0].ids), rows[0].logprobs)
        return [*rows, *[blank] * (size - len(rows))]

    def _question(self, prompt: Prompt) -> Question:
        question = self._questions.get(_key(prompt))
        if question is None:
            raise SwarmError("a prompt is not of this swarm: train on Rollouts.dataset(…)")
        return question


def _with_signal(
    read: Sequence[tuple[Retokenized, float]], size: int
) -> Sequence[tuple[Retokenized, float]]:
    """Return at most `size` of them, the first ones, among which two rewards differ."""
    first, rest = read[:size], read[size:]
    if has_signal([reward for _, reward in first]):
        return first
    return [*first[:-1], next(one for one in rest if one[1] != first[0][1])]


def _row(prompt_ids: list[int], reading: Retokenized, reward: float, *, is_taught: bool) -> _Row:
    num = len(reading.ids)
    unscored_mask = reading.unscored_mask or (False,) * num
    mask = [int(is_taught and not skipped) for skipped in unscored_mask]
    # A number that is not known: TRL's correction for another engine's sampling leaves it out.
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
    """Return what was sampled as text, special tokens visible but for the end."""
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


def settling(rollouts: Sharing, path: Path) -> Any:
    """Return the callback of `transformers` that settles groups as checkpoints are written."""
    base: Any = importlib.import_module("transformers").TrainerCallback

    class AckOnSave(base):
        def on_train_begin(self, _args: Any, state: Any, *_given: Any, **_: Any) -> None:
            rollouts.begin(path, state.global_step)

        def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
            if control.should_save:  # before the weights are: it may die between the two
                rollouts.note(path, state.global_step)

        def on_save(self, *_given: Any, **_: Any) -> None:
            rollouts.settle()

        def on_train_end(self, *_given: Any, **_: Any) -> None:
            rollouts.settle()
            rollouts.end()

    return AckOnSave()
