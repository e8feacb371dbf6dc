"""The table and the figures of `shoal experiment hetero`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from shoal_lab.experiment.folder import FIGURES, done_jobs, lines_of, write_result
from shoal_lab.experiment.hetero.arms import Played, RoleSummary, played, summarise
from shoal_lab.experiment.plan import Experiment
from shoal_lab.experiment.reading.summary import LATE
from shoal_lab.experiment.reading.table import interval_of

TITLE = "Swarms whose nodes differ"
COLUMNS = ("arm", "nodes", "role", "held-out", "over 8/0", "own reward", "others' groups")
CAPTION = (
    f"held-out: pass@1 over all families, mean of the last {LATE} evaluations, and "
    "its 95 % interval over seeds (– with one); over 8/0: against "
    "the silo's; own reward: on own fresh questions, last third of the rounds played; others' "
    "groups: trained on, a round"
)


def report(
    out: Path, experiment: Experiment, figures: bool
) -> tuple[Callable[[int], Table] | None, dict[str, Any]]:
    """Sum up what is finished and write it down; return the terminal's table and the JSON."""
    jobs = load(out, experiment)
    roles = summarise(jobs)
    drawn = _draw(out, roles, jobs) if figures and roles else []
    document = {
        "roles": [role.to_json() for role in roles],
        "figures": [str(path.relative_to(out)) for path in drawn],
    }
    document = write_result(out, experiment, document, markdown(roles) if roles else None)
    return (lambda _width: rich_table(roles)) if roles else None, document


def load(out: Path, experiment: Experiment) -> list[Played]:
    """Read every finished job."""
    return [played(job.arm, job.seed, lines_of(out, job)) for job in done_jobs(out, experiment)]


def row(one: RoleSummary) -> list[str]:
    """One role's cells."""
    return [
        one.arm,
        str(one.num_nodes),
        one.role,
        interval_of(one.heldout, 3),
        "–" if one.gain is None else f"{one.gain:+.0%}",
        f"{one.reward.mean:.3f}",
        f"{one.external.mean:.1f}",
    ]


def rich_table(roles: Sequence[RoleSummary]) -> Table:
    """The table for a terminal."""
    table = Table(title=TITLE, title_justify="left", caption=CAPTION, caption_justify="left")
    for place, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if place in (0, 2) else "right", no_wrap=True)
    for role in roles:
        table.add_row(*row(role))
    return table


def markdown(roles: Sequence[RoleSummary]) -> str:
    """The table as Markdown, with its caption."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(row(role)) + " |" for role in roles]
    return "\n".join(lines) + f"\n\n{CAPTION}.\n"


def _draw(out: Path, roles: Sequence[RoleSummary], jobs: Sequence[Played]) -> list[Path]:
    """The figures; none where matplotlib is not installed."""
    try:
        from shoal_lab.experiment.hetero.figures import draw_all
    except ImportError:
        return []
    return draw_all(out / FIGURES, roles, jobs)
