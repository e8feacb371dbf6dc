"""Checks, when a model is loaded, that it answers and trains with the numbers of a plain pass.

    two prompts of unequal length ─▶ generate (padded, cached) ─┐
                                  ─▶ completion_logprobs        ├─ compared, in nats a token
                                  ─▶ one full forward pass each ┘

Some architectures let padding into their state, or keep a cache that does not fit several rows.
Nothing else shows it: such a model answers fluently, and wrongly in a batch with a longer prompt.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from shoal_base.visible import first_line
from shoal_policy.generation.generator import is_exact
from shoal_policy.generation.local import generate
from shoal_policy.model.loading import ModelError, Policy
from shoal_policy.model.packed import TokenRow
from shoal_policy.tiny import embedded_folder
from shoal_policy.update.logprobs import completion_logprobs
from shoal_wire.types import SamplingParams

log = logging.getLogger(__name__)

_LENGTHS: Final = (5, 11)
"""Tokens of the two prompts."""
_NEW: Final = 4
_REPEAT: Final = 2

MAX_DIFFERENCE: Final = 5e-3
"""Largest mean difference, in nats a token, of a model that computes in float32. Right models
differ by 1e-7 to 1e-5; padding in a recurrent state costs whole nats, wrong positions 0.01."""

MAX_ROUNDED_DIFFERENCE: Final = 0.3
"""The same in a shorter type, in which right models differ by 0.02 to 0.08."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Mean |log-probability − that of a full forward pass|, in nats a token."""

    answering: float
    """Difference of the tokens that were generated."""
    training: float
    """Difference of the same tokens as an update computes them."""
    rounding: float | None
    """Difference of a full forward pass in the compute type from one in float32; None without
    autocast."""


def check_answers(policy: Policy) -> None:
    """Raise ModelError for a model that would answer or train with wrong numbers.

    A model that ships with this package is known, and a short one has no room for the prompts.
    """
    if embedded_folder(policy.name) is not None or policy.max_positions < _LENGTHS[1] + _NEW:
        return
    try:
        found = differences(policy)
    except ModelError:
        raise
    except Exception as error:  # an architecture may fail in any way at its first answer
        kind = type(policy.model).__name__
        raise ModelError(
            f"cannot use model {policy.name!r}: {kind} cannot answer here ({first_line(error)})"
        ) from error
    allowed = MAX_DIFFERENCE if is_exact(policy) else MAX_ROUNDED_DIFFERENCE
    for what, by in (("answers", found.answering), ("trains", found.training)):
        if not by <= allowed:
            raise ModelError(
                f"cannot use model {policy.name!r}: together with a longer prompt it {what} "
                f"with other numbers than alone (by {by:.2g} nats a token); such architectures "
                "are not supported"
            )
    if found.rounding is not None:
        log.info(
            "computing in bfloat16 moves log-probabilities by %.2g nats a token", found.rounding
        )


def differences(policy: Policy) -> Differences:
    """Return how far generating and training are from full forward passes, one row at a time."""
    size = policy.model.config.get_text_config().vocab_size
    first = [(7 * number + 3) % size for number in range(sum(_LENGTHS))]
    prompts = [first[: _LENGTHS[0]], first[_LENGTHS[0] :]]
    params = SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=_NEW)
    drawn = generate(
        policy,
        prompts,
        num_completions=_REPEAT,
        params=params,
        generator=[1, 2],
    )
    rows = [
        TokenRow(prompt_ids=prompt, completion_ids=one.ids)
        for prompt, answers in zip(prompts, drawn, strict=True)
        for one in answers
    ]
    generated = [value for answers in drawn for one in answers for value in one.logprobs]
    with torch.no_grad(), policy.gather(), policy.autocast():
        expected = torch.cat([_whole(policy, row) for row in rows])
    rounding = None
    if policy.autocast_dtype is not None:
        with torch.no_grad(), policy.gather():
            exact = torch.cat([_whole(policy, row) for row in rows])
        rounding = _mean_difference(expected, exact)
    with torch.no_grad(), policy.gather():
        trained = completion_logprobs(policy, rows, temperature=1.0).logprobs.float().cpu()
    return Differences(
        answering=_mean_difference(generated, expected),
        training=_mean_difference(trained, expected),
        rounding=rounding,
    )


def _whole(policy: Policy, row: TokenRow) -> torch.Tensor:
    """Return the log-probabilities of a row's completion by one forward pass without a cache."""
    ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]], device=policy.device)
    logits = policy.model(input_ids=ids, use_cache=False).logits[0].float()
    first = len(row.prompt_ids)
    picked = logits[first - 1 : -1].log_softmax(-1).gather(-1, ids[0, first:, None])
    return picked[:, 0].cpu()


def _mean_difference(found: Sequence[float] | torch.Tensor, expected: torch.Tensor) -> float:
    by = float((torch.as_tensor(found) - expected).abs().mean())
    return by if math.isfinite(by) else math.inf
