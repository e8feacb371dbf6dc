"""The machine's limit in floating-point operations, measured in the run that needs it."""

from __future__ import annotations

import time
from typing import Final

import torch

_SIZES: Final = ((1024, 1024, 1024), (512, 2048, 2048), (2048, 1024, 4096))
"""Rows, inputs and outputs of the products; the fastest counts."""
_REPEATS: Final = 5


def gflops(dtype: torch.dtype) -> float:
    """Return the most GFLOP per CPU second that a matrix product in a type reaches here."""
    return max(_of_product(*size, dtype) for size in _SIZES)


def _of_product(rows: int, num_in: int, num_out: int, dtype: torch.dtype) -> float:
    left, right = torch.ones(rows, num_in, dtype=dtype), torch.ones(num_in, num_out, dtype=dtype)
    out = torch.mm(left, right)  # warm
    seconds = []
    for _ in range(_REPEATS):
        started = time.process_time()
        torch.mm(left, right, out=out)
        seconds.append(time.process_time() - started)
    return 2e-9 * rows * num_in * num_out / min(seconds)
