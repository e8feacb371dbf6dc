"""`shoal tasks lint FILE`: checks that a task rewards right answers, before training."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from shoal_base.extras import missing_for_tasks
from shoal_base.lines import say_json
from shoal_base.terminal import Terminal, styled
from shoal_base.visible import visible, visible_name
from shoal_settings.exits import EXIT_FAILED, EXIT_OK, fail
from shoal_settings.parser import Parser
from shoal_tasks.errors import FamilyError
from shoal_tasks.lint.measure import FULL, QUICK, lint
from shoal_tasks.lint.report import Level, Report
from shoal_tasks.task_file import examples_in, load_task_files

DESCRIPTION = """\
Check that a task rewards right answers, before any model trains on it. The right answer, in the
forms that rewards expect, must score higher than an empty answer, a constant, a copy of the
question, another row's answer and an instruction to the judge. Every score is repeated, and every
game replayed.

  shoal tasks lint mine.toml
  shoal tasks lint mine.toml --quick     the part that every start runs

Your own examples decide, if the task file has them: good = ["…{answer}…"] and bad = ["…"].

Exit codes: 0 sound, 1 not sound or not shown to be, 2 usage."""

_HEADS = {
    Level.REFUSED: ("not sound", "red"),
    Level.UNPROVEN: ("not shown", "yellow"),
    Level.WARNING: ("note", "yellow"),
    Level.SKIPPED: ("not checked", "dim"),
}


def main(argv: Sequence[str]) -> int:
    """Run `shoal tasks lint`; return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        if (missing := missing_for_tasks()) is not None:
            raise fail("tasks lint", missing)
        try:
            (spec,) = load_task_files([arguments.file])
            examples = examples_in(Path(arguments.file))
        except FamilyError as error:
            raise fail("tasks lint", str(error)) from None
        with Terminal(stderr=True).status("scoring"):
            report = lint(spec, examples, QUICK if arguments.quick else FULL)
    except (KeyboardInterrupt, BrokenPipeError):
        return EXIT_OK
    if arguments.json:
        say_json({"schema_version": 1, "file": arguments.file, **report.view()})
    else:
        show(Terminal(), arguments.file, report)
    return EXIT_OK if report.is_sound else EXIT_FAILED


def show(console: Terminal, file: str, report: Report) -> None:
    """Print a report as text."""
    verdict = "sound" if report.is_sound else "not sound" if report.is_refused else "not shown"
    console.print(styled((visible_name(file), "bold"), f": {verdict}"), soft_wrap=True)
    if report.right is not None:
        form = f", as {visible(report.form)}" if report.form else ""
        console.print(f"  {report.right:5.2f}  the right answer{form}", soft_wrap=True)
    for kind, reward in report.wrong.items():
        console.print(f"  {reward:5.2f}  {visible(kind)}", soft_wrap=True)
    if report.floor is not None:
        text = f"{visible(report.floor_answer)}, on average: the floor"
        console.print(f"  {report.floor:5.2f}  {text}", soft_wrap=True)
    if report.seconds_per_score is not None:
        ended = "" if report.is_complete else "; then the time limit ended it"
        console.print(
            f"{report.num_scores} scores on {report.num_rows} rows, each repeated: "
            f"{_time(report.seconds_per_score)} a score{ended}"
        )
    for one in report.findings:
        head, style = _HEADS[one.level]
        console.print(styled((f"{head}: ", style), visible(one.message)), soft_wrap=True)
    if report.forms and any(one.check in ("right", "constant") for one in report.findings):
        console.print("forms in which the right answer X was tried:")
        for tried in report.forms:
            console.print(f"  {visible(tried)}", soft_wrap=True)


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.2g} ms" if seconds < 1 else f"{seconds:.1f} s"


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="shoal tasks lint", description=DESCRIPTION)
    parser.add_argument("file", metavar="FILE", help="a task file")
    parser.add_argument(
        "--quick", action="store_true", help="fewer rows, at most a few seconds, no floor"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser
