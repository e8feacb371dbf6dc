"""Answers several requests together: those that wait and sample alike share one batch.

    request ─▶ queue ─▶ the first free thread takes all that sample alike ─▶ generate ─▶ answers
                                                        └─ tokens as they come ─▶ each request

Each prompt has a seed of its own, so an answer does not depend on what else is in its batch.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from shoal_policy.generation.local import generate
from shoal_policy.model.loading import Policy
from shoal_policy.model.prompting import decode_completion
from shoal_policy.serving.requests import ServeRequest
from shoal_wire.types import SamplingParams

MAX_BATCH_PROMPTS: Final = 64
"""Prompts in one batch: more would make the first of them wait for long."""


class _BatchEndedError(Exception):
    """No request needs further tokens of this batch."""


@dataclass(slots=True, eq=False)
class Completion:
    """One completion while it is sampled."""

    stops: tuple[str, ...]
    ids: list[int] = field(default_factory=list)
    text: str = ""
    """Text before the first stop string and before a final end token."""
    finish_reason: str | None = None
    """`stop` or `length` once it has ended."""


OnText = Callable[[int, Completion], None]
"""Called with the index of a completion and the completion, whenever it has grown or ended. Raises
`ConnectionError` or `TimeoutError` if the client is gone."""


@dataclass(slots=True, eq=False)
class _Job:
    prompts: Sequence[list[int]]
    request: ServeRequest
    on_text: OnText | None
    completions: list[Completion]
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    @property
    def key(self) -> tuple[int, SamplingParams]:
        """Options that must be equal within a batch."""
        one = self.request
        return one.num_answers, SamplingParams(
            temperature=one.temperature,
            top_p=one.top_p,
            top_k=one.top_k,
            max_new_tokens=one.max_tokens,
        )

    @property
    def needs_tokens(self) -> bool:
        return self.error is None and any(one.finish_reason is None for one in self.completions)

    @property
    def needs_text(self) -> bool:
        """True if the text is needed after every token, and not at the end alone."""
        return self.on_text is not None or bool(self.request.stops)


class Batcher:
    """Samples for one policy, one batch at a time. Threads may call it together.

    batcher = Batcher(policy)
    [completion] = batcher.sample([ids], request)
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.num_batches = 0
        self._waiting: deque[_Job] = deque()
        self.one_at_a_time = threading.Lock()
        """Held while the model runs."""

    def sample(
        self, prompts: Sequence[list[int]], request: ServeRequest, on_text: OnText | None = None
    ) -> list[Completion]:
        """Return `request.num_answers` completions of each prompt, prompt by prompt. Blocks.

        Raises what `generate` and `on_text` raise.
        """
        count = len(prompts) * request.num_answers
        job = _Job(prompts, request, on_text, [Completion(request.stops) for _ in range(count)])
        self._waiting.append(job)
        while not job.done.is_set():
            with self.one_at_a_time:
                if not job.done.is_set():
                    self._run(self._take())
        if job.error is not None:
            raise job.error
        return job.completions

    def _take(self) -> list[_Job]:
        """Remove the oldest job from the queue, and the others that sample alike."""
        first = self._waiting.popleft()
        taken, left = [first], deque[_Job]()
        total = len(first.prompts)
        while self._waiting:
            job = self._waiting.popleft()
            fits = total + len(job.prompts) <= MAX_BATCH_PROMPTS
            if (
                fits
                and job.key == first.key
                and job.request.num_answers == first.request.num_answers
            ):
                taken.append(job)
                total += len(job.prompts)
            else:
                left.append(job)
        self._waiting.extendleft(reversed(left))
        return taken

    def _run(self, jobs: Sequence[_Job]) -> None:
        """Answer these jobs. Their errors are theirs; an error of the model is that of all."""
        self.num_batches += 1
        num, params = jobs[0].key
        at = [(job, place) for job in jobs for place in range(len(job.prompts))]

        def on_tokens(prompt: int, completion: int, start: int, ids: list[int]) -> None:
            job, place = at[prompt]
            is_cut = self._grow(job, place * num + completion, start, ids)
            # Without a cut the loop ends by itself, and checks the model's numbers.
            if is_cut and not any(one.needs_tokens for one in jobs):
                raise _BatchEndedError

        try:
            if params.max_new_tokens > 0:
                generate(
                    self.policy,
                    [job.prompts[place] for job, place in at],
                    num_completions=num,
                    params=params,
                    generator=[(job.request.seed + place) % 2**63 for job, place in at],
                    on_tokens=on_tokens,
                )
        except _BatchEndedError:
            pass
        except Exception as error:  # noqa: BLE001 - raised again by each request
            for job in jobs:
                job.error = job.error or error
        finally:
            for job in jobs:
                self._end(job)
                job.done.set()

    def _grow(self, job: _Job, index: int, start: int, ids: list[int]) -> bool:
        """Add tokens to a completion. True if that ended it before the model did."""
        one = job.completions[index]
        if job.error is not None or one.finish_reason is not None:
            return True
        one.ids[start:] = ids
        if one.ids[-1] in self.policy.eos_ids:
            one.finish_reason = "stop"
        elif len(one.ids) >= job.request.max_tokens:
            one.finish_reason = "length"
        if not job.needs_text:
            return False
        one.text = decode_completion(self.policy, one.ids)
        places = [place for stop in one.stops if (place := one.text.find(stop)) >= 0]
        if places:
            one.text, one.finish_reason = one.text[: min(places)], "stop"
        _pass_on(job, index)
        return bool(places) or job.error is not None

    def _end(self, job: _Job) -> None:
        """End what is still open because the model has no further positions."""
        for index, one in enumerate(job.completions):
            if not job.needs_text:
                one.text = decode_completion(self.policy, one.ids)
            if one.finish_reason is None:
                one.finish_reason = "length"
                _pass_on(job, index)


def _pass_on(job: _Job, index: int) -> None:
    if job.on_text is None or job.error is not None:
        return
    try:
        job.on_text(index, job.completions[index])
    except (ConnectionError, TimeoutError) as error:
        job.error = error
