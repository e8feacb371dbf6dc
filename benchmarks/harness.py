"""What every benchmark shares: the command line, the environment block, goals, the two outputs.

A benchmark is a module with `measure(options) -> Report` and calls `main` at its end; it runs
real processes on loopback, bounded in time and count, and writes nothing but standard output.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("libp2p", "trio", "protobuf", "zstandard", "cryptography", "reasoning-gym", "torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line's options."""

    quick: bool
    """A short pass: fewer repeats, less time. Its figures are rougher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One goal with the measured value. A missed goal is a result, not an error."""

    what: str
    goal: str
    measured: float | int | bool | None
    met: bool


def at_most(what: str, measured: float, most: float, *, unit: str = "") -> Goal:
    """Return the goal of a figure that should be small."""
    goal = f"≤ {most:g} {unit}".rstrip()
    return Goal(what=what, goal=goal, measured=measured, met=measured <= most)


def at_least(what: str, measured: float, least: float, *, unit: str = "") -> Goal:
    """Return the goal of a figure that should be great."""
    goal = f"≥ {least:g} {unit}".rstrip()
    return Goal(what=what, goal=goal, measured=measured, met=measured >= least)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A benchmark's results."""

    results: Mapping[str, Any]
    """Nested mappings of numbers and short texts; names end in their unit."""
    goals: Sequence[Goal] = field(default_factory=tuple)


def main(
    name: str,
    description: str,
    measure: Callable[[Options], Report],
    argv: Sequence[str] | None = None,
) -> int:
    """Run one benchmark from the command line; return the exit code (0 also for missed goals)."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a short pass with rougher figures")
    arguments = parser.parse_args(argv)
    before = environment()
    report = measure(Options(quick=arguments.quick))
    if arguments.json:
        print(json.dumps(as_json(name, before, arguments.quick, report)))
    else:
        show(name, before, report)
    return 0


def as_json(
    name: str, environment_block: Mapping[str, Any], quick: bool, report: Report
) -> dict[str, Any]:
    """Return a report in the form in which programs read it."""
    return {
        "name": name,
        "quick": quick,
        "environment": {**environment_block, "load_average_after": _load_average()},
        "results": dict(report.results),
        "goals": [asdict(goal) for goal in report.goals],
    }


def show(name: str, environment_block: Mapping[str, Any], report: Report) -> None:
    """Print a report for people."""
    console = Console()
    console.print(f"[bold]{name}[/]  ", _one_line(environment_block), highlight=False)
    table = Table(box=None, pad_edge=False)
    table.add_column("result")
    table.add_column("", justify="right")
    for key, value in flatten(report.results):
        table.add_row(key, _number(value))
    console.print(table)
    for goal in report.goals:
        mark = "[green]met[/]   " if goal.met else "[red]missed[/]"
        console.print(f"{mark} {goal.what}: {_number(goal.measured)} (goal {goal.goal})")
    console.print()


def environment() -> dict[str, Any]:
    """Describe where and when the figures were made."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu_count": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": dict(_versions()),
        "git_commit": _git_commit(),
        "load_average": _load_average(),
    }


def median(values: Sequence[float]) -> float:
    """Return the median; raises StatisticsError on none."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` (0 to 1) of `values` lie: the nearest rank."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * share // 1))
    return ordered[int(rank) - 1]


def flatten(results: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested results under dotted names."""
    for key, value in results.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _versions() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue


def _git_commit() -> str | None:
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _load_average() -> list[float] | None:
    return [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None


def _one_line(block: Mapping[str, Any]) -> str:
    load = block["load_average"]
    return (
        f"{block['date']}  {block['cpu_count']} CPUs (load {load[0] if load else '?'})  "
        f"Python {block['python']}  commit {block['git_commit']}"
    )


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    return f"{value:,.4f}" if abs(value) < 10 else f"{value:,.1f}"


class Child:
    """A benchmark's process that is controlled by lines of text; used as a context, it ends with
    it."""

    def __init__(self, module: str, *arguments: str, log: Path | None = None) -> None:
        """Run `python -m benchmarks.MODULE`; its standard error goes to `log`."""
        self._log = log
        with open(os.devnull if log is None else log, "wb") as errors:  # noqa: PTH123
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"benchmarks.{module}", *arguments],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                text=True,
            )

    def say(self, line: str) -> None:
        """Write a line to it."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def line(self) -> str:
        """Return its next line. Raises RuntimeError if it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            output = "" if self._log is None else f":\n{self._log.read_text()[-4000:]}"
            raise RuntimeError(f"a benchmark's process has ended early{output}")
        return line

    def close(self) -> None:
        """Wait for its end; kill it if it does not end in time."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def note(text: str) -> None:
    """Report progress on standard error."""
    print(text, file=sys.stderr, flush=True)
