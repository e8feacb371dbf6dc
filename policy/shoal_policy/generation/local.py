"""Samples completions: a key-value-cache loop over all prompts of a round at once.

    prompts ──left-pad──► prefill (once a prompt) ──repeat L──► sample ◄──► forward one token
                                                                  │
                                                       rows that ended leave the batch

All randomness is drawn before the loop, one uniform number per row and step, and turned into
tokens by inverting the cumulative distribution. So what a row becomes depends on the seed and
its own place only, not on when its neighbours end or how rows are batched.

Shapes: P prompts, L completions of each, R = P·L rows still alive, M new tokens at
most, V vocabulary.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import torch

from shoal_policy.generation.decoding import make_decoder
from shoal_policy.generation.ready import MAX_ROWS, cast_once, remember_rows, rows_at_once
from shoal_policy.model.loading import ModelError, Policy
from shoal_policy.model.memory import is_out_of_memory
from shoal_policy.model.prompting import decode_completion
from shoal_policy.rollouts import Answer
from shoal_wire.types import FinishReason, SamplingParams

COMPACT_BELOW = 0.75
"""Rows that ended are dropped once at most this share of the batch is alive: dropping copies
the cache, and below a handful of rows a forward pass costs the same with or without them."""

LOOK_EVERY = 8
"""Tokens between two looks at which rows have ended, on a device that works while Python goes on.
A row that has ended computes at most so many tokens for nothing. On a CPU each token has a look."""

log = logging.getLogger(__name__)

T = TypeVar("T")

Draws: TypeAlias = torch.Generator | Sequence[int] | torch.Tensor
"""Source of randomness: one generator for all prompts, a seed for each of them, or numbers that
`uniforms` drew before."""

OnStep = Callable[[int, float], None]
"""Told how many completions have ended, and the part of the work that is done, at the least."""


class NonFiniteError(ModelError):
    """The model's numbers are NaN or infinite: nothing can be sampled from it."""


def generate(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    *,
    num_completions: int,
    params: SamplingParams,
    generator: Draws,
    max_rows: int = MAX_ROWS,
    on_step: OnStep = lambda _done, _fraction: None,
) -> list[list[Answer]]:
    """Draw `num_completions` completions of each prompt, in the order of the prompts.

    Temperature 0 is greedy. A completion ends at an end token (kept in its ids, not in its text),
    at ``params.max_new_tokens``, or where the model has no more positions; it has one token at
    least. Its log-probabilities are those of the distribution it was drawn from (after temperature,
    top-k and top-p), or the model's own when greedy. Advances a `generator`
    by the same amount whatever is sampled; with a seed for each prompt instead, an answer depends
    on its prompt's seed and not on which others are asked. As many rows are done at once as memory
    holds, at most `max_rows`; where it runs out all the same, half as many. Tells `on_step` after
    every token.
    Raises ValueError for an empty prompt or one that fills the model's positions, NonFiniteError
    when the model's numbers are not finite, and what the allocator raises when not even one row
    fits.
    """
    check(policy, prompts, num_completions, params)
    uniforms_PLM = uniforms(generator, len(prompts), num_completions, params.max_new_tokens)

    def drawn(chunk: GenerationBatch, told: OnStep) -> list[Answer]:
        loop = _Loop(policy, [prompts[i] for i in chunk.prompts], chunk.end - chunk.first, params)
        loop.run(chunk.of(uniforms_PLM).to(policy.device), told)
        return loop.samples()

    longest = max(map(len, prompts), default=0) + params.max_new_tokens
    rows = rows_at_once(policy, min(max_rows, len(prompts) * num_completions), longest)
    return in_chunks(policy, list(map(len, prompts)), num_completions, rows, drawn, on_step=on_step)


def in_chunks(
    policy: Policy,
    lengths: Sequence[int],
    num_completions: int,
    max_rows: int,
    make: Callable[[GenerationBatch, OnStep], list[T]],
    on_step: OnStep,
) -> list[list[T]]:
    """Return what is made of each prompt's completions, prompts of these lengths.

    `make` makes some of them at once, at most `max_rows`; where memory runs out, half as many.
    """
    results: list[dict[int, T]] = [{} for _ in lengths]
    num_done, todo = 0, deque(_chunks(lengths, num_completions, max_rows))
    with policy.whole():
        while todo:
            chunk = todo.popleft()
            told = _part(on_step, num_done, chunk.rows, len(lengths) * num_completions)
            made = _made(policy, chunk, make, told)
            if made is None:
                todo.extendleft(reversed(chunk.halves()))
                continue
            num_done += chunk.rows
            for (index, one), each in zip(chunk.places(), made, strict=True):
                results[index][one] = each
    return [[of_prompt[one] for one in range(num_completions)] for of_prompt in results]


def uniforms(draws: Draws, prompts: int, num_completions: int, num_tokens: int) -> torch.Tensor:
    """Return a number from 0 to 1 for every token that can be drawn, [P, L, M]."""
    if isinstance(draws, torch.Tensor):
        return draws
    if isinstance(draws, torch.Generator):
        shape = (prompts, num_completions, num_tokens)
        return torch.rand(shape, generator=draws, device=draws.device)
    if len(draws) != prompts:
        raise ValueError("need a seed for each prompt")
    own = torch.Generator()
    made = [
        torch.rand((num_completions, num_tokens), generator=own.manual_seed(seed)) for seed in draws
    ]
    return torch.stack(made) if made else torch.empty((0, num_completions, num_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationBatch:
    """Rows that are generated at once: some completions of some prompts."""

    prompts: Sequence[int]
    first: int
    end: int
    """Completions from `first` to before `end` of each."""

    @property
    def rows(self) -> int:
        return len(self.prompts) * (self.end - self.first)

    def places(self) -> list[tuple[int, int]]:
        """Return each row's prompt and which of its completions it is."""
        return [(index, one) for index in self.prompts for one in range(self.first, self.end)]

    def of(self, numbers_PLM: torch.Tensor) -> torch.Tensor:
        """Return each row's numbers of all that were drawn, [R, M]."""
        return numbers_PLM[list(self.prompts), self.first : self.end].flatten(0, 1)

    def halves(self) -> list[GenerationBatch]:
        """The same rows in two turns; there are two at least."""
        if (half := len(self.prompts) // 2) > 0:
            parts = self.prompts[:half], self.prompts[half:]
            return [GenerationBatch(prompts=part, first=self.first, end=self.end) for part in parts]
        middle = (self.first + self.end) // 2
        spans = (self.first, middle), (middle, self.end)
        return [GenerationBatch(prompts=self.prompts, first=first, end=end) for first, end in spans]


def _chunks(lengths: Sequence[int], num_completions: int, max_rows: int) -> list[GenerationBatch]:
    """All rows, at most so many at once; prompts of similar length together: less is padding."""
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    step, width = max(1, max_rows // num_completions), min(num_completions, max_rows)
    return [
        GenerationBatch(
            prompts=order[start : start + step],
            first=first,
            end=min(first + width, num_completions),
        )
        for start in range(0, len(order), step)
        for first in range(0, num_completions, width)
    ]


def _made(
    policy: Policy,
    chunk: GenerationBatch,
    make: Callable[[GenerationBatch, OnStep], list[T]],
    on_step: OnStep,
) -> list[T] | None:
    """Return a chunk's answers; None when memory cannot hold its rows but may hold half of them."""
    try:
        with cast_once(policy), torch.inference_mode(), policy.autocast():
            return make(chunk, on_step)
    except (MemoryError, RuntimeError) as error:
        if chunk.rows == 1 or not is_out_of_memory(error):
            raise
    # Outside the handler: until here the error holds on to what was computed.
    remember_rows(policy, chunk.rows // 2)
    log.warning("out of memory: going on with %d answers at once", max(1, chunk.rows // 2))
    if policy.device.type == "cuda":
        torch.cuda.empty_cache()
    return None


def _part(on_step: OnStep, num_done: int, num: int, of: int) -> OnStep:
    """Return the progress of one chunk of so many rows, as part of all."""
    return lambda done, fraction: on_step(num_done + done, (num_done + num * fraction) / of)


def sample_tokens(
    logits_RV: torch.Tensor, uniforms_R: torch.Tensor, params: SamplingParams
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one token a row: ids [R] and their log-probabilities [R] (float32).

    Reads the logits as few times as it can: with a hub model's vocabulary that costs as much
    as several layers. Probabilities stay unnormalised; only the drawn token's is needed.
    """
    logits_RV = logits_RV.float()
    if params.temperature == 0:
        ids_R1 = logits_RV.argmax(-1, keepdim=True)
        return ids_R1[:, 0], (logits_RV.gather(-1, ids_R1)[:, 0] - logits_RV.logsumexp(-1))
    if params.temperature != 1:
        logits_RV = logits_RV / params.temperature
    logits_RV = _truncate(logits_RV, params)
    top_R1 = logits_RV.amax(-1, keepdim=True)
    weights_RV = (logits_RV - top_R1).exp_()
    cdf_RV = torch.cumsum(weights_RV, -1, out=weights_RV)
    total_R1 = cdf_RV[:, -1:]
    # Strictly below the total: else rounding could pick a token of probability zero at the end.
    target_R1 = torch.minimum(
        uniforms_R[:, None] * total_R1, total_R1.nextafter(torch.zeros_like(total_R1))
    )
    ids_R1 = torch.searchsorted(cdf_RV, target_R1, right=True)
    ids_R1 = ids_R1.clamp(max=logits_RV.shape[-1] - 1)
    logprobs_R1 = logits_RV.gather(-1, ids_R1) - top_R1 - total_R1.log()
    return ids_R1[:, 0], logprobs_R1[:, 0]


def _truncate(logits_RV: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Rule out all but the `top_k` likeliest, then all beyond the first `top_p` of the mass."""
    if 0 < params.top_k < logits_RV.shape[-1]:
        least_R1 = logits_RV.topk(params.top_k, dim=-1).values[:, -1:]
        logits_RV = logits_RV.masked_fill(logits_RV < least_R1, -torch.inf)
    if params.top_p < 1:
        ordered_RV, places_RV = logits_RV.sort(dim=-1, descending=True)
        probs_RV = ordered_RV.softmax(-1)
        # A token stays when what comes before it does not yet fill top_p: the first always stays.
        drop_RV = probs_RV.cumsum(-1) - probs_RV >= params.top_p
        drop_RV[:, 0] = False
        drop_RV = torch.zeros_like(drop_RV).scatter(-1, places_RV, drop_RV)
        logits_RV = logits_RV.masked_fill(drop_RV, -torch.inf)
    return logits_RV


def check(
    policy: Policy, prompts: Sequence[Sequence[int]], num_completions: int, params: SamplingParams
) -> None:
    """Raise ValueError for what cannot be generated."""
    if num_completions < 1 or params.max_new_tokens < 1 or params.temperature < 0:
        raise ValueError("need at least one completion and one token, and a temperature ≥ 0")
    for prompt in prompts:
        if not 0 < len(prompt) < policy.max_positions:
            raise ValueError(
                f"a prompt of {len(prompt)} tokens: need 1 … {policy.max_positions - 1}"
            )


class _Loop:
    """The state of one chunk's generation. `_rows_R` maps the living batch to the chunk's rows."""

    def __init__(
        self,
        policy: Policy,
        prompts: Sequence[Sequence[int]],
        num_completions: int,
        params: SamplingParams,
    ) -> None:
        self._policy, self._params = policy, params
        max_new, device = params.max_new_tokens, policy.device
        self._decoder = make_decoder(policy, prompts, num_completions, max_new)
        rooms = [min(max_new, policy.max_positions - len(prompt)) for prompt in prompts]
        self._limits = torch.tensor(rooms, device=device).repeat_interleave(num_completions)
        num_rows = len(self._limits)
        self._steps = max(rooms)
        # Asking who has ended waits for the device, which then stands idle.
        self._look_every = 1 if device.type == "cpu" else LOOK_EVERY
        self._eos = torch.tensor(sorted(policy.eos_ids), device=device)
        self._rows_R = torch.arange(num_rows, device=device)
        self._ids_RM = torch.full((num_rows, max_new), policy.pad_id, device=device)
        self._logprobs_RM = torch.zeros((num_rows, max_new), device=device)
        self._lengths = torch.zeros(num_rows, dtype=torch.long, device=device)

    def run(self, uniforms_RM: torch.Tensor, on_step: OnStep) -> None:
        """Generate until every row ended."""
        logits_RV = self._decoder.prefill()
        alive_R = torch.ones_like(self._rows_R, dtype=torch.bool)
        for step in range(self._steps):
            rows_R = self._rows_R
            ids_R, logprobs_R = sample_tokens(logits_RV, uniforms_RM[rows_R, step], self._params)
            self._ids_RM[rows_R, step] = ids_R
            self._logprobs_RM[rows_R, step] = logprobs_R
            self._lengths[rows_R] += alive_R
            alive_R = alive_R & ~torch.isin(ids_R, self._eos) & (self._limits[rows_R] > step + 1)
            is_last = step + 1 == self._steps
            if is_last or (step + 1) % self._look_every == 0:
                num_alive = int(alive_R.sum())
                on_step(len(self._lengths) - num_alive, (step + 1) / self._params.max_new_tokens)
                if num_alive == 0:
                    return
                if num_alive <= COMPACT_BELOW * len(rows_R):
                    living = alive_R.nonzero()[:, 0]
                    self._decoder.keep(living)
                    self._rows_R, ids_R, alive_R = rows_R[living], ids_R[living], alive_R[living]
            logits_RV = self._decoder.step(ids_R, step)

    def samples(self) -> list[Answer]:
        """Return the samples, row by row. Raises ModelError when a number is not finite."""
        rows = zip(
            self._ids_RM.tolist(), self._logprobs_RM.tolist(), self._lengths.tolist(), strict=True
        )
        return [
            sample_of(self._policy, ids[:length], logprobs[:length])
            for ids, logprobs, length in rows
        ]


def sample_of(policy: Policy, ids: list[int], logprobs: list[float]) -> Answer:
    """Return drawn tokens as a sample. Raises NonFiniteError when a number is not finite."""
    if not all(map(math.isfinite, logprobs)):
        raise NonFiniteError(f"model {policy.name!r} produced numbers that are not finite")
    stopped = ids[-1] in policy.eos_ids
    return Answer(
        ids=tuple(ids),
        text=decode_completion(policy, ids),
        finish_reason=FinishReason.STOP if stopped else FinishReason.LENGTH,
        logprobs=tuple(logprobs),
    )
