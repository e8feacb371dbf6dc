"""The table and the figures of `shoal experiment poison`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.table import Table

from shoal_lab.experiment.folder import FIGURES, done_jobs, lines_of, write_result
from shoal_lab.experiment.plan import Experiment
from shoal_lab.experiment.playing.attackers import PLANTED
from shoal_lab.experiment.poison.arms import Cell, Series, summarise
from shoal_lab.experiment.reading.results import load_runs
from shoal_lab.experiment.reading.summary import LATE, Spread, comparable
from shoal_lab.experiment.reading.table import interval_of

COLUMNS = (
    "attack",
    "attackers",
    "defence",
    "held-out",
    "of clean",
    "own clean",
    "total",
    "planted",
    "of right",
)
WIDE = 100
"""Terminal columns that all of them fit into."""
LEFT_OUT = ("own clean", "total", "of right")
CAPTION = (
    f"held-out: honest nodes' pass@1, mean of the last {LATE} evaluations, and "
    "its 95 % interval over seeds (– with one); of clean: against the clean swarm without "
    "defences; own clean: against the clean swarm with the same defences; total: sum over rounds "
    "of the reward on own fresh questions; planted: honest completions of the last tenth of the "
    "rounds that hold what the attackers planted, with the interval; of right: the same of those "
    "that earned something"
)
PRESET_TITLE = "What attackers cost honest nodes, and what the defences cost"


def report(
    out: Path, experiment: Experiment, figures: bool
) -> tuple[Callable[[int], Table] | None, dict[str, Any]]:
    """Sum up what is finished and write it down; return the terminal's table and the JSON."""
    runs = comparable(load_runs(out, experiment))
    planted, of_right = (
        planted_shares(out, experiment, key) for key in ("planted", "planted_right")
    )
    cells = summarise(experiment.arms, runs, planted, of_right)
    drawn = _draw(out, cells, planted) if figures and cells else []
    document = {
        "honest_nodes": sum(node.behaviour == "honest" for node in experiment.arms[0].nodes),
        "poison": [cell.to_json() for cell in cells],
        "figures": [str(path.relative_to(out)) for path in drawn],
    }
    document = write_result(out, experiment, document, markdown(cells) if cells else None)
    return (lambda width: rich_table(cells, width)) if cells else None, document


def planted_shares(out: Path, experiment: Experiment, key: str = "planted") -> Series:
    """By arm and seed: by round, the share of honest completions that hold what was planted.

    Of all, or with the key `planted_right` of the right ones, in the rounds that have any.
    """
    found: dict[tuple[str, int], list[float]] = {}
    for job in done_jobs(out, experiment):
        if not any(node.behaviour in PLANTED for node in job.arm.nodes):
            continue
        rounds: dict[int, list[float]] = defaultdict(list)
        for line in lines_of(out, job):
            if line["event"] == "round" and line.get(key) is not None:
                rounds[line["round"]].append(line[key])
        found[job.arm.name, job.seed] = [
            sum(shares) / len(shares) for _, shares in sorted(rounds.items())
        ]
    return found


def row(cell: Cell) -> list[str]:
    """One arm's cells."""
    return [
        cell.attack,
        f"{cell.share:.0%}" if cell.share else "–",
        cell.defence,
        interval_of(cell.heldout, 3),
        _percent(cell.of_clean),
        _percent(cell.of_own_clean),
        f"{cell.total.mean:.1f}",
        _share(cell.planted),
        _share(cell.planted_right),
    ]


def rich_table(cells: Sequence[Cell], width: int) -> Table:
    """The table for a terminal; a narrow one gets the columns that matter most."""
    shown = [i for i, name in enumerate(COLUMNS) if width >= WIDE or name not in LEFT_OUT]
    table = Table(title=PRESET_TITLE, title_justify="left", caption=CAPTION, caption_justify="left")
    for place in shown:
        justify: Literal["left", "right"] = "left" if place in (0, 2) else "right"
        table.add_column(COLUMNS[place], justify=justify, no_wrap=True)
    for cell in cells:
        cells_of_row = row(cell)
        table.add_row(*(cells_of_row[place] for place in shown))
    return table


def markdown(cells: Sequence[Cell]) -> str:
    """The table as Markdown, with its caption."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(row(cell)) + " |" for cell in cells]
    return "\n".join(lines) + f"\n\n{CAPTION}.\n"


def _share(value: Spread | None) -> str:
    """In percent, with the interval where there are seeds for one."""
    if value is None:
        return "–"
    mean = f"{100 * value.mean:.1f}"
    return f"{mean}%" if value.half is None else f"{mean} ± {100 * value.half:.1f}%"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _draw(out: Path, cells: Sequence[Cell], planted: Series) -> list[Path]:
    """The figures; none where matplotlib is not installed."""
    try:
        from shoal_lab.experiment.poison.figures import draw_all
    except ImportError:
        return []
    return draw_all(out / FIGURES, cells, planted)
