"""Child of `benchmarks.update`: how much memory one step of one candidate adds at its peak.

Called as ``update_memory CANDIDATE GROUPS``. Linux only: the kernel keeps the peak.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.update_cases import CASES, make_candidate

_PROCESS = Path("/proc/self")


def peak_of_step(name: str, groups: int) -> float:
    """MiB above what was resident before: weights and optimiser state are, gradients are not."""
    torch.set_num_threads(1)
    case = replace(CASES["large_vocabulary"], groups=groups)
    with tempfile.TemporaryDirectory() as folder:
        candidate: Any = make_candidate(name, case, folder)
        _make_optimizer_state(candidate.optimizer)
        (_PROCESS / "clear_refs").write_text("5")  # the peak is now what is resident
        before = _kib("VmRSS")
        candidate.step()
        return (_kib("VmHWM") - before) / 1024


def _make_optimizer_state(optimizer: Any) -> None:
    for group in optimizer.param_groups:
        for weight in group["params"]:
            weight.grad = torch.zeros_like(weight)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _kib(field: str) -> int:
    for line in (_PROCESS / "status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise RuntimeError(f"the kernel does not tell {field}")


if __name__ == "__main__":
    print(json.dumps({"peak_mib": peak_of_step(sys.argv[1], int(sys.argv[2]))}))
