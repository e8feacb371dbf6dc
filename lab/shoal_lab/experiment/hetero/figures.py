"""The figures of `shoal experiment hetero`, each as PNG and SVG."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from shoal_lab.experiment.hetero.arms import Played, RoleSummary, members
from shoal_lab.experiment.plan import SILO
from shoal_lab.experiment.reading.summary import LATE
from shoal_lab.figures import COLOURS, DASHES, panels, save


def draw_all(folder: Path, roles: Sequence[RoleSummary], jobs: Sequence[Played]) -> list[Path]:
    """Write every figure below `folder`; return the PNG files."""
    return save(folder, _figures(roles, jobs))


def _figures(roles: Sequence[RoleSummary], jobs: Sequence[Played]) -> Iterator[tuple[str, Figure]]:
    yield "held-out", _bars(roles)
    yield "held-out-by-round", _curves(jobs)


def _bars(roles: Sequence[RoleSummary]) -> Figure:
    figure = Figure(figsize=(6.4, 0.9 + 0.28 * len(roles)), layout="constrained")
    figure.suptitle("Swarms whose nodes differ", fontsize=10)
    ax = figure.subplots()
    arms = list(dict.fromkeys(role.arm for role in roles))
    for place, role in enumerate(roles):
        ax.barh(
            place,
            role.heldout.mean,
            xerr=role.heldout.half,
            height=0.7,
            color=COLOURS[arms.index(role.arm) % 8],
            alpha=0.75,
        )
    labels = [f"{role.arm}: {role.role} ({role.num_nodes})" for role in roles]
    ax.set_yticks(range(len(roles)), labels, fontsize=7)
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    silo = next((role for role in roles if role.arm == SILO), None)
    if silo is not None:
        ax.axvline(silo.heldout.mean, color="#444444", ls="--", lw=1)
    ax.set_ylabel("arm: role (nodes)")
    ax.set_xlabel(
        f"pass@1 on held-out questions of all families, mean of the last {LATE} evaluations\n"
        "dashed: the silo; whiskers: 95 % interval over seeds (none with one)",
        fontsize=8,
    )
    return figure


def _curves(jobs: Sequence[Played]) -> Figure:
    """A panel for each arm, a line for each role."""
    arms = list(dict.fromkeys(job.arm.name for job in jobs))
    columns = min(3, len(arms))
    height = 2.2 * math.ceil(len(arms) / columns) + 0.4
    figure = Figure(figsize=(7.4, height), layout="constrained")
    figure.suptitle("Swarms whose nodes differ: held-out questions, by role", fontsize=10)
    axes = panels(figure, len(arms), columns, sharex=True)
    for ax, arm in zip(axes, arms, strict=True):
        mine = [job for job in jobs if job.arm.name == arm]
        for number, role in enumerate(dict.fromkeys(node.role for node in mine[0].arm.nodes)):
            nodes = members(mine[0].arm, role)
            series = [job.held_out[node] for job in mine for node in nodes]
            mean = [statistics.fmean(column) for column in zip(*series, strict=True)]
            style = {"color": COLOURS[number + 1], "ls": DASHES[number % 8]}
            ax.plot(mine[0].evaluated, mean, lw=1.4, label=role, **style)
        ax.set_title(arm, fontsize=8)
        ax.tick_params(labelbottom=True, labelsize=7)
        ax.legend(fontsize=6, loc="upper left")
        ax.set_xlabel("round", fontsize=8)
    axes[0].set_ylim(bottom=0)
    figure.supylabel("pass@1, greedy, mean of nodes and seeds", fontsize=8)
    return figure
