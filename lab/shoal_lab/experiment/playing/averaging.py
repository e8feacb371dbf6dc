"""Weights averaged between policies: what nodes do that trust each other and can pay for the bytes.

    after every K rounds:   weights of node 1 ┐
                            weights of node 2 ├─ mean ─▶ every node
                            weights of node 3 ┘

Plain averaging of parameters, as DiLoCo's (arXiv 2311.08105) with an outer step of 1 and without
outer momentum. The state of each node's optimiser stays its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def average(models: Sequence[torch.nn.Module]) -> int:
    """Give every model the mean of their trained weights; return the bytes that each has sent.

    Nothing is sent: the bytes are arithmetic, of an all-reduce in a ring, in which each of N sends
    2 (N - 1) / N of its weights, at the size that they are held at.

    Raises:
        RuntimeError: the weights are not of the same shapes.
    """
    num_bytes = 0
    columns = zip(*(_trained(model) for model in models), strict=True)
    with torch.no_grad():
        for column in columns:
            # Where they are kept there may be no such floats.
            mean = torch.stack([weight.data.cpu().double() for weight in column]).mean(dim=0)
            for weight in column:
                weight.data.copy_(mean)
            num_bytes += column[0].numel() * column[0].element_size()
    return 2 * (len(models) - 1) * num_bytes // len(models)


def _trained(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [weight for weight in model.parameters() if weight.requires_grad]
