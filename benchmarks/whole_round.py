"""A whole GRPO round (questions, generation, scoring, update): ours against TRL's, in CPU seconds.

Ours is the real `shoal trainer --alone`, TRL's the installed `GRPOTrainer.train()`, its own
generation included, each in a process of its own on one thread; they take turns within a repeat. A
round's cost is that of the process and its children (our scores come from a task worker's process,
TRL's from the same scorers in its own) from the end of one optimiser step to the end of the next.
TRL twice: by its defaults, with gradient checkpointing and 8 rows a micro-batch, and as fast as it
gets: without, at the best of a few sizes of a micro-batch, which are tried first, and with an
allocator that keeps the pages it has (which costs memory, and hardly changes ours).

The same for all: model, float32, the questions of each round, 8 answers to each, sampling at
temperature 1 from the whole distribution, verifier, loss, clipping, AdamW, rate, one step a round;
no evaluation, log, checkpoint or KL in a round that counts. A run whose questions differ, or whose
answers' lengths or groups with signal are too far apart, ends with an error. For a model that is
never right the reward is drawn by lot: see `whole_round_cases`.

What TRL does that ours does not: it computes a prompt for each of its answers, in generation and in
the update; on a CPU it scores the positions of prompts and padding too, which a GPU's kernel leaves
out, so that its cost grows with the vocabulary; and it trains on groups without signal. What ours
does that TRL does not: it makes the questions within the round (TRL's are made before), and writes
metrics and status.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import ROOT, Goal, Options, Report, at_least, main, note
from benchmarks.whole_round_cases import CASES, Case, Found, write_random

LIMIT_SECONDS = 600.0
KEPT_PAGES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
"""For glibc, which otherwise returns large tensors to the system: a fifth to a third of TRL's long
rounds."""
SIGNAL_APART = 0.25
"""Most that two candidates' shares of groups with signal may differ."""
LENGTHS_APART, LENGTHS_APART_LEARNING = 0.05, 0.25
"""Most that one's answers may be longer than another's: for a random model, which answers up to the
limit, and for the embedded one, which learns from its samples."""


def measure(options: Options) -> Report:
    """Time each case. Quick: less of each, TRL's likely fastest alone, no large vocabulary."""
    cases = [_smaller(case) for case in CASES[:2]] if options.quick else CASES
    results: dict[str, Any] = {}
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
            if case.vocabulary:
                write_random(case.vocabulary, Path(folder))
            results[case.name] = _compare(case, Path(folder), quick=options.quick)
    return Report(results=results, goals=goals(cases, results))


def _smaller(case: Case) -> Case:
    sizes = case.micro_batches[:1]
    if case.vocabulary:
        return replace(case, questions=2, rounds=1, repeats=1, micro_batches=sizes)
    return replace(case, rounds=50, repeats=1, micro_batches=sizes)


def _compare(case: Case, folder: Path, *, quick: bool) -> dict[str, Any]:
    """Let the candidates take turns, TRL at the size of micro-batch that is fastest here."""
    tried = {
        rows: _run(f"trl_{rows}", case, folder).cpu_ms
        for rows in (case.micro_batches if len(case.micro_batches) > 1 else ())
    }
    fastest = min(tried, key=lambda rows: tried[rows]) if tried else case.micro_batches[0]
    turns = {"ours": "ours", "trl_default": "trl_default", "trl": f"trl_{fastest}"}
    if quick:
        del turns["trl_default"]
    runs: dict[str, list[Found]] = {name: [] for name in turns}
    for _ in range(case.repeats):
        for name, candidate in turns.items():
            runs[name].append(_run(candidate, case, folder))
        require_same_work(case, {name: found[-1] for name, found in runs.items()})
    return {
        "answers_a_round": case.rows,
        "repeats": case.repeats,
        "trl_micro_batch": fastest,
        **{f"trl_micro_batch_{rows}_cpu_ms": cpu_ms for rows, cpu_ms in tried.items()},
        **_summary(runs),
    }


def _summary(runs: Mapping[str, Sequence[Found]]) -> dict[str, Any]:
    """Medians of each candidate, and of the ratios within a repeat."""
    ours = runs["ours"]
    found: dict[str, Any] = {}
    for name, of_one in runs.items():
        found[name] = {
            "round_cpu_ms": median(one.cpu_ms for one in of_one),
            "peak_mib": median(one.peak_mib for one in of_one),
            "tokens_generated_a_round": median(one.tokens for one in of_one),
            "groups_with_signal_a_round": median(one.with_signal for one in of_one),
        }
        if name != "ours":
            paired = zip(of_one, ours, strict=True)
            found[f"{name}_over_ours"] = median(one.cpu_ms / our.cpu_ms for one, our in paired)
    return found


def require_same_work(case: Case, found: Mapping[str, Found]) -> None:
    """Raise RuntimeError where the candidates' rounds were not the same work."""
    ours = found["ours"]
    longest = LENGTHS_APART if case.vocabulary else LENGTHS_APART_LEARNING
    for name, other in found.items():
        if other.questions_digest != ours.questions_digest:
            raise RuntimeError(f"{case.name}: {name} was asked other questions than ours")
        if abs(other.with_signal - ours.with_signal) > SIGNAL_APART * case.questions:
            raise RuntimeError(
                f"{case.name}: {other.with_signal:g} groups a round had signal for {name}, "
                f"{ours.with_signal:g} for ours, of {case.questions}"
            )
        if abs(other.tokens / ours.tokens - 1) > longest:
            raise RuntimeError(
                f"{case.name}: {other.tokens:g} tokens a round by {name}, {ours.tokens:g} by ours"
            )


def goals(cases: Sequence[Case], results: Mapping[str, Any]) -> list[Goal]:
    """Each case's goal with its figure."""
    return [
        at_least(
            f"{case.name}: CPU seconds a round, TRL's fastest over ours",
            results[case.name]["trl_over_ours"],
            case.goal,
        )
        for case in cases
    ]


def environment_of(candidate: str) -> dict[str, str]:
    """Environment of a candidate's process: TRL at its fastest has an allocator that keeps its
    pages."""
    own_choice = candidate not in ("ours", "trl_default")
    return dict.fromkeys(KEPT_PAGES, str(1 << 32)) if own_choice else {}


def _run(candidate: str, case: Case, folder: Path) -> Found:
    note(f"  {case.name}: {candidate}")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.whole_round_run"),
            *(candidate, json.dumps(asdict(case)), str(folder)),
        ],
        cwd=ROOT,
        capture_output=True,
        timeout=LIMIT_SECONDS,
        check=False,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment_of(candidate)},
    )
    if done.returncode:
        raise RuntimeError(f"{case.name}: {candidate} failed:\n{done.stderr[-2000:]}")
    return Found(**json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    sys.exit(main("whole_round", __doc__ or "", measure))
