"""TRL's asynchronous GRPO trainer in a swarm, by its `RolloutWorkerProtocol` (TRL 1.16).

    questions ─▶ inference server ─▶ own completions ─▶ published, verified ──▶ ┐
    groups of others ─▶ verified ─▶ read as own tokens ─▶ server's log-probs ─▶ ┴─▶ TRL's queue

A thread fills the queue while TRL trains. Own completions come from the vLLM server that TRL gives
its weights to. The same server says how likely its policy finds the tokens of others, so that
TRL's ratio is that of the policy to itself, as for its own tokens.
"""

from __future__ import annotations

import importlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx

from shoal.api.groups import Group, LeasedGroup, SwarmError
from shoal.api.swarm import Swarm
from shoal.trl import (
    STATE_FILE,
    Sharing,
    TrlReader,
    completion_of_ids,
    read_of_another,
    settling,
)
from shoal_base.waits import RETRY_S
from shoal_policy.choice.advantage import group_advantages
from shoal_policy.model.loading import load_tokenizer
from shoal_policy.model.prompting import encode_prompt
from shoal_policy.rollouts import Question, public_model_name
from shoal_wire.types import GroupId

_AT_ONCE: Final = 4
"""Questions in one request to the server."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class _Taken(queue.Queue[Any]):
    """TRL's queue, which knows which groups of others were taken from it."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.of_others: dict[int, GroupId] = {}
        """Groups of others by TRL's number of them."""
        self.taken: dict[GroupId, None] = {}

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the next sample, and note whose it is."""
        sample = super().get(block, timeout)
        if sample.group_id in self.of_others:
            self.taken[self.of_others[sample.group_id]] = None
        return sample


class AsyncRollouts(Sharing):
    """Shares an `AsyncGRPOTrainer`'s completions with a swarm, and gives it groups of others.

    It is the trainer's `rollout_worker`; `callback` is one of its `callbacks`, `dataset` its
    prompts, which it counts and never reads.
    """

    def __init__(
        self, swarm: Swarm, model: str, args: Any, *, external: float = 1.0, author: str = ""
    ) -> None:
        """Join a swarm with one trainer.

        Args:
            swarm: From `shoal.connect`.
            model: The model that is trained and served, by the server's name of it.
            args: The trainer's `AsyncGRPOConfig`.
            external: Groups of others for each own group, at most.
            author: The model's name, told to peers; `model` if empty.

        Raises:
            SwarmError: a temperature other than 1, for which a server tells no log-probabilities.
        """
        if args.temperature != 1.0:
            raise SwarmError("a server tells log-probabilities at temperature 1: leave it at 1.0")
        super().__init__(swarm)
        self._model, self._args, self._external = model, args, external
        self._author = author or public_model_name(model) or "trl"
        reader = load_tokenizer(model)
        self._prompts = reader
        self._reads = TrlReader(reader.tokenizer, reader.eos_ids, min(reader.eos_ids))
        self.rollout_buffer = _Taken(args.queue_maxsize)
        self.metrics_queue: queue.Queue[dict[str, float]] = queue.Queue()
        self._lock = threading.Lock()
        """Around every call of the swarm: TRL's thread settles groups while ours draws."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shoal-rollouts", daemon=True)
        self._version = self._number = 0
        self._heard = time.monotonic()
        self._fault = ""

    def dataset(self, count: int) -> Any:
        """Return so many prompts: TRL wants a data set, and takes an epoch's length from it."""
        rows = [{"prompt": one.text} for one in self._swarm.tasks(count)]
        return importlib.import_module("datasets").Dataset.from_list(rows)

    @property
    def callback(self) -> Any:
        """The trainer callback that acknowledges groups when checkpoints are written."""
        return settling(self, Path(self._args.output_dir) / STATE_FILE)

    def start(self) -> None:
        """Begin to fill the queue. TRL calls it when the server has its weights."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, after the request that it waits for."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def update_model_version(self, model_version: int) -> None:
        """Note which weights the server has from now on."""
        self._version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Raise SwarmError where nothing was answered for so long, or nothing can be any more."""
        if not self._thread.is_alive() or time.monotonic() - self._heard > stale_after_s:
            raise SwarmError(self._fault or f"no answer from the server for {stale_after_s:.0f} s")

    def _do(self, call: Callable[..., T], *given: Any, **named: Any) -> T:
        with self._lock:
            return call(*given, **named)

    def _trained_on(self) -> list[GroupId]:
        return list(self.rollout_buffer.taken)

    def settle(self) -> None:
        """Acknowledge what TRL has taken: a checkpoint has it."""
        taken = self._trained_on()
        self._do(self._swarm.acknowledge, taken)
        for one in taken:
            del self.rollout_buffer.taken[one]

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._fill()
                except (httpx.HTTPError, LookupError, TypeError, ValueError) as error:
                    self._fault = f"{self._args.vllm_server_base_url}: {type(error).__name__}"
                    log.warning("no answers from %s: %s", self._args.vllm_server_base_url, error)
                    self._stopping.wait(RETRY_S)
        except Exception as error:  # told to TRL's thread, which asks after it
            self._fault = str(error)
            log.exception("no more rollouts")

    def _fill(self) -> None:
        """Give TRL the samples of some own groups, and of as many of others."""
        questions = self._do(self._swarm.tasks, _AT_ONCE)
        version = self._version
        for samples in self._own(questions, version):
            self._put(samples)
        self._heard = time.monotonic()
        with self._lock:
            drawn = self._swarm.draw(round(_AT_ONCE * self._external))
            rewards = self._swarm.verify(drawn) if drawn else []
        for group, earned in zip(drawn, rewards, strict=True):
            samples = self._of_another(group, earned)
            if samples:
                self.rollout_buffer.of_others[samples[0].group_id] = group.id
                self.num_external += 1
                self._put(samples)
            else:
                # Nothing can be learnt from it: it is not drawn again.
                self._do(self._swarm.acknowledge, [group])

    def _own(self, questions: Sequence[Question], version: int) -> Iterator[list[Any]]:
        """Answer questions by the server, share the answers, and yield each group's samples."""
        args, size = self._args, self._args.num_generations
        prompts = [self._prompt_ids(one) for one in questions]
        choices = self._asked(
            prompts,
            n=size,
            max_tokens=args.max_completion_length,
            temperature=args.temperature,
            top_p=args.top_p,
            return_token_ids=True,
            logprobs=0,
        )
        groups = []
        for at, question in enumerate(questions):
            mine = choices[at * size : (at + 1) * size]
            answers = [completion_of_ids(self._reads, one["token_ids"]) for one in mine]
            groups.append(Group(question, answers))
        self._do(self._publish, groups, args, author=self._author, version=version)
        rewards = self._do(self._swarm.verify, groups)
        for at, earned in enumerate(rewards):
            mine = choices[at * size : (at + 1) * size]
            rows = [
                (prompts[at], one["token_ids"], [1] * len(one["token_ids"]), said)
                for one in mine
                for said in [one["logprobs"]["token_logprobs"]]
            ]
            yield self._samples(rows, group_advantages(earned), earned, version)

    def _of_another(self, group: LeasedGroup, rewards: Sequence[float]) -> list[Any]:
        """Return a group of another as samples; none where there is nothing to learn from."""
        read = read_of_another(self._reads, group, rewards, self._args.max_completion_length)
        if not read:
            return []
        # What is not better than its group sets the others' advantages and is not trained on.
        advantages = group_advantages([reward for _, reward in read])
        taught = [
            (reading, advantage, reward)
            for (reading, reward), advantage in zip(read, advantages, strict=True)
            if advantage > 0
        ]
        prompt = self._prompt_ids(group.question)
        version = self._version
        choices = self._asked(
            [[*prompt, *reading.ids] for reading, *_ in taught],
            max_tokens=1,
            echo=True,
            logprobs=1,
            temperature=1.0,
        )
        rows = []
        for (reading, *_), choice in zip(taught, choices, strict=True):
            said = choice["logprobs"]["token_logprobs"][len(prompt) :][: len(reading.ids)]
            skipped = reading.unscored_mask or (False,) * len(reading.ids)
            rows.append((prompt, list(reading.ids), [int(not one) for one in skipped], said))
        return self._samples(
            rows, [one for _, one, _ in taught], [one for *_, one in taught], version
        )

    def _samples(
        self,
        rows: Sequence[tuple[list[int], list[int], list[int], list[float]]],
        advantages: Sequence[float],
        rewards: Sequence[float],
        version: int,
    ) -> list[Any]:
        """Return TRL's samples of a group: prompt, completion, mask and log-probabilities of it."""
        numpy: Any = importlib.import_module("numpy")
        kind = importlib.import_module(
            "trl.experimental.async_grpo.async_rollout_worker"
        ).RolloutSample
        self._number += 1
        made = []
        for row, advantage, reward in zip(rows, advantages, rewards, strict=True):
            prompt, ids, mask, said = row
            if len(said) != len(ids):
                raise ValueError("the server told another number of log-probabilities")
            before = len(prompt)
            made.append(
                kind(
                    prompt=[],
                    completion=[],
                    input_ids=numpy.asarray([*prompt, *ids], dtype=numpy.int64),
                    completion_mask=numpy.asarray([*[0] * before, *mask], dtype=numpy.int64),
                    old_log_probs=numpy.asarray([*[0.0] * before, *said], dtype=numpy.float32),
                    advantage=float(advantage),
                    model_version=version,
                    group_id=self._number,
                    metrics={"reward": float(reward)},
                    enqueued_at=time.time(),
                )
            )
        return made

    def _asked(self, prompts: Sequence[Sequence[int]], **wanted: Any) -> list[Any]:
        """Ask the server; return its choices. Raises httpx.HTTPError, LookupError, TypeError."""
        base = str(self._args.vllm_server_base_url).rstrip("/")
        body = {"model": self._model, "prompt": [list(one) for one in prompts], **wanted}
        reply = httpx.post(f"{base}/v1/completions", json=body, timeout=self._args.request_timeout)
        reply.raise_for_status()
        choices: list[Any] = sorted(reply.json()["choices"], key=lambda one: one["index"])
        if len(choices) != len(prompts) * int(wanted.get("n", 1)):
            raise ValueError("the server gave another number of answers")
        return choices

    def _prompt_ids(self, question: Question) -> list[int]:
        return encode_prompt(
            self._prompts, question.text, tagged=question.tagged, system=question.system
        )

    def _put(self, samples: Sequence[Any]) -> None:
        """Give samples to TRL, when its queue has room."""
        for sample in samples:
            while not self._stopping.is_set():
                try:
                    self.rollout_buffer.put(sample, timeout=RETRY_S)
                    self._heard = time.monotonic()
                    break
                except queue.Full:
                    self._heard = time.monotonic()
