"""Log-probabilities of completion tokens, without ever holding logits of a whole batch.

A row is a prompt and one completion, padded on the *right*. In a causal model nothing to the
left sees the padding, so no attention mask is needed, positions count from zero, and the first
completion token is predicted from the prompt's last token. The output matrix is applied at the
positions that predict completion tokens only, in tiles, with a backward pass of its own.

Shapes: B rows, T padded tokens, N completion tokens of all rows one after another, H hidden
size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from policy.model import Policy

TILE_ELEMENTS = 1 << 22
"""Logits held at once: 16 MiB of float32."""


class TokenRow(Protocol):
    """A prompt and a completion, both not empty."""

    @property
    def prompt_ids(self) -> Sequence[int]: ...
    @property
    def completion_ids(self) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Of N tokens, float32, in nats."""

    logprobs: torch.Tensor
    """[N], carries the gradient."""
    entropy: torch.Tensor
    """[N], of the distribution each token was chosen from; carries none."""


def completion_logprobs(
    policy: Policy, rows: Sequence[TokenRow], *, temperature: float = 1.0
) -> TokenLogprobs:
    """Log-probability of every completion token, in nats, rows one after another.

    `temperature` divides the logits, so that the numbers belong to the distribution that
    samples are drawn from. Differentiable unless gradients are off.
    """
    width = max(len(row.prompt_ids) + len(row.completion_ids) for row in rows) - 1
    inputs: list[list[int]] = []
    places: list[int] = []
    targets: list[int] = []
    for number, row in enumerate(rows):
        ids = [*row.prompt_ids, *row.completion_ids]
        # Any token fills up. Not the pad token: some models warn of one without a mask.
        inputs.append(ids[:-1] + ids[:1] * (width - len(ids) + 1))
        first = number * width + len(row.prompt_ids) - 1
        places.extend(range(first, first + len(row.completion_ids)))
        targets.extend(row.completion_ids)
    ids_BT = torch.tensor(inputs, device=policy.device)
    places_N = torch.tensor(places, device=policy.device)
    targets_N = torch.tensor(targets, device=policy.device)
    with policy.autocast():
        if not policy.linear_head:
            return _from_logits(policy, ids_BT, places_N, targets_N, temperature)
        hidden_BTH = policy.model.base_model(input_ids=ids_BT, use_cache=False).last_hidden_state
    hidden_NH = hidden_BTH.flatten(0, 1).index_select(0, places_N)
    if policy.autocast_dtype is not None:
        hidden_NH = hidden_NH.to(policy.autocast_dtype)
    head = policy.model.get_output_embeddings()
    logprobs_N, entropy_N = _HeadLogprobs.apply(
        hidden_NH, head.weight, head.bias, targets_N, temperature
    )
    return TokenLogprobs(logprobs_N, entropy_N)


def _from_logits(
    policy: Policy,
    ids_BT: torch.Tensor,
    places_N: torch.Tensor,
    targets_N: torch.Tensor,
    temperature: float,
) -> TokenLogprobs:
    """The same for models that do more to their logits than a matrix product."""
    logits_BTV = policy.model(input_ids=ids_BT, use_cache=False).logits
    logits_NV = logits_BTV.flatten(0, 1).index_select(0, places_N).float() / temperature
    all_NV = logits_NV.log_softmax(-1)
    entropy_N = -(all_NV.detach().exp() * all_NV.detach()).sum(-1)
    return TokenLogprobs(all_NV.gather(-1, targets_N[:, None])[:, 0], entropy_N)


class _HeadLogprobs(torch.autograd.Function):
    """Output matrix, log-softmax and choice of the target in one, tile by tile.

    Backward computes each tile's logits anew, except when there is one tile only.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: torch.Tensor,
        weight_VH: torch.Tensor,
        bias_V: torch.Tensor | None,
        targets_N: torch.Tensor,
        temperature: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        num, tile = len(targets_N), max(1, TILE_ELEMENTS // weight_VH.shape[0])
        logprobs_N = hidden_NH.new_empty(num, dtype=torch.float32)
        entropy_N = torch.empty_like(logprobs_N)
        norm_N = torch.empty_like(logprobs_N)
        probs_NV = None
        for start in range(0, num, tile):
            part = slice(start, start + tile)
            logits_nV = _logits(hidden_NH[part], weight_VH, bias_V, temperature)
            norm_N[part] = norm_n = logits_nV.logsumexp(-1)
            chosen_n = logits_nV.gather(-1, targets_N[part, None])[:, 0]
            logprobs_N[part] = chosen_n - norm_n
            probs_nV = (logits_nV - norm_n[:, None]).exp_()
            entropy_N[part] = norm_n - logits_nV.mul_(probs_nV).sum(-1)
            probs_NV = probs_nV if num <= tile else None
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, targets_N, norm_N, probs_NV)
        ctx.temperature, ctx.tile = temperature, tile
        ctx.mark_non_differentiable(entropy_N)
        return logprobs_N, entropy_N

    @staticmethod
    def backward(
        ctx: Any, grad_N: torch.Tensor, _entropy: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        hidden_NH, weight_VH, bias_V, targets_N, norm_N, probs_NV = ctx.saved_tensors
        grad_hidden_NH = torch.empty_like(hidden_NH)
        grad_weight_VH = torch.zeros_like(weight_VH) if ctx.needs_input_grad[1] else None
        grad_bias_V = None if bias_V is None else torch.zeros_like(bias_V)
        weight_cast_VH = weight_VH.to(hidden_NH.dtype)
        for start in range(0, len(targets_N), ctx.tile):
            part = slice(start, start + ctx.tile)
            if probs_NV is None:
                logits_nV = _logits(hidden_NH[part], weight_VH, bias_V, ctx.temperature)
                probs_nV = logits_nV.sub_(norm_N[part, None]).exp_()
            else:
                probs_nV = probs_NV
            # d logprob / d logits = onehot(target) - probs, over the temperature.
            scale_n1 = grad_N[part, None] / ctx.temperature
            delta_nV = probs_nV * -scale_n1
            delta_nV.scatter_add_(-1, targets_N[part, None], scale_n1)
            if grad_bias_V is not None:
                grad_bias_V += delta_nV.sum(0).to(grad_bias_V.dtype)
            delta_nV = delta_nV.to(hidden_NH.dtype)
            torch.mm(delta_nV, weight_cast_VH, out=grad_hidden_NH[part])
            if grad_weight_VH is not None:
                grad_weight_VH += (delta_nV.T @ hidden_NH[part]).to(grad_weight_VH.dtype)
        return grad_hidden_NH, grad_weight_VH, grad_bias_V, None, None


def _logits(
    hidden_nH: torch.Tensor,
    weight_VH: torch.Tensor,
    bias_V: torch.Tensor | None,
    temperature: float,
) -> torch.Tensor:
    """Float32 logits [n, V] over `temperature`: the model's own arithmetic, then float32."""
    bias = None if bias_V is None else bias_V.to(hidden_nH.dtype)
    logits_nV = torch.nn.functional.linear(hidden_nH, weight_VH.to(hidden_nH.dtype), bias)
    return logits_nV.float() if temperature == 1.0 else logits_nV.float() / temperature
