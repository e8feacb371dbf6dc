"""Output matrix, log-softmax and choice of the target in one, tile by tile, never all logits.

A tile is some tokens by the whole vocabulary. What a tile's gradient needs, its probabilities, is
at hand only while the tile is: later they must be computed anew, a quarter of the work of a large
vocabulary. So whoever can tell beforehand what gradient will arrive (a policy-gradient loss can:
it is a function of the token's log-probability and of constants) has the tile's gradient made at
once. If another gradient arrives after all, it is made anew: the foretold one is never trusted.

Shapes: N tokens, n tokens of a tile, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from shoal_policy.model.logit_form import PLAIN, LogitForm

TILE_ELEMENTS = 1 << 24
"""Logits held at once: 64 MiB of float32, and as much for their probabilities."""
GPU_TILE_ELEMENTS = 1 << 28
"""The same on a GPU, whose memory is no cache: each tile reads and writes the whole gradient of
the output matrix, so there are to be few."""

Expected = Callable[[torch.Tensor, slice], torch.Tensor]
"""(log-probabilities [n], which of the N tokens they are) → gradient of the loss by them, [n]."""


def head_logprobs(
    hidden_NH: torch.Tensor,
    weight_VH: torch.Tensor,
    bias_V: torch.Tensor | None,
    targets_N: torch.Tensor,
    temperature: float,
    expected: Expected | None = None,
    form: LogitForm = PLAIN,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each target, and entropy, both [N], float32, in nats.

    `form` is what the model does to the product of hidden states and matrix. The first is
    differentiable by hidden states, matrix and bias; the second carries no gradient.
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
    """Logits of one tile after another in the same two pieces of memory.

    Fresh memory of this size comes from the kernel page by page: a third of a tile's time.
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
        """The matrix in the type that is computed in: cast once for all that is done with it."""
        self._hidden_NH = hidden_NH
        self._bias_V = None if bias_V is None else bias_V.to(hidden_NH.dtype)
        self._temperature, self._form = temperature, form
        self._slope_nV: torch.Tensor | None = None
        self._logits_nV = hidden_NH.new_empty(size, vocabulary, dtype=torch.float32)
        self._other_nV = torch.empty_like(self._logits_nV)
        self.parts = [slice(at, min(at + size, num)) for at in range(0, num, size)]

    def logits(self, part: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Float32 logits [n, V] over the temperature, and room for as many numbers.

        Computed in the model's own arithmetic, then float32.
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
        """Gradient by the latest tile's product, in place of its probabilities.

        By the logits it is (onehot(target) − probability) · gradient / temperature.
        """
        scale_n = grad_n * (self._form.scale / self._temperature)
        delta_nV = probs_nV.mul_(-scale_n[:, None])
        delta_nV.scatter_add_(-1, targets_n1, scale_n[:, None])
        return delta_nV if self._slope_nV is None else delta_nV.mul_(self._slope_nV)


class _Gradients:
    """The gradients that backward returns, added up tile by tile."""

    def __init__(
        self,
        hidden_NH: torch.Tensor,
        cast_VH: torch.Tensor,
        weight_VH: torch.Tensor,
        bias_V: Any,
        needed: Any,
    ) -> None:
        """`cast_VH` is the matrix in the type of the hidden states."""
        self._hidden_NH, self._cast_VH = hidden_NH, cast_VH
        self._dtypes = weight_VH.dtype, None if bias_V is None else bias_V.dtype
        self.hidden = torch.empty_like(hidden_NH) if needed[0] else None
        # Added up in float32: in bfloat16 what many tiles add to a rare token's row is lost.
        self._weight = torch.zeros_like(weight_VH, dtype=torch.float32) if needed[1] else None
        has_bias = bias_V is not None and needed[2]
        self._bias = torch.zeros_like(bias_V, dtype=torch.float32) if has_bias else None

    @property
    def weight(self) -> torch.Tensor | None:
        """Gradient by the output matrix, in its type."""
        return None if self._weight is None else self._weight.to(self._dtypes[0])

    @property
    def bias(self) -> torch.Tensor | None:
        """Gradient by the bias, in its type."""
        return None if self._bias is None else self._bias.to(self._dtypes[1])

    def add(self, part: slice, delta_nV: torch.Tensor) -> None:
        """`delta_nV` is the gradient by the tile's product, float32."""
        if self._bias is not None:
            self._bias += delta_nV.sum(0)
        delta_nV = delta_nV.to(self._hidden_NH.dtype)
        if self.hidden is not None:
            torch.mm(delta_nV, self._cast_VH, out=self.hidden[part])
        if self._weight is None:
            return
        if delta_nV.dtype == torch.float32:
            # No second matrix of this size: on a large vocabulary adding one costs more than n·V·H.
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
        expected: Expected | None,
        form: LogitForm,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tiles = _Tiles(hidden_NH, weight_VH, bias_V, temperature, form)
        logprobs_N = hidden_NH.new_empty(len(targets_N), dtype=torch.float32)
        entropy_N = torch.empty_like(logprobs_N)
        foretold_N = made = None
        if expected is not None:
            foretold_N = torch.empty_like(logprobs_N)
            made = _Gradients(hidden_NH, tiles.weight_VH, weight_VH, bias_V, ctx.needs_input_grad)
        for part in tiles.parts:
            logits_nV, other_nV = tiles.logits(part)
            targets_n1 = targets_N[part, None]
            torch.log_softmax(logits_nV, -1, out=other_nV)
            logprobs_N[part] = logprobs_n = other_nV.gather(-1, targets_n1)[:, 0]
            probs_nV = torch.exp(other_nV, out=logits_nV)
            entropy_N[part] = -torch.bmm(probs_nV[:, None], other_nV[..., None])[:, 0, 0]
            if expected is not None and foretold_N is not None and made is not None:
                foretold_N[part] = grad_n = expected(logprobs_n, part)
                made.add(part, tiles.delta(probs_nV, targets_n1, grad_n))
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, targets_N, foretold_N)
        ctx.temperature, ctx.form, ctx.made = temperature, form, made
        ctx.mark_non_differentiable(entropy_N)
        return logprobs_N, entropy_N

    @staticmethod
    def backward(
        ctx: Any, grad_N: torch.Tensor, _entropy: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        hidden_NH, weight_VH, bias_V, targets_N, foretold_N = ctx.saved_tensors
        made, ctx.made = ctx.made, None
        if made is None or not torch.equal(foretold_N, grad_N):
            tiles = _Tiles(hidden_NH, weight_VH, bias_V, ctx.temperature, ctx.form)
            made = _Gradients(hidden_NH, tiles.weight_VH, weight_VH, bias_V, ctx.needs_input_grad)
            for part in tiles.parts:
                logits_nV, other_nV = tiles.logits(part)
                # The forward pass's own operations, so that the prediction is equal to the bit.
                torch.log_softmax(logits_nV, -1, out=other_nV)
                probs_nV = torch.exp(other_nV, out=logits_nV)
                made.add(part, tiles.delta(probs_nV, targets_N[part, None], grad_N[part]))
        return made.hidden, made.weight, made.bias, None, None, None, None
