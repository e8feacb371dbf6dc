"""Output matrix, log-softmax and target selection fused, tile by tile, never all logits at once.

A tile is a few tokens by the whole vocabulary. The gradient of a tile needs its probabilities,
which exist only while the tile does; recomputing them later is a quarter of the work for a large
vocabulary. A policy-gradient loss is a function of the token's log-probability and constants, so
its gradient is known in advance: with `expected` the tile's gradient is computed at once. If a
different gradient arrives in the backward pass, it is recomputed: the prediction is never trusted.

Shapes: N tokens, n tokens of a tile, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from shoal_policy.model.logit_form import PLAIN, LogitForm

TILE_ELEMENTS = 1 << 24
"""Logits in memory at once: 64 MiB of float32, and the same for their probabilities."""
GPU_TILE_ELEMENTS = 1 << 28
"""The same on a GPU, where each tile reads and writes the whole gradient of the output matrix, so
there should be few tiles."""

ExpectedGradient = Callable[[torch.Tensor, slice], torch.Tensor]
"""(log-probabilities [n], which of the N tokens they are) → gradient of the loss by them, [n]."""


def head_logprobs(
    hidden_NH: torch.Tensor,
    weight_VH: torch.Tensor,
    bias_V: torch.Tensor | None,
    targets_N: torch.Tensor,
    temperature: float,
    expected: ExpectedGradient | None = None,
    form: LogitForm = PLAIN,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probability of each target, and the entropy: [N], float32, in nats.

    `form` is how the model changes the product of hidden states and matrix. The log-probabilities
    are differentiable by hidden states, matrix and bias; the entropy carries no gradient.
    """
    if not torch.is_grad_enabled():
        expected = None
    found: tuple[torch.Tensor, torch.Tensor] = _HeadLogprobs.apply(
        hidden_NH, weight_VH, bias_V, targets_N, temperature, expected, form
    )
    return found


def tile_rows(num: int, vocabulary: int, device: torch.device) -> int:
    """Return how many of `num` tokens have their logits in memory at once."""
    elements = TILE_ELEMENTS if device.type == "cpu" else GPU_TILE_ELEMENTS
    return min(num, max(1, elements // vocabulary))


class _Tiles:
    """Logits of one tile after another, in the same two buffers.

    Fresh memory of this size comes from the kernel page by page, a third of a tile's time.
    """

    def __init__(
        self,
        hidden_NH: torch.Tensor,
        weight_VH: torch.Tensor,
        bias_V: torch.Tensor | None,
        temperature: float,
        form: LogitForm,
    ) -> None:
        num, vocabulary = len(hidden_NH), weight_VH.shape[0]
        size = tile_rows(num, vocabulary, hidden_NH.device)
        self.weight_VH = weight_VH.to(hidden_NH.dtype)
        """The matrix in the compute dtype, cast once."""
        self._hidden_NH = hidden_NH
        self._bias_V = None if bias_V is None else bias_V.to(hidden_NH.dtype)
        self._temperature, self._form = temperature, form
        self._slope_nV: torch.Tensor | None = None
        self._logits_nV = hidden_NH.new_empty(size, vocabulary, dtype=torch.float32)
        self._other_nV = torch.empty_like(self._logits_nV)
        self.parts = [slice(at, min(at + size, num)) for at in range(0, num, size)]

    def logits(self, part: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Return float32 logits [n, V] divided by the temperature, and a buffer of the same shape.

        The product is computed in the model's dtype, then converted.
        """
        hidden_nH = self._hidden_NH[part]
        out_nV = self._logits_nV[: len(hidden_nH)]
        if hidden_nH.dtype == torch.float32:
            torch.mm(hidden_nH, self.weight_VH.T, out=out_nV)
            if self._bias_V is not None:
                out_nV += self._bias_V
        else:
            out_nV.copy_(torch.nn.functional.linear(hidden_nH, self.weight_VH, self._bias_V))
        if not self._form.is_plain:
            self._slope_nV = self._form.slope_of(self._form.apply_(out_nV))
        if self._temperature != 1.0:
            out_nV /= self._temperature
        return out_nV, self._other_nV[: len(hidden_nH)]

    def delta(
        self, probs_nV: torch.Tensor, targets_n1: torch.Tensor, grad_n: torch.Tensor
    ) -> torch.Tensor:
        """Return the gradient by the latest tile's product, in place of its probabilities.

        By the logits it is (onehot(target) − probability) · gradient / temperature.
        """
        scale_n = grad_n * (self._form.scale / self._temperature)
        delta_nV = probs_nV.mul_(-scale_n[:, None])
        delta_nV.scatter_add_(-1, targets_n1, scale_n[:, None])
        return delta_nV if self._slope_nV is None else delta_nV.mul_(self._slope_nV)


class _Gradients:
    """The gradients that backward returns, accumulated tile by tile."""

    def __init__(
        self,
        hidden_NH: torch.Tensor,
        cast_VH: torch.Tensor,
        weight_VH: torch.Tensor,
        bias_V: Any,
        needed: Any,
    ) -> None:
        """`cast_VH` is the matrix in the dtype of the hidden states."""
        self._hidden_NH, self._cast_VH = hidden_NH, cast_VH
        self._dtypes = weight_VH.dtype, None if bias_V is None else bias_V.dtype
        self.hidden = torch.empty_like(hidden_NH) if needed[0] else None
        # Accumulated in float32: bfloat16 would lose the small contributions to a rare token.
        self._weight = torch.zeros_like(weight_VH, dtype=torch.float32) if needed[1] else None
        has_bias = bias_V is not None and needed[2]
        self._bias = torch.zeros_like(bias_V, dtype=torch.float32) if has_bias else None

    @property
    def weight(self) -> torch.Tensor | None:
        """Return the gradient by the output matrix, in its dtype."""
        return None if self._weight is None else self._weight.to(self._dtypes[0])

    @property
    def bias(self) -> torch.Tensor | None:
        """Return the gradient by the bias, in its dtype."""
        return None if self._bias is None else self._bias.to(self._dtypes[1])

    def add(self, part: slice, delta_nV: torch.Tensor) -> None:
        """Add a tile; `delta_nV` is the gradient by its product, float32."""
        if self._bias is not None:
            self._bias += delta_nV.sum(0)
        delta_nV = delta_nV.to(self._hidden_NH.dtype)
        if self.hidden is not None:
            torch.mm(delta_nV, self._cast_VH, out=self.hidden[part])
        if self._weight is None:
            return
        if delta_nV.dtype == torch.float32:
            # In place: for a large vocabulary adding a second matrix costs more than n·V·H.
            self._weight.addmm_(delta_nV.T, self._hidden_NH[part])
        else:
            self._weight += delta_nV.T @ self._hidden_NH[part]


class _HeadLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: torch.Tensor,
        weight_VH: torch.Tensor,
        bias_V: torch.Tensor | None,
        targets_N: torch.Tensor,
        temperature: float,
        expected: ExpectedGradient | None,
        form: LogitForm,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tiles = _Tiles(hidden_NH, weight_VH, bias_V, temperature, form)
        logprobs_N = hidden_NH.new_empty(len(targets_N), dtype=torch.float32)
        entropy_N = torch.empty_like(logprobs_N)
        expected_N = gradients = None
        if expected is not None:
            expected_N = torch.empty_like(logprobs_N)
            gradients = _Gradients(
                hidden_NH, tiles.weight_VH, weight_VH, bias_V, ctx.needs_input_grad
            )
        for part in tiles.parts:
            logits_nV, other_nV = tiles.logits(part)
            targets_n1 = targets_N[part, None]
            torch.log_softmax(logits_nV, -1, out=other_nV)
            logprobs_N[part] = logprobs_n = other_nV.gather(-1, targets_n1)[:, 0]
            probs_nV = torch.exp(other_nV, out=logits_nV)
            entropy_N[part] = -torch.bmm(probs_nV[:, None], other_nV[..., None])[:, 0, 0]
            if expected is not None and expected_N is not None and gradients is not None:
                expected_N[part] = grad_n = expected(logprobs_n, part)
                gradients.add(part, tiles.delta(probs_nV, targets_n1, grad_n))
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, targets_N, expected_N)
        ctx.temperature, ctx.form, ctx.gradients = temperature, form, gradients
        ctx.mark_non_differentiable(entropy_N)
        return logprobs_N, entropy_N

    @staticmethod
    def backward(
        ctx: Any, grad_N: torch.Tensor, _entropy: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        hidden_NH, weight_VH, bias_V, targets_N, expected_N = ctx.saved_tensors
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None or not torch.equal(expected_N, grad_N):
            tiles = _Tiles(hidden_NH, weight_VH, bias_V, ctx.temperature, ctx.form)
            gradients = _Gradients(
                hidden_NH, tiles.weight_VH, weight_VH, bias_V, ctx.needs_input_grad
            )
            for part in tiles.parts:
                logits_nV, other_nV = tiles.logits(part)
                # The same operations as in the forward pass, so that results are bit-identical.
                torch.log_softmax(logits_nV, -1, out=other_nV)
                probs_nV = torch.exp(other_nV, out=logits_nV)
                gradients.add(part, tiles.delta(probs_nV, targets_N[part, None], grad_N[part]))
        return gradients.hidden, gradients.weight, gradients.bias, None, None, None, None
