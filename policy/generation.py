"""Samples completions: a key-value-cache loop over all prompts of a round at once.

    prompts ──left-pad──► prefill (once a prompt) ──repeat L──► sample ◄──► forward one token
                                                                  │
                                                       rows that ended leave the batch

All randomness is drawn before the loop, one uniform number per row and step, and turned into
tokens by inverting the cumulative distribution. So what a row becomes depends on the seed and
its own place only, not on when its neighbours end or how rows are batched.

Shapes: P prompts, L completions of each, R = P·L rows still alive, T prompt tokens (padded),
M new tokens at most, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from shoal_wire.types import FinishReason, SamplingParams

from policy.model import ModelError, Policy
from policy.prompting import decode_completion

COMPACT_BELOW = 0.75
"""Rows that ended are dropped once at most this share of the batch is alive: dropping copies
the cache, and below a handful of rows a forward pass costs the same with or without them."""

MAX_ROWS = 512
"""Rows generated at once; more are done in turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sampled completion."""

    ids: list[int]
    """Token ids, the end token included when there is one; never empty."""
    text: str
    """Without the end token; may be empty."""
    finish_reason: FinishReason
    logprobs: list[float]
    """Log-probability, in nats, of each id under the distribution it was drawn from (after
    temperature, top-k and top-p); under the model's own distribution when greedy."""


def generate(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    *,
    num_completions: int,
    params: SamplingParams,
    generator: torch.Generator,
    max_rows: int = MAX_ROWS,
) -> list[list[Sample]]:
    """Draw `num_completions` completions of each prompt, in the order of the prompts.

    Temperature 0 is greedy. A completion ends at an end token (kept in its ids), at
    ``params.max_new_tokens``, or where the model has no more positions. Advances `generator`
    by the same amount whatever is sampled. Raises ValueError for an empty prompt or one that
    fills the model's positions, ModelError when the model's numbers are not finite.
    """
    _check(policy, prompts, num_completions, params)
    uniforms_PLM = torch.rand(
        (len(prompts), num_completions, params.max_new_tokens),
        generator=generator,
        device=generator.device,
    )
    results: list[list[Sample]] = [[] for _ in prompts]
    # Prompts of similar length share a chunk, so that little of it is padding.
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    step = max(1, max_rows // num_completions)
    for start in range(0, len(order), step):
        chunk = order[start : start + step]
        loop = _Loop(policy, [prompts[index] for index in chunk], num_completions, params)
        with torch.inference_mode(), policy.autocast():
            loop.run(uniforms_PLM[chunk].flatten(0, 1).to(policy.device))
        samples = loop.samples()
        for place, index in enumerate(chunk):
            results[index] = samples[place * num_completions : (place + 1) * num_completions]
    return results


def sample_tokens(
    logits_RV: torch.Tensor, uniforms_R: torch.Tensor, params: SamplingParams
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one token a row: ids [R] and their log-probabilities [R] (float32)."""
    logits_RV = logits_RV.float()
    if params.temperature == 0:
        ids_R = logits_RV.argmax(-1)
        return ids_R, _gather(logits_RV.log_softmax(-1), ids_R)
    logprobs_RV = _truncate(logits_RV / params.temperature, params).log_softmax(-1)
    cdf_RV = logprobs_RV.exp().cumsum(-1)
    total_R1 = cdf_RV[:, -1:]
    # Strictly below the total: else rounding could pick a token of probability zero at the end.
    target_R1 = torch.minimum(
        uniforms_R[:, None] * total_R1, total_R1.nextafter(torch.zeros_like(total_R1))
    )
    ids_R = torch.searchsorted(cdf_RV, target_R1, right=True)[:, 0]
    ids_R = ids_R.clamp(max=logits_RV.shape[-1] - 1)
    return ids_R, _gather(logprobs_RV, ids_R)


def _gather(values_RV: torch.Tensor, ids_R: torch.Tensor) -> torch.Tensor:
    return values_RV.gather(-1, ids_R[:, None])[:, 0]


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


def _check(
    policy: Policy, prompts: Sequence[Sequence[int]], num_completions: int, params: SamplingParams
) -> None:
    if num_completions < 1 or params.max_new_tokens < 1 or params.temperature < 0:
        raise ValueError("need at least one completion and one token, and a temperature ≥ 0")
    for prompt in prompts:
        if not 0 < len(prompt) < policy.max_positions:
            raise ValueError(
                f"a prompt of {len(prompt)} tokens: need 1 … {policy.max_positions - 1}"
            )


class _Loop:
    """The state of one chunk's generation. `rows_R` maps the living batch to the chunk's rows."""

    def __init__(
        self,
        policy: Policy,
        prompts: Sequence[Sequence[int]],
        num_completions: int,
        params: SamplingParams,
    ) -> None:
        self._policy = policy
        self._prompts = prompts
        self._repeat = num_completions
        self._params = params
        device = policy.device
        num_rows = len(prompts) * num_completions
        lengths_P = torch.tensor([len(prompt) for prompt in prompts], device=device)
        self._prompt_lengths_R = lengths_P.repeat_interleave(num_completions)
        self._padded = bool((lengths_P != lengths_P[0]).any())
        self._eos = torch.tensor(sorted(policy.eos_ids), device=device)
        self._rows_R = torch.arange(num_rows, device=device)
        self._ids_RM = torch.full((num_rows, params.max_new_tokens), policy.pad_id, device=device)
        self._logprobs_RM = torch.zeros((num_rows, params.max_new_tokens), device=device)
        self._lengths = torch.zeros(num_rows, dtype=torch.long, device=device)
        self._cache: Any = None
        self._mask_RT: torch.Tensor = torch.empty(0)

    def run(self, uniforms_RM: torch.Tensor) -> None:
        """Generate until every row ended."""
        max_new = self._params.max_new_tokens
        limits_R = (self._policy.max_positions - self._prompt_lengths_R).clamp(max=max_new)
        logits_RV = self._prefill()
        alive_R = torch.ones_like(self._rows_R, dtype=torch.bool)
        for step in range(max_new):
            rows_R = self._rows_R
            ids_R, logprobs_R = sample_tokens(logits_RV, uniforms_RM[rows_R, step], self._params)
            self._ids_RM[rows_R, step] = ids_R
            self._logprobs_RM[rows_R, step] = logprobs_R
            self._lengths[rows_R[alive_R]] = step + 1
            alive_R = alive_R & ~torch.isin(ids_R, self._eos) & (limits_R[rows_R] > step + 1)
            num_alive = int(alive_R.sum())
            if num_alive == 0:
                return
            if num_alive <= COMPACT_BELOW * len(rows_R):
                ids_R, alive_R = self._compact(ids_R, alive_R)
            logits_RV = self._forward(ids_R, step)

    def samples(self) -> list[Sample]:
        """What was sampled, row by row. Raises ModelError when a number is not finite."""
        if not bool(torch.isfinite(self._logprobs_RM).all()):
            raise ModelError(f"model {self._policy.name!r} produced numbers that are not finite")
        made = []
        for ids, logprobs, length in zip(
            self._ids_RM.tolist(), self._logprobs_RM.tolist(), self._lengths.tolist(), strict=True
        ):
            ids = ids[:length]
            stopped = ids[-1] in self._policy.eos_ids
            made.append(
                Sample(
                    ids=ids,
                    text=decode_completion(self._policy, ids),
                    finish_reason=FinishReason.STOP if stopped else FinishReason.LENGTH,
                    logprobs=logprobs[:length],
                )
            )
        return made

    def _prefill(self) -> torch.Tensor:
        """Run every prompt once, then give each of its completions a copy of the cache."""
        width = max(map(len, self._prompts))
        device, pad = self._policy.device, self._policy.pad_id
        ids_PT = torch.tensor(
            [[pad] * (width - len(prompt)) + list(prompt) for prompt in self._prompts],
            device=device,
        )
        places_T = torch.arange(width + self._params.max_new_tokens, device=device)
        starts_R = width - self._prompt_lengths_R
        mask_RT = (places_T[None, :] >= starts_R[:, None]).long()
        mask_PT = mask_RT[:: self._repeat, :width]
        positions_PT = (mask_PT.cumsum(-1) - 1).clamp(min=0)
        logits_PV = self._call(ids_PT, mask_PT, positions_PT)
        self._mask_RT = mask_RT
        self._cache.batch_repeat_interleave(self._repeat)
        return logits_PV.repeat_interleave(self._repeat, dim=0)

    def _forward(self, ids_R: torch.Tensor, step: int) -> torch.Tensor:
        """Append the tokens of `step` and return the logits of the next ones [R, V]."""
        width = self._mask_RT.shape[1] - self._params.max_new_tokens + step + 1
        positions_R1 = (self._prompt_lengths_R[self._rows_R] + step)[:, None]
        return self._call(ids_R[:, None], self._mask_RT[:, :width], positions_R1)

    def _call(self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        arguments: dict[str, Any] = {"past_key_values": self._cache, "use_cache": True}
        if self._padded:
            arguments["attention_mask"] = mask
            arguments["position_ids"] = positions
        arguments["logits_to_keep"] = 1
        names = self._policy.forward_names
        out = self._policy.model(
            input_ids=ids, **{key: value for key, value in arguments.items() if key in names}
        )
        self._cache = out.past_key_values
        return out.logits[:, -1]

    def _compact(
        self, ids_R: torch.Tensor, alive_R: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Drop the rows that ended from the batch and from the cache."""
        keep = alive_R.nonzero()[:, 0]
        self._cache.batch_select_indices(keep)
        self._rows_R = self._rows_R[keep]
        self._mask_RT = self._mask_RT[keep]
        return ids_R[keep], alive_R[keep]
