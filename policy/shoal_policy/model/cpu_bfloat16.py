"""The compute type of a model on a processor: bfloat16 if that is measured to be faster.

Processors with `amx_bf16` multiply matrices seven times as fast in bfloat16 as in float32, those
with `avx512_bf16` about twice. Others emulate it: five times slower than float32 (AVX-512).
"""

from __future__ import annotations

import logging
import time
from functools import cache
from typing import Any, Final

import torch

log = logging.getLogger(__name__)

MIN_GAIN: Final = 1.5
"""Gain of one layer that pays for the casts around it. With AMX it is 4 and more."""
MIN_WEIGHTS: Final = 20_000_000
"""Weights below which a model is too small to gain: its products are shorter than the casts."""
_ROWS: Final = 64
"""Tokens computed together, as when eight questions have eight answers each."""
_MAX_SIZE: Final = 2048
_REPEATS: Final = 5


def cpu_compute_dtype(model: Any) -> torch.dtype | None:
    """Return bfloat16 if this processor computes a float32 model faster in it, else None.

    Takes milliseconds: it times one product of the size of the model's largest layer.
    """
    if sum(weight.numel() for weight in model.parameters()) < MIN_WEIGHTS:
        return None
    head = model.get_output_embeddings()
    layers = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    if not layers:
        return None
    sizes = max(((one.in_features, one.out_features) for one in layers), key=lambda s: s[0] * s[1])
    gain = bfloat16_gain(*(min(size, _MAX_SIZE) for size in sizes))
    if gain < MIN_GAIN:
        return None
    log.info(
        "computing in bfloat16 with float32 weights: this processor is %.1f times as fast in it; "
        "--dtype float32 does not",
        gain,
    )
    return torch.bfloat16


@cache
def bfloat16_gain(num_in: int, num_out: int) -> float:
    """Return how much faster a float32 layer is under autocast, its casts included."""
    layer = torch.nn.Linear(num_in, num_out, bias=False)
    rows = torch.zeros(_ROWS, num_in)

    def best(*, enabled: bool) -> float:
        seconds = []
        for _ in range(_REPEATS):
            # A context of its own each time, since it keeps casted weights.
            with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                started = time.perf_counter()
                layer(rows)
                seconds.append(time.perf_counter() - started)
        return min(seconds)

    return best(enabled=False) / best(enabled=True)
