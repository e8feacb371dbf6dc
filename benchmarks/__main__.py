"""`python -m benchmarks`: every benchmark, each in a process of its own."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness import ROOT, Report, note, show

LIMIT_SECONDS = 1800.0
"""Time limit of one benchmark. One that exceeds it is ended and counted as failed."""

NOT_BENCHMARKS = {"__init__", "__main__", "harness"}


def names() -> list[str]:
    """Return the benchmarks' names: every module here that has a `measure`."""
    modules = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))
    return [
        name
        for name in modules
        if name not in NOT_BENCHMARKS
        and "\ndef measure(" in (ROOT / "benchmarks" / f"{name}.py").read_text()
    ]


def main() -> int:
    """Run all; return 1 if one failed to run. A missed goal is not a failure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--quick", action="store_true", help="a short pass with rougher figures")
    parser.add_argument("names", nargs="*", help="only these (default: all)")
    arguments = parser.parse_args()
    known = names()
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    reports: dict[str, dict[str, Any] | None] = {}
    for name in arguments.names or known:
        note(f"running {name} …")
        report = reports[name] = _run(name, quick=arguments.quick)
        if report is None:
            continue
        if arguments.json:
            print(json.dumps(report), flush=True)
        else:
            show(name, report["environment"], Report(results=report["results"]))
    if not arguments.json:
        _show_goals(reports)
    return int(any(report is None for report in reports.values()))


def _run(name: str, *, quick: bool) -> dict[str, Any] | None:
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json", *(["--quick"] * quick)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, timeout=LIMIT_SECONDS, check=True
        )
        report: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        note(f"{name} took over {LIMIT_SECONDS:.0f} s and was ended")
        return None
    except (subprocess.CalledProcessError, ValueError) as error:
        note(f"{name} failed: {error}")
        return None
    return report


def _show_goals(reports: dict[str, dict[str, Any] | None]) -> None:
    table = Table(title="goals", box=None, pad_edge=False)
    for column in ("benchmark", "what", "goal", "measured", ""):
        table.add_column(column)
    for name, report in reports.items():
        if report is None:
            table.add_row(name, "did not run to its end", "", "", "[red]failed[/]")
            continue
        for goal in report["goals"]:
            mark = "[green]met[/]" if goal["met"] else "[red]missed[/]"
            table.add_row(name, goal["what"], goal["goal"], f"{goal['measured']}", mark)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
