"""One GRPO update step: ours against TRL's and against plain full logits, in CPU seconds.

The same random Qwen2 (hidden size 256, 4 layers), rows, float32 and optimiser for all, on one
thread; candidates take turns within each repeat. TRL twice: by its defaults, with gradient
checkpointing, and without, its fastest setting. A run whose losses or gradient norms differ ends
with an error: a faster step of another loss is no result. Peak memory is measured in a child
process for each candidate, above its memory before the step, at a vocabulary of 151,936.

At that vocabulary TRL's CPU path scores every position, prompts and padding included, which a
GPU's does not: so the plain step is measured, too.

Next to the ratios stands the share of the machine's limit that ours reaches: the limit is that of a
large matrix product in the same run, in float32; that in bfloat16 is shown for comparison.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from benchmarks.harness import ROOT, Goal, Options, Report, at_least, at_most, main, note
from benchmarks.machine_limit import gflops
from benchmarks.update_cases import (
    CASES,
    LARGE_VOCABULARY,
    Case,
    Outcome,
    make_candidate,
    step_gflop,
)

CANDIDATES = ("ours", "plain", "trl", "trl_default")
MEMORY_LIMIT_SECONDS = 600.0
GOALS = (
    ("equal", 1.4),
    ("mixed_long_prompts", 3.0),
    ("half_without_signal", 4.0),
    ("large_vocabulary", 7.0),
)
"""At least this many times faster than TRL, by its defaults and at its fastest."""
FASTEST_GOALS = (
    ("equal_64", 1.35),
    ("mixed_64", 2.1),
    ("mixed_long_prompts", 3.3),
    ("half_without_signal_64", 4.7),
    ("large_vocabulary", 5.1),
)
"""And what another step of the same design has reached against TRL at its fastest."""
PLAIN_GOAL = ("large_vocabulary", 3.0)


def measure(options: Options) -> Report:
    """Time each case, then measure memory at the large vocabulary. Quick: fewer groups and
    repeats."""
    torch.set_num_threads(1)
    limits = {
        "float32": gflops(torch.float32),
        "bfloat16": gflops(torch.bfloat16),
    }
    cases: dict[str, Any] = {}
    for name, case in CASES.items():
        note(f"  {name}")
        large = case.vocabulary == LARGE_VOCABULARY
        case = _smaller(case, large=large) if options.quick else case
        repeats = 1 if options.quick and large else 3
        cases[name] = _time(case, repeats, warm=not large)
        reached = step_gflop(case) / cases[name]["ours_seconds"]
        cases[name]["ours_share_of_limit"] = reached / limits["float32"]
    large_case = CASES["large_vocabulary"]
    memory: dict[str, Any] = {}
    for name in CANDIDATES:
        note(f"  memory of {name}")
        memory[f"{name}_mib"] = _memory(name, quick=options.quick)
    memory["ours_share_of_trl"] = memory["ours_mib"] / memory["trl_mib"]
    results = {
        "limit_gflop_per_cpu_second": limits,
        "cpu_seconds": cases,
        "peak_memory_above_resident": {"vocabulary": large_case.vocabulary, **memory},
    }
    return Report(results=results, goals=_goals(cases, memory))


def _smaller(case: Case, *, large: bool) -> Case:
    groups = 1 if large else 4
    return replace(case, groups=groups, silent_groups=min(case.silent_groups, groups // 2))


def _time(case: Case, repeats: int, *, warm: bool) -> dict[str, Any]:
    """Medians of paired repeats. Without `warm` the first step counts, because one takes half a
    minute."""
    with tempfile.TemporaryDirectory() as folder:
        candidates = {name: make_candidate(name, case, folder) for name in CANDIDATES}
        seconds: dict[str, list[float]] = {name: [] for name in CANDIDATES}
        first: dict[str, Outcome] = {}
        for _ in range(repeats + warm):
            for name, candidate in candidates.items():
                started = time.process_time()
                outcome = candidate.step()
                seconds[name].append(time.process_time() - started)
                first.setdefault(name, outcome)
    _require_equal(first)
    counted = {name: values[warm:] for name, values in seconds.items()}
    paired = {
        name: [theirs / ours for theirs, ours in zip(counted[name], counted["ours"], strict=True)]
        for name in CANDIDATES[1:]
    }
    return {
        "rows": case.groups * 8,
        "repeats": repeats,
        "loss": first["ours"].loss,
        **{f"{name}_seconds": median(values) for name, values in counted.items()},
        **{f"{name}_over_ours": median(values) for name, values in paired.items()},
    }


def _require_equal(outcomes: dict[str, Outcome]) -> None:
    ours = outcomes["ours"]
    for name, other in outcomes.items():
        if abs(other.loss - ours.loss) > 1e-5 or abs(other.grad_norm / ours.grad_norm - 1) > 1e-4:
            raise RuntimeError(f"{name} took another step: {other}, ours {ours}")


def _memory(name: str, *, quick: bool) -> float:
    """MiB that one step of a candidate added at its peak, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.update_memory", name, "1" if quick else "2"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=MEMORY_LIMIT_SECONDS,
        check=True,
    )
    return float(json.loads(done.stdout)["peak_mib"])


def _goals(cases: dict[str, Any], memory: dict[str, Any]) -> list[Goal]:
    goals = []
    peers = [(case, other, least) for case, least in GOALS for other in ("trl_default", "trl")]
    fastest = [(case, "trl", least) for case, least in FASTEST_GOALS]
    for case, other, least in [*peers, *fastest, (PLAIN_GOAL[0], "plain", PLAIN_GOAL[1])]:
        found = cases[case][f"{other}_over_ours"]
        goals.append(at_least(f"{case}: CPU seconds of {other} over ours", found, least))
    share = memory["ours_share_of_trl"]
    goals.append(at_most("large_vocabulary: peak memory, share of TRL's", share, 0.5))
    return goals


if __name__ == "__main__":
    sys.exit(main("update", __doc__, measure))
