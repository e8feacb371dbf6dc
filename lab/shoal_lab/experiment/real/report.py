"""The sum of `shoal experiment real`: the usual table and figures, and what was answered.

answers.md   the held-out questions of the first seed, as the untrained model answered them and as
             a node of each arm did at its end
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from shoal_base.visible import visible
from shoal_lab.experiment.folder import ANSWERS, done_jobs, lines_of
from shoal_lab.experiment.plan import Experiment, Job
from shoal_lab.experiment.reading.report import write_report
from shoal_lab.experiment.reading.table import rich_table

TITLE = "a real model: SmolLM2-135M with adapters, alone and together"
_LONGEST: Final = 160
"""Characters of a question or an answer that are shown."""

_MARKS: Final = frozenset("\\`*_{}[]()<>|#&~!:")
"""What Markdown or HTML would take for more than a character; a link by itself among them."""

Answers = Mapping[str, Mapping[str, Any]]
"""By question: what was answered."""


def report(
    out: Path, experiment: Experiment, figures: bool
) -> tuple[Callable[[int], Table] | None, dict[str, Any]]:
    """Write table, figures and answers; return the terminal's table and the JSON object."""
    summaries, document = write_report(out, experiment, figures=figures)
    if not summaries:
        return None, document
    (out / ANSWERS).write_text(answers_page(out, experiment))
    document["answers"] = ANSWERS
    return lambda width: rich_table(summaries, TITLE, width), document


def answers_page(out: Path, experiment: Experiment) -> str:
    """Every held-out question of the first seed that is done, with its answers, as Markdown."""
    jobs = done_jobs(out, experiment)
    jobs = [job for job in jobs if job.seed == jobs[0].seed]
    found = {job.arm.name: _of_job(out, job) for job in jobs}
    first = next(iter(found.values()))[0]
    lines = [
        f"# Answers before and after: seed {jobs[0].seed}, node 0, {jobs[0].rounds} rounds",
        "",
    ]
    lines += ["Held-out questions, one greedy answer each; **bold** is right.", ""]
    head = ["question", "expected", "before", *(f"after {arm}" for arm in found)]
    family = None
    for question, before in sorted(first.items(), key=lambda one: one[1]["family"]):
        if before["family"] != family:
            family = before["family"]
            lines += ["", f"## {_shown(family)}", "", _row(head), _row("---" for _ in head)]
        cells = [_shown(question), _shown(before["expected"] or "any that holds"), _answer(before)]
        cells += [_answer(after.get(question)) for _, after in found.values()]
        lines.append(_row(cells))
    return "\n".join(lines) + "\n"


def _of_job(out: Path, job: Job) -> tuple[Answers, Answers]:
    """What node 0 answered before the first round, and after the last."""
    by_round: dict[int, dict[str, Mapping[str, Any]]] = {0: {}, job.rounds: {}}
    for line in lines_of(out, job):
        if line["event"] == "answers" and line["node"] == 0:
            by_round[line["round"]] = {one["question"]: one for one in line["answers"]}
    return by_round[0], by_round[job.rounds]


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
