"""The output of `shoal tasks new`: the first question as a model sees it, and unused columns."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.layout import cut
from shoal_base.terminal import Terminal, styled
from shoal_base.visible import visible, visible_name
from shoal_settings.called import called
from shoal_tasks.data_files import read_file
from shoal_tasks.lint.report import Report
from shoal_tasks.prompts import answer_text, messages_for
from shoal_tasks.rows import parse_rows
from shoal_tasks.spec import ROWS_GENERATOR, FamilySpec
from shoal_tasks.unit_tests.forms import SOLUTION_COLUMN

_VALUE_CHARS = 100


def shown_question(spec: FamilySpec) -> dict[str, Any]:
    """Return the first question as the chat that asks it, and the answer that is expected."""
    if spec.generator != ROWS_GENERATOR:
        return {"messages": [], "expected": None}
    row = parse_rows(read_file(Path(spec.path)), spec.path)[0]
    answer = str(row.columns.get(SOLUTION_COLUMN) or "") if spec.runs_code else row.answer
    return {
        "messages": messages_for(row.question, tagged=spec.is_tagged, system=spec.system),
        "expected": answer_text(answer, tagged=spec.is_tagged) if answer else None,
    }


def show_new(
    console: Terminal,
    path: Path,
    fields: Mapping[str, Any],
    unused: Mapping[str, str],
    notes: Sequence[str],
    spec: FamilySpec,
    report: Report,
) -> None:
    """Print what was written, for people."""
    rows, held_out = spec.config["rows"], spec.config["held_out"]
    console.print(
        f"{path} is written: {rows} questions, {held_out} of them kept for evaluation",
        soft_wrap=True,
    )
    for key, value in fields.items():
        shown = cut(visible(str(value).replace("\n", "⏎")), _VALUE_CHARS)
        console.print(f"  {key:<14} {shown}", soft_wrap=True)
    question = shown_question(spec)
    console.print()
    console.print("the first question, as a model sees it", style="bold")
    for message in question["messages"]:
        console.print_lines(message["content"].strip(), head=f"  {message['role']}: ")
    scorer = "the row's tests accept" if spec.runs_code else "the reward accepts"
    expected = question["expected"] or f"any that {scorer}"
    console.print_lines(expected, head="  expected: ")
    console.print()
    for name, value in unused.items():
        console.print(styled(("not shown to the model: ", "yellow"), f"{name} ({value})"),
                      soft_wrap=True)  # fmt: skip
    if unused:
        prompt = fields.get("prompt", f"{{{fields.get('question', 'question')}}}")
        example = " ".join(f"{{{next(iter(unused))}}} {prompt}".split())
        console.print(f"  to show one: --prompt {shlex.quote(example)}", soft_wrap=True)
    for note in notes:
        console.print(styled(("note: ", "yellow"), visible(note)), soft_wrap=True)
    _show_next(console, path, spec, report)


def _show_next(console: Terminal, path: Path, spec: FamilySpec, report: Report) -> None:
    if not report.is_sound:
        console.print(styled(("not shown to be sound: ", "yellow"), visible(report.sentence)),
                      soft_wrap=True)  # fmt: skip
        return
    file = visible_name(str(path))
    console.print()
    console.print("next:")
    for words in (
        f"tasks lint {file}",
        f"tasks try {file} --model smollm2",
        f"node --model smollm2 --lora-rank 16 --tasks {file}",
    ):
        console.print(f"  {called()} {words}", soft_wrap=True)


def ask_about(console: Terminal, unused: Sequence[tuple[str, str]]) -> list[str]:
    """Ask about each column that is not used, and return those to show before the question."""
    chosen = []
    for name, value in unused:
        console.print(f"{visible(name)} ({visible(value)}) is not shown to the model.")
        console.print("  Show it before the question? [y/N] ", end="")
        line = sys.stdin.readline()
        if not line:
            break
        if line.strip().casefold() in ("y", "yes"):
            chosen.append(name)
    return chosen


def ask_to_share(console: Terminal, files: str) -> bool:
    """Ask whether peers may fetch the files of the new task."""
    console.print(f"May peers of your swarm fetch {visible(files)}? [y/N] ", end="", soft_wrap=True)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def ask_column(console: Terminal, why: str, key: str) -> str:
    """Ask for the name of a column; empty if none is typed."""
    console.print(visible(why.partition("; ")[0]), soft_wrap=True)
    console.print(f"  Which column holds the {key}? ", end="")
    return sys.stdin.readline().strip()
