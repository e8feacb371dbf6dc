"""Cost of a running node to its trainer: tokens a second with the node, against the trainer alone.

Both play the same rounds from the same seed with no external groups, so the work is the same to
the token. With the node, every group is shared over the socket, signed, stored and kept ready for
peers. Runs are interleaved (with, without, without, with …) and compared round by round: the
figure is the median of the rounds' ratios. The cost over each run's whole time is given, too; on a
busy machine it mostly shows the other load. Start-up and the first rounds are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cpu_watch import CpuWatch
from benchmarks.harness import ROOT, Goal, Options, Report, main, median, note

_SKIPPED_ROUNDS = 10
_LIMIT_SECONDS = 300.0
_LOG_CHARS = 2000
SEED = 7
_TIME = "step_time"

Records = list[dict[str, Any]]
"""Rounds as they stand in ``metrics.jsonl``."""


def measure(options: Options) -> Report:
    """Run the pairs."""
    pairs, rounds = (2, 40) if options.quick else (5, 150)
    runs: dict[str, list[Records]] = {"node": [], "alone": []}
    cpu: dict[str, list[dict[str, float]]] = {"node": [], "alone": []}
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        for pair in range(pairs):
            order = ("node", "alone") if pair % 2 == 0 else ("alone", "node")
            for kind in order:
                note(f"pair {pair + 1} of {pairs}: {kind} …")
                data_dir = Path(folder) / f"{kind}-{pair}"
                cpu[kind].append(_train(kind, data_dir, rounds))
                runs[kind].append(_read(data_dir / "metrics.jsonl", rounds))
    report = _report(runs, pairs, rounds)
    return Report(results={**report.results, "cpu_ms_per_round": _cpu(cpu)}, goals=report.goals)


def _cpu(runs: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        kind: {role: round(median([run[role] for run in found]), 2) for role in found[0]}
        for kind, found in runs.items()
    }


def _report(runs: dict[str, list[Records]], pairs: int, rounds: int) -> Report:
    per_round = [
        alone[_TIME] / node[_TIME]
        for with_node, without in zip(runs["node"], runs["alone"], strict=True)
        for node, alone in zip(with_node, without, strict=True)
    ]
    totals = [
        _sum(without, _TIME) / _sum(with_node, _TIME)
        for with_node, without in zip(runs["node"], runs["alone"], strict=True)
    ]
    cost = round(1 - median(per_round), 4)
    tokens = {_sum(records, "tokens_generated") for kind in runs.values() for records in kind}
    results: dict[str, Any] = {
        "pairs": pairs,
        "rounds_measured": rounds - _SKIPPED_ROUNDS,
        "same_work": len(tokens) == 1,
        "tokens_per_run": max(tokens),
        "tokens_per_second": {
            kind: round(median([_tokens_per_second(records) for records in found]), 1)
            for kind, found in runs.items()
        },
        "round_ms": {kind: _median_ms(found, _round) for kind, found in runs.items()},
        "of_which_neither_generation_nor_update_ms": {
            kind: _median_ms(found, _between) for kind, found in runs.items()
        },
        "cost_share": cost,
        "cost_share_of_totals": {
            "median": round(1 - median(totals), 4),
            "lowest": round(1 - max(totals), 4),
            "highest": round(1 - min(totals), 4),
        },
    }
    goal = Goal(
        what="tokens per second that the node costs", goal="<= 5 %", measured=cost, met=cost <= 0.05
    )
    return Report(results=results, goals=[goal])


def _train(kind: str, data_dir: Path, rounds: int) -> dict[str, float]:
    """Run one trainer to its end, as a node's child or alone; return CPU ms a round by role."""
    data_dir.mkdir(parents=True)
    flags = ["--rounds", str(rounds), "--seed", str(SEED), "--external", "0"]
    flags += ["--data-dir", str(data_dir), "--log-level", "error"]
    command = [sys.executable, "-m", "shoal"]
    if kind == "node":
        command += ["node", "--no-mdns", "--listen", "/ip4/127.0.0.1/tcp/0", *flags]
    else:
        command += ["trainer", "--alone", *flags]
    with (data_dir / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--json"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    watch = CpuWatch(process, data_dir / "metrics.jsonl", _SKIPPED_ROUNDS)
    code = watch.run(_LIMIT_SECONDS)
    if code != 0:
        output = (data_dir / "log.txt").read_text()[-_LOG_CHARS:]
        raise RuntimeError(f"{kind} ended with {code} (None: not in time):\n{output}")
    return watch.ms_per_round()


def _read(metrics: Path, rounds: int) -> Records:
    """Return the rounds after the first ones, from the trainer's own records."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    records = [line for line in lines if line.get("event") == "round"]
    if len(records) != rounds:
        raise RuntimeError(f"{len(records)} rounds recorded, not {rounds}")
    return records[_SKIPPED_ROUNDS:]


def _sum(records: Records, key: str) -> float:
    return float(sum(record[key] for record in records))


def _tokens_per_second(records: Records) -> float:
    return _sum(records, "tokens_generated") / _sum(records, _TIME)


def _round(record: dict[str, Any]) -> float:
    return float(record[_TIME])


def _between(record: dict[str, Any]) -> float:
    """Verification and, with a node, sharing: the time of a round outside the model."""
    return float(record[_TIME] - record["seconds_generate"] - record["seconds_update"])


def _median_ms(runs: Sequence[Records], part: Callable[[dict[str, Any]], float]) -> float:
    return round(1000 * median([part(record) for records in runs for record in records]), 2)


if __name__ == "__main__":
    sys.exit(main("node_cost", __doc__ or "", measure))
