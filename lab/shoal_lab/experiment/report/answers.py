"""The page of a model's answers before and after training, as Markdown. Pure.

It shows the held-out questions of the first seed with the answers of the untrained model and of a
node of each arm at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from shoal_base.visible import visible
from shoal_lab.experiment.report.results import SHOWN_NODE, JobRun

_LONGEST: Final = 160
"""Characters of a question or an answer that are shown."""

_MARKS: Final = frozenset("\\`*_{}[]()<>|#&~!:")
"""Characters with a meaning in Markdown or HTML, those that make a bare link included."""


def answers_page(runs: Sequence[JobRun]) -> str:
    """Return every held-out question of the first run's seed, with its answers."""
    first = runs[0]
    runs = [run for run in runs if run.seed == first.seed]
    after = {run.arm: {one["question"]: one for one in run.answers[1]} for run in runs}
    title = f"seed {first.seed}, node {SHOWN_NODE}, {first.rounds} rounds"
    lines = [f"# Answers before and after: {title}", ""]
    lines += ["Held-out questions, one greedy answer each; **bold** is right.", ""]
    head = ["question", "expected", "before", *(f"after {arm}" for arm in after)]
    family = None
    untrained = {one["question"]: one for one in first.answers[0]}
    for before in sorted(untrained.values(), key=lambda one: one["family"]):
        if before["family"] != family:
            family = before["family"]
            lines += ["", f"## {_shown(family)}", "", _row(head), _row("---" for _ in head)]
        question, expected = before["question"], before["expected"] or "any that holds"
        cells = [_shown(question), _shown(expected), _answer(before)]
        lines.append(_row([*cells, *(_answer(found.get(question)) for found in after.values())]))
    return "\n".join(lines) + "\n"


def _answer(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return "–"
    shown = _shown(one["answer"]) or "(nothing)"
    return f"**{shown}**" if one["reward"] >= 1 else shown


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _shown(text: str) -> str:
    """Text of a model or a task, inert in a table's cell; long text loses its middle."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
    shown = visible(text.strip().replace("\n", " ⏎ "))
    return "".join(f"&#{ord(one)};" if one in _MARKS else one for one in shown)
