"""Generation: ours against transformers' plain ``generate`` and its continuous batching.

The same model in float32, prompts, number of completions and sampling settings for all, on one
thread; candidates take turns within each repeat. Rows end at different times. Compared is the time
per sampled token, including end tokens but not padding: CPU seconds, and wall time. A run in which
the three give different greedy tokens ends with an error.

Three models: the embedded one with questions of its own tasks; a random Qwen2 of hidden size 256
and 4 layers; a random one of Qwen2.5-0.5B's dimensions with 4 layers.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from transformers.utils import logging as transformers_logging

from benchmarks.generation_cases import CANDIDATES, CASES, Case, Run, make_policy, make_prompts
from benchmarks.harness import Options, Report, at_least, main, note
from shoal_policy.model.loading import Policy

REPEATS, QUICK_REPEATS = 7, 2
PEERS = ("plain", "continuous")
_GREEDY_TOKENS = 6


@dataclass(frozen=True, slots=True)
class Timing:
    """One run."""

    tokens: int
    cpu_seconds: float
    wall_seconds: float


def measure(options: Options) -> Report:
    """Time each case. Quick: fewer repeats and prompts."""
    torch.set_num_threads(1)
    transformers_logging.set_verbosity_error()
    results: dict[str, Any] = {}
    goals = []
    for case in CASES:
        note(f"  {case.name}")
        if options.quick:
            case = replace(case, prompts=case.prompts // 2, max_new=min(16, case.max_new))
        found = results[case.name] = _time(case, QUICK_REPEATS if options.quick else REPEATS)
        ratio = found["cpu_ratio"]["plain"]
        goals.append(
            at_least(
                f"{case.name}: CPU seconds a token of plain generate over ours", ratio, case.goal
            )
        )
    return Report(results=results, goals=goals)


def _time(case: Case, repeats: int) -> dict[str, Any]:
    policy = make_policy(case)
    prompts = make_prompts(case, policy)
    runs = {name: make(policy, prompts, case) for name, make in CANDIDATES.items()}
    _require_equal(policy, prompts, replace(case, max_new=_GREEDY_TOKENS))
    timings: dict[str, list[Timing]] = {name: [] for name in runs}
    for repeat in range(repeats):
        for name, run in runs.items():
            timings[name].append(_timed(run, repeat))
    return {
        "rows": len(prompts) * 8,
        "prompt_tokens": {"least": min(map(len, prompts)), "most": max(map(len, prompts))},
        "mean_completion_tokens": median([t.tokens for t in timings["ours"]]) / len(prompts) / 8,
        "tokens_per_cpu_second": {
            name: median([t.tokens / t.cpu_seconds for t in found])
            for name, found in timings.items()
        },
        "tokens_per_second": {
            name: median([t.tokens / t.wall_seconds for t in found])
            for name, found in timings.items()
        },
        "cpu_ratio": {name: _ratio(timings[name], timings["ours"]) for name in PEERS},
    }


def _ratio(theirs: Sequence[Timing], ours: Sequence[Timing]) -> float:
    """Median of the repeats' ratios of CPU seconds a token."""
    return median(
        [
            (their.cpu_seconds / their.tokens) / (our.cpu_seconds / our.tokens)
            for their, our in zip(theirs, ours, strict=True)
        ]
    )


def _timed(run: Run, seed: int) -> Timing:
    cpu, wall = time.process_time(), time.perf_counter()
    rows = run(seed, 1.0)
    return Timing(sum(map(len, rows)), time.process_time() - cpu, time.perf_counter() - wall)


def _require_equal(policy: Policy, prompts: Sequence[Sequence[int]], case: Case) -> None:
    """Warm up, greedily: all must give the same tokens."""
    ours, *others = [make(policy, prompts, case)(0, 0.0) for make in CANDIDATES.values()]
    for name, rows in zip(PEERS, others, strict=True):
        if rows != ours[:: len(ours) // len(rows)]:
            raise RuntimeError(f"{name} generates other tokens than ours")


if __name__ == "__main__":
    sys.exit(main("generation", __doc__, measure))
