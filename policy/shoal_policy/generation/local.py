"""Samples completions with a key-value cache, for all prompts of a round at once.

    prompts ──left-pad──► prefill (once a prompt) ──repeat L──► sample ◄──► forward one token
                                                                  │
                                                       finished rows leave the batch

All randomness is drawn before the loop, one uniform number per row and step, and turned into tokens
by inverting the cumulative distribution. A row therefore depends only on the seed and its own
position, not on when other rows end or how rows are batched.

Shapes: P prompts, L completions of each, R = P·L rows still active, M new tokens at most,
V vocabulary.
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
from shoal_policy.generation.sampling_setup import (
    MAX_ROWS,
    inference_weights,
    limit_rows,
    max_batch_rows,
)
from shoal_policy.model.loading import ModelError, Policy
from shoal_policy.model.memory import is_out_of_memory
from shoal_policy.model.prompting import decode_completion
from shoal_policy.rollouts import Answer
from shoal_wire.types import FinishReason, SamplingParams

COMPACT_BELOW = 0.75
"""Finished rows are dropped once at most this share of the batch is active: dropping copies the
cache, and for a few rows a forward pass costs the same with or without them."""

CHECK_EVERY = 8
"""Tokens between two checks for finished rows, on a device that runs asynchronously. A finished row
wastes at most this many tokens. On a CPU every token is checked."""

log = logging.getLogger(__name__)

T = TypeVar("T")

RandomSource: TypeAlias = torch.Generator | Sequence[int] | torch.Tensor
"""Source of randomness: one generator for all prompts, a seed per prompt, or numbers from
`uniforms`."""

OnStep = Callable[[int, float], None]
"""Called with the number of finished completions and a lower bound of the fraction of work done."""


OnTokens = Callable[[int, int, int, list[int]], None]
"""Called as tokens are sampled: index of the prompt, index of its completion, the number of tokens
before these, and the new ones. After running out of memory, a completion begins again. Whatever it
raises ends the generation."""


class NonFiniteError(ModelError):
    """The model's output is NaN or infinite: nothing can be sampled from it."""


def generate(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    *,
    num_completions: int,
    params: SamplingParams,
    generator: RandomSource,
    max_rows: int = MAX_ROWS,
    on_step: OnStep = lambda _done, _fraction: None,
    on_tokens: OnTokens | None = None,
) -> list[list[Answer]]:
    """Sample `num_completions` completions of each prompt, in the order of the prompts.

    Temperature 0 is greedy. A completion ends at an end token (kept in its ids, not in its text),
    after ``params.max_new_tokens``, or at the model's last position; it has at least one token. Its
    log-probabilities belong to the distribution it was sampled from (after temperature, top-k and
    top-p), or to the model's own when greedy. A `generator` advances by the same amount whatever is
    sampled; with a seed per prompt, an answer does not depend on the other prompts. Runs as many
    rows at once as memory holds, at most `max_rows`, and half as many after running out. Calls
    `on_step` and `on_tokens` after every token.

    Raises ValueError for an empty prompt or one that fills the model's positions, NonFiniteError if
    the model's output is not finite, and the allocator's error if not even one row fits.
    """
    check_request(policy, prompts, num_completions, params)
    uniforms_PLM = uniforms(generator, len(prompts), num_completions, params.max_new_tokens)

    def generate_batch(chunk: GenerationBatch, on_chunk_step: OnStep) -> list[Answer]:
        loop = _DecodeLoop(
            policy, [prompts[i] for i in chunk.prompts], chunk.end - chunk.first, params
        )
        if on_tokens is not None:
            loop.on_tokens, loop.row_indices = on_tokens, chunk.row_indices()
        loop.run(chunk.of(uniforms_PLM).to(policy.device), on_chunk_step)
        return loop.samples()

    longest = max(map(len, prompts), default=0) + params.max_new_tokens
    rows = max_batch_rows(policy, min(max_rows, len(prompts) * num_completions), longest)
    return generate_in_chunks(
        policy, list(map(len, prompts)), num_completions, rows, generate_batch, on_step=on_step
    )


def generate_in_chunks(
    policy: Policy,
    lengths: Sequence[int],
    num_completions: int,
    max_rows: int,
    make: Callable[[GenerationBatch, OnStep], list[T]],
    on_step: OnStep,
) -> list[list[T]]:
    """Return what `make` returns for each prompt's completions; `lengths` are the prompts' lengths.

    `make` handles at most `max_rows` rows per call, and half as many after running out of memory.
    """
    results: list[dict[int, T]] = [{} for _ in lengths]
    num_done, todo = 0, deque(_chunks(lengths, num_completions, max_rows))
    with policy.gather():
        while todo:
            chunk = todo.popleft()
            on_chunk_step = _scale_progress(
                on_step, num_done, chunk.rows, len(lengths) * num_completions
            )
            made = _generate_chunk(policy, chunk, make, on_chunk_step)
            if made is None:
                todo.extendleft(reversed(chunk.split()))
                continue
            num_done += chunk.rows
            for (index, one), each in zip(chunk.row_indices(), made, strict=True):
                results[index][one] = each
    return [[of_prompt[one] for one in range(num_completions)] for of_prompt in results]


def uniforms(
    draws: RandomSource, prompts: int, num_completions: int, num_tokens: int
) -> torch.Tensor:
    """Return a uniform number from 0 to 1 for every token that may be sampled, [P, L, M]."""
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
    """Rows that are generated together: some completions of some prompts."""

    prompts: Sequence[int]
    first: int
    end: int
    """Completions `first` to `end` (exclusive) of each prompt."""

    @property
    def rows(self) -> int:
        return len(self.prompts) * (self.end - self.first)

    def row_indices(self) -> list[tuple[int, int]]:
        """Return each row's prompt and completion index."""
        return [(index, one) for index in self.prompts for one in range(self.first, self.end)]

    def of(self, numbers_PLM: torch.Tensor) -> torch.Tensor:
        """Return the rows of `numbers_PLM` for this batch, [R, M]."""
        return numbers_PLM[list(self.prompts), self.first : self.end].flatten(0, 1)

    def split(self) -> list[GenerationBatch]:
        """Return two halves of this batch, which has at least two rows."""
        if (half := len(self.prompts) // 2) > 0:
            parts = self.prompts[:half], self.prompts[half:]
            return [GenerationBatch(prompts=part, first=self.first, end=self.end) for part in parts]
        middle = (self.first + self.end) // 2
        spans = (self.first, middle), (middle, self.end)
        return [GenerationBatch(prompts=self.prompts, first=first, end=end) for first, end in spans]


def _chunks(lengths: Sequence[int], num_completions: int, max_rows: int) -> list[GenerationBatch]:
    """Return all rows in batches of at most `max_rows`; similar lengths together, to pad less."""
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


def _generate_chunk(
    policy: Policy,
    chunk: GenerationBatch,
    make: Callable[[GenerationBatch, OnStep], list[T]],
    on_step: OnStep,
) -> list[T] | None:
    """Return a batch's answers; None if memory does not hold its rows but may hold half."""
    try:
        with inference_weights(policy), torch.inference_mode(), policy.autocast():
            return make(chunk, on_step)
    except (MemoryError, RuntimeError) as error:
        if chunk.rows == 1 or not is_out_of_memory(error):
            raise
    # Outside the handler, since the error references the tensors until here.
    limit_rows(policy, chunk.rows // 2)
    log.warning("out of memory: continuing with %d answers at once", max(1, chunk.rows // 2))
    if policy.device.type == "cuda":
        torch.cuda.empty_cache()
    return None


def _scale_progress(on_step: OnStep, num_done: int, num: int, of: int) -> OnStep:
    """Return a callback that scales one batch's progress to the whole."""
    return lambda done, fraction: on_step(num_done + done, (num_done + num * fraction) / of)


def sample_tokens(
    logits_RV: torch.Tensor, uniforms_R: torch.Tensor, params: SamplingParams
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample one token per row: ids [R] and their log-probabilities [R] (float32).

    Reads the logits as few times as possible: with a large vocabulary each read costs as much as
    several layers. Probabilities stay unnormalised; only the sampled token's is needed.
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
    # Strictly below the total; otherwise rounding could pick a token of probability zero.
    target_R1 = torch.minimum(
        uniforms_R[:, None] * total_R1, total_R1.nextafter(torch.zeros_like(total_R1))
    )
    ids_R1 = torch.searchsorted(cdf_RV, target_R1, right=True)
    ids_R1 = ids_R1.clamp(max=logits_RV.shape[-1] - 1)
    logprobs_R1 = logits_RV.gather(-1, ids_R1) - top_R1 - total_R1.log()
    return ids_R1[:, 0], logprobs_R1[:, 0]


def _truncate(logits_RV: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Mask all but the `top_k` likeliest tokens, then all beyond the first `top_p` of the mass."""
    if 0 < params.top_k < logits_RV.shape[-1]:
        least_R1 = logits_RV.topk(params.top_k, dim=-1).values[:, -1:]
        logits_RV = logits_RV.masked_fill(logits_RV < least_R1, -torch.inf)
    if params.top_p < 1:
        ordered_RV, places_RV = logits_RV.sort(dim=-1, descending=True)
        probs_RV = ordered_RV.softmax(-1)
        # A token stays if the mass before it is below top_p, so the first one always stays.
        drop_RV = probs_RV.cumsum(-1) - probs_RV >= params.top_p
        drop_RV[:, 0] = False
        drop_RV = torch.zeros_like(drop_RV).scatter(-1, places_RV, drop_RV)
        logits_RV = logits_RV.masked_fill(drop_RV, -torch.inf)
    return logits_RV


def check_request(
    policy: Policy, prompts: Sequence[Sequence[int]], num_completions: int, params: SamplingParams
) -> None:
    """Raise ValueError for a request that cannot be generated."""
    if num_completions < 1 or params.max_new_tokens < 1 or params.temperature < 0:
        raise ValueError("need at least one completion and one token, and a temperature ≥ 0")
    for prompt in prompts:
        if not 0 < len(prompt) < policy.max_positions:
            raise ValueError(
                f"a prompt of {len(prompt)} tokens: need 1 … {policy.max_positions - 1}"
            )


class _DecodeLoop:
    """State of one batch's generation. `_rows_R` maps active rows to the batch's rows."""

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
        limits = [min(max_new, policy.max_positions - len(prompt)) for prompt in prompts]
        self._limits = torch.tensor(limits, device=device).repeat_interleave(num_completions)
        num_rows = len(self._limits)
        self._steps = max(limits)
        # Checking for finished rows synchronises with the device.
        self._check_every = 1 if device.type == "cpu" else CHECK_EVERY
        self._eos = torch.tensor(sorted(policy.eos_ids), device=device)
        self._rows_R = torch.arange(num_rows, device=device)
        self._ids_RM = torch.full((num_rows, max_new), policy.pad_id, device=device)
        self._logprobs_RM = torch.zeros((num_rows, max_new), device=device)
        self._lengths = torch.zeros(num_rows, dtype=torch.long, device=device)
        self.on_tokens: OnTokens | None = None
        self.row_indices: list[tuple[int, int]] = []
        """Prompt and completion of each row, for `on_tokens`."""
        self._num_passed = 0
        """Steps whose tokens have been passed to `on_tokens`."""

    def run(self, uniforms_RM: torch.Tensor, on_step: OnStep) -> None:
        """Generate until every row has ended."""
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
            if is_last or (step + 1) % self._check_every == 0:
                num_alive = int(alive_R.sum())
                self._pass_tokens(step + 1)
                on_step(len(self._lengths) - num_alive, (step + 1) / self._params.max_new_tokens)
                if num_alive == 0:
                    return
                if num_alive <= COMPACT_BELOW * len(rows_R):
                    living = alive_R.nonzero()[:, 0]
                    self._decoder.keep(living)
                    self._rows_R, ids_R, alive_R = rows_R[living], ids_R[living], alive_R[living]
            logits_RV = self._decoder.step(ids_R, step)

    def _pass_tokens(self, num_steps: int) -> None:
        """Pass the tokens of the latest steps to `on_tokens`."""
        start, self._num_passed = self._num_passed, num_steps
        if self.on_tokens is None:
            return
        rows = self._rows_R.tolist()
        new = self._ids_RM[self._rows_R, start:num_steps].tolist()
        lengths = self._lengths[self._rows_R].tolist()
        for row, ids, length in zip(rows, new, lengths, strict=True):
            if length > start:
                prompt, completion = self.row_indices[row]
                self.on_tokens(prompt, completion, start, ids[: length - start])

    def samples(self) -> list[Answer]:
        """Return the samples, row by row. Raises NonFiniteError if a number is not finite."""
        rows = zip(
            self._ids_RM.tolist(), self._logprobs_RM.tolist(), self._lengths.tolist(), strict=True
        )
        return [
            build_answer(self._policy, ids[:length], logprobs[:length])
            for ids, logprobs, length in rows
        ]


def build_answer(policy: Policy, ids: list[int], logprobs: list[float]) -> Answer:
    """Return sampled tokens as an answer. Raises NonFiniteError if a number is not finite."""
    if not all(map(math.isfinite, logprobs)):
        raise NonFiniteError(f"model {policy.name!r} produced numbers that are not finite")
    stopped = ids[-1] in policy.eos_ids
    return Answer(
        ids=tuple(ids),
        text=decode_completion(policy, ids),
        finish_reason=FinishReason.STOP if stopped else FinishReason.LENGTH,
        logprobs=tuple(logprobs),
    )
