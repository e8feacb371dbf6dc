"""The figures of `shoal experiment poison`, each as PNG and SVG."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from shoal_lab.experiment.poison.arms import CLEAN, DEFAULT, NONE, Cell
from shoal_lab.experiment.reading.results import moving_average
from shoal_lab.experiment.reading.summary import LATE
from shoal_lab.figures import COLOURS, DASHES, add_note, save

LOOKS: Mapping[str, tuple[str, str]] = {NONE: (COLOURS[2], ""), DEFAULT: (COLOURS[1], "///")}
GOAL, MOST_PLANTED = 0.95, 0.05
Series = Mapping[tuple[str, int], Sequence[float]]


def draw_all(folder: Path, cells: Sequence[Cell], planted: Series) -> list[Path]:
    """Write every figure below `folder`; return the PNG files."""
    return save(folder, _figures(cells, planted))


def _figures(cells: Sequence[Cell], planted: Series) -> Iterator[tuple[str, Figure]]:
    shares = sorted({cell.share for cell in cells if cell.share})
    for share in shares:
        percent = f"{share:.0%}"
        yield f"held-out-{share * 100:.0f}", _bars(cells, share, percent)
    if len(shares) > 1:
        yield "held-out-by-share", _by_share(cells)
    costs = [cell for cell in cells if cell.attack == CLEAN and cell.of_clean is not None]
    if len(costs) > 1:
        yield "cost", _cost(costs)
    if planted:
        yield "planted", _planted(planted)


def _bars(cells: Sequence[Cell], share: float, percent: str) -> Figure:
    figure, ax = _axes(
        f"Honest nodes with {percent} attackers",
        f"pass@1 on held-out questions, mean of the last {LATE} evaluations, over that of the "
        "clean swarm without defences. Line: the goal, 95 %. Whiskers: 95 % interval over seeds "
        "(none with one).",
    )
    base = next((c for c in cells if c.attack == CLEAN and c.defence == NONE), None)
    mine = [cell for cell in cells if cell.share == share]
    kinds = list(dict.fromkeys(cell.attack for cell in mine))
    for offset, defence in zip((-0.2, 0.2), LOOKS, strict=True):
        shown = {cell.attack: cell for cell in mine if cell.defence == defence}
        _row_of_bars(ax, [shown.get(kind) for kind in kinds], base, offset, defence)
    ax.axhline(GOAL, color="#444444", ls="--", lw=1)
    ax.set_xticks(range(len(kinds)), kinds)
    ax.set_xlabel("attack")
    ax.set_ylabel("held-out pass@1\nover the clean swarm's")
    ax.set_ylim(top=1.18 * ax.get_ylim()[1])  # room for the legend
    ax.legend(fontsize=8, loc="upper right", ncols=2)
    return figure


def _row_of_bars(
    ax: Any, cells: Sequence[Cell | None], base: Cell | None, offset: float, defence: str
) -> None:
    """One defence's bars, a place for each attack; a place stays empty where there is no cell."""
    colour, hatch = LOOKS[defence]
    shown = [(place, cell) for place, cell in enumerate(cells) if cell is not None]
    ax.bar(
        [place + offset for place, _ in shown],
        [cell.of_clean or 0.0 for _, cell in shown],
        0.38,
        yerr=[_relative_half(cell, base) for _, cell in shown],
        color=colour,
        alpha=0.75,
        hatch=hatch,
        label="without defences" if defence == NONE else "with all defences",
    )


def _relative_half(cell: Cell, base: Cell | None) -> float:
    return (cell.heldout.half or 0.0) / base.heldout.mean if base and base.heldout.mean else 0.0


def _by_share(cells: Sequence[Cell]) -> Figure:
    figure, ax = _axes(
        "Honest nodes by the share of attackers",
        "pass@1 on held-out questions over that of the clean swarm without defences. Full lines "
        "with dots: all defences; dashed with crosses: none. Grey: the goal at 25 %, 95 %.",
    )
    kinds = list(dict.fromkeys(cell.attack for cell in cells if cell.share))
    for number, kind in enumerate(kinds):
        for defence, style in ((NONE, "--x"), (DEFAULT, "-o")):
            mine = sorted(
                (c.share * 100, c.of_clean or 0.0)
                for c in cells
                if c.attack == kind and c.defence == defence
            )
            label = kind if defence == DEFAULT else None
            x, y = zip(*mine, strict=True) if mine else ((), ())
            ax.plot(x, y, style, color=COLOURS[number % 8], lw=1.2, ms=4, label=label)
    ax.axhline(GOAL, color="#999999", lw=1)
    ax.set_xlabel("attackers, % of members")
    ax.set_ylabel("held-out pass@1\nover the clean swarm's")
    ax.set_ylim(bottom=0)
    ax.legend(fontsize=7, ncols=2, title="attack")
    return figure


def _cost(costs: Sequence[Cell]) -> Figure:
    figure, ax = _axes(
        "What a defence costs where nobody attacks",
        "pass@1 on held-out questions over that of the clean swarm without defences; below 1 it "
        "costs, above it pays. Whiskers: 95 % interval over seeds (none with one).",
    )
    base = next((cell for cell in costs if cell.defence == NONE), costs[0])
    ax.barh(
        range(len(costs)),
        [cell.of_clean or 0.0 for cell in costs],
        xerr=[_relative_half(cell, base) for cell in costs],
        height=0.6,
        color=COLOURS[1],
        alpha=0.75,
    )
    ax.axvline(1.0, color="#444444", ls="--", lw=1)
    ax.set_yticks(range(len(costs)), [cell.defence for cell in costs])
    ax.invert_yaxis()
    ax.set_ylabel("defence")
    ax.set_xlabel("held-out pass@1 over the undefended clean swarm's")
    return figure


def _planted(planted: Series) -> Figure:
    figure, ax = _axes(
        "What attackers planted, in honest nodes' completions",
        "Share of the completions that honest nodes shared in a round, mean of nodes and seeds, "
        "moving average over a tenth of the rounds. Grey: the goal, 5 %.",
    )
    arms = list(dict.fromkeys(arm for arm, _ in planted))
    for number, arm in enumerate(arms):
        series = [values for (name, _), values in planted.items() if name == arm and values]
        mean = [statistics.fmean(column) for column in zip(*series, strict=True)]
        smooth = moving_average(mean, max(1, len(mean) // 10))
        ax.plot(
            range(1, len(smooth) + 1),
            [100 * value for value in smooth],
            ls=DASHES[number % 8],
            color=COLOURS[number % 8],
            label=f"{arm} ({mean[-1]:.1%} at the end)",
        )
    ax.axhline(100 * MOST_PLANTED, color="#999999", lw=1)
    ax.set_xlim(left=0)
    ax.set_ylim(bottom=-0.02 * ax.get_ylim()[1])  # a line at 0 is seen
    ax.set_xlabel("round")
    ax.set_ylabel("honest completions that hold it, %")
    ax.legend(fontsize=7, title="attack share: defences")
    return figure


def _axes(title: str, note: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    figure.suptitle(title, fontsize=10)
    add_note(figure, note, 120)
    return figure, figure.subplots()
