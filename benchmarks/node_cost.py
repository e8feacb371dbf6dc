"""What a running node costs its trainer: tokens a second with the node, against the trainer alone.

Both play the same rounds from the same seed with no external groups, so the work is the same to
the token. With the node, every group is shared over the socket, signed, stored and kept ready for
peers. Runs are interleaved (with, without, without, with …), the figure is the median of the
ratios within pairs; starting up, and the first rounds, are left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Goal, Options, Report, main, median, note

_SKIPPED_ROUNDS = 10
_LIMIT_SECONDS = 300.0
SEED = 7


def measure(options: Options) -> Report:
    """Run the pairs."""
    pairs, rounds = (2, 40) if options.quick else (5, 150)
    runs: dict[str, list[dict[str, float]]] = {"node": [], "alone": []}
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        for pair in range(pairs):
            order = ("node", "alone") if pair % 2 == 0 else ("alone", "node")
            for kind in order:
                note(f"pair {pair + 1} of {pairs}: {kind} …")
                data_dir = Path(folder) / f"{kind}-{pair}"
                _train(kind, data_dir, rounds)
                runs[kind].append(_read(data_dir / "metrics.jsonl", rounds))
    ratios = [
        node["tokens_per_s"] / alone["tokens_per_s"]
        for node, alone in zip(runs["node"], runs["alone"], strict=True)
    ]
    cost = 1 - median(ratios)
    same = {run["tokens"] for kind in runs.values() for run in kind}
    results: dict[str, Any] = {
        "pairs": pairs,
        "rounds_measured": rounds - _SKIPPED_ROUNDS,
        "same_work": len(same) == 1,
        "tokens_per_run": runs["alone"][0]["tokens"],
        "tokens_per_second": {kind: _median(rows, "tokens_per_s") for kind, rows in runs.items()},
        "rounds_per_second": {kind: _median(rows, "rounds_per_s") for kind, rows in runs.items()},
        "sharing_ms_per_round": {kind: _median(rows, "other_ms") for kind, rows in runs.items()},
        "cost_share": round(cost, 4),
        "cost_share_lowest": round(1 - max(ratios), 4),
        "cost_share_highest": round(1 - min(ratios), 4),
    }
    goal = Goal(
        what="tokens per second that the node costs",
        goal="<= 5 %",
        measured=results["cost_share"],
        met=cost <= 0.05,
    )
    return Report(results=results, goals=[goal])


def _train(kind: str, data_dir: Path, rounds: int) -> None:
    """Run one trainer to its end, as a node's child or alone."""
    data_dir.mkdir(parents=True)
    flags = ["--rounds", str(rounds), "--seed", str(SEED), "--external", "0"]
    flags += ["--data-dir", str(data_dir), "--log-level", "error"]
    command = [sys.executable, "-m", "p2p.cli.entry"]
    if kind == "node":
        command += ["node", "--no-mdns", "--listen", "/ip4/127.0.0.1/tcp/0", *flags]
    else:
        command += ["trainer", "--alone", *flags]
    with (data_dir / "log.txt").open("wb") as log:
        done = subprocess.run(
            [*command, "--json"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            timeout=_LIMIT_SECONDS,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=False,
        )
    if done.returncode:
        raise RuntimeError(
            f"{kind} ended with {done.returncode}:\n{(data_dir / 'log.txt').read_text()}"
        )


def _read(metrics: Path, rounds: int) -> dict[str, float]:
    """Return the figures of the rounds after the first, from the trainer's own records."""
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    if len(records) != rounds:
        raise RuntimeError(f"{len(records)} rounds recorded, not {rounds}")
    records = records[_SKIPPED_ROUNDS:]
    seconds = sum(record["seconds"] for record in records)
    tokens = sum(record["tokens_generated"] for record in records)
    other = [
        record["seconds"] - record["seconds_generate"] - record["seconds_update"]
        for record in records
    ]
    return {
        "tokens": tokens,
        "tokens_per_s": tokens / seconds,
        "rounds_per_s": len(records) / seconds,
        "other_ms": 1000 * median(other),
    }


def _median(rows: Sequence[dict[str, float]], key: str) -> float:
    return round(median([row[key] for row in rows]), 3)


if __name__ == "__main__":
    sys.exit(main("node_cost", __doc__ or "", measure))
