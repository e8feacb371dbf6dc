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

TILE_ELEMENTS = 1 << 24
"""Logits held at once: 64 MiB of float32, and as much for their probabilities."""

Expected = Callable[[torch.Tensor, slice], torch.Tensor]
"""(log-probabilities [n], which of the N tokens they are) → gradient of the loss by them, [n]."""


def head_logprobs(
    hidden_NH: torch.Tensor,
    weight_VH: torch.Tensor,
    bias_V: torch.Tensor | None,
    targets_N: torch.Tensor,
    temperature: float,
    expected: Expected | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each target, and entropy, both [N], float32, in nats.

    The first is differentiable by hidden states, matrix and bias; the second carries no gradient.
    """
    if not torch.is_grad_enabled():
        expected = None
    found: tuple[torch.Tensor, torch.Tensor] = _HeadLogprobs.apply(
        hidden_NH, weight_VH, bias_V, targets_N, temperature, expected
    )
    return found


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
    ) -> None:
        num, vocabulary = len(hidden_NH), weight_VH.shape[0]
        size = min(num, max(1, TILE_ELEMENTS // vocabulary))
        self._hidden_NH, self._weight_VH = hidden_NH, weight_VH.to(hidden_NH.dtype)
        self._bias_V = None if bias_V is None else bias_V.to(hidden_NH.dtype)
        self._temperature = temperature
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
            torch.mm(hidden_nH, self._weight_VH.T, out=out_nV)
            if self._bias_V is not None:
                out_nV += self._bias_V
        else:
            out_nV.copy_(torch.nn.functional.linear(hidden_nH, self._weight_VH, self._bias_V))
        if self._temperature != 1.0:
            out_nV /= self._temperature
        return out_nV, self._other_nV[: len(hidden_nH)]


class _Gradients:
    """What backward returns, added up tile by tile."""

    def __init__(
        self, hidden_NH: torch.Tensor, weight_VH: torch.Tensor, bias_V: Any, needed: Any
    ) -> None:
        self._hidden_NH = hidden_NH
        self._cast_VH = weight_VH.to(hidden_NH.dtype)
        self.hidden = torch.empty_like(hidden_NH) if needed[0] else None
        self.weight = torch.zeros_like(weight_VH) if needed[1] else None
        self.bias = torch.zeros_like(bias_V) if bias_V is not None and needed[2] else None

    def add(self, part: slice, delta_nV: torch.Tensor) -> None:
        """`delta_nV` is the gradient by the tile's logits, float32."""
        if self.bias is not None:
            self.bias += delta_nV.sum(0).to(self.bias.dtype)
        delta_nV = delta_nV.to(self._hidden_NH.dtype)
        if self.hidden is not None:
            torch.mm(delta_nV, self._cast_VH, out=self.hidden[part])
        if self.weight is None:
            return
        if self.weight.dtype == delta_nV.dtype:
            # No second matrix of this size: on a large vocabulary adding one costs more than n·V·H.
            self.weight.addmm_(delta_nV.T, self._hidden_NH[part])
        else:
            self.weight += (delta_nV.T @ self._hidden_NH[part]).to(self.weight.dtype)


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
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tiles = _Tiles(hidden_NH, weight_VH, bias_V, temperature)
        logprobs_N = hidden_NH.new_empty(len(targets_N), dtype=torch.float32)
        entropy_N = torch.empty_like(logprobs_N)
        foretold_N = made = None
        if expected is not None:
            foretold_N = torch.empty_like(logprobs_N)
            made = _Gradients(hidden_NH, weight_VH, bias_V, ctx.needs_input_grad)
        for part in tiles.parts:
            logits_nV, other_nV = tiles.logits(part)
            targets_n1 = targets_N[part, None]
            torch.log_softmax(logits_nV, -1, out=other_nV)
            logprobs_N[part] = logprobs_n = other_nV.gather(-1, targets_n1)[:, 0]
            probs_nV = torch.exp(other_nV, out=logits_nV)
            entropy_N[part] = -torch.bmm(probs_nV[:, None], other_nV[..., None])[:, 0, 0]
            if expected is not None and foretold_N is not None and made is not None:
                foretold_N[part] = grad_n = expected(logprobs_n, part)
                made.add(part, _delta(probs_nV, targets_n1, grad_n / temperature))
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, targets_N, foretold_N)
        ctx.temperature, ctx.made = temperature, made
        ctx.mark_non_differentiable(entropy_N)
        return logprobs_N, entropy_N

    @staticmethod
    def backward(
        ctx: Any, grad_N: torch.Tensor, _entropy: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        hidden_NH, weight_VH, bias_V, targets_N, foretold_N = ctx.saved_tensors
        made, ctx.made = ctx.made, None
        if made is None or not torch.equal(foretold_N, grad_N):
            made = _Gradients(hidden_NH, weight_VH, bias_V, ctx.needs_input_grad)
            tiles = _Tiles(hidden_NH, weight_VH, bias_V, ctx.temperature)
            for part in tiles.parts:
                logits_nV, other_nV = tiles.logits(part)
                # As in the forward pass, so that what is foretold is equal to the bit.
                torch.log_softmax(logits_nV, -1, out=other_nV)
                probs_nV = torch.exp(other_nV, out=logits_nV)
                made.add(
                    part, _delta(probs_nV, targets_N[part, None], grad_N[part] / ctx.temperature)
                )
        return made.hidden, made.weight, made.bias, None, None, None


def _delta(probs_nV: torch.Tensor, targets_n1: torch.Tensor, scale_n: torch.Tensor) -> torch.Tensor:
    """Gradient by the logits, in place of `probs_nV`: (onehot(target) − probability) · scale."""
    return probs_nV.mul_(-scale_n[:, None]).scatter_add_(-1, targets_n1, scale_n[:, None])
