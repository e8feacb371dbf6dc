"""The figures of every preset, each as PNG and SVG. Needs matplotlib: imported only to draw."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from matplotlib.figure import Figure

from shoal_lab.experiment.plan import SILO
from shoal_lab.experiment.reading.measures import (
    LATE,
    PAPER_GAINS,
    by_arm,
    late_by_node,
    late_heldout,
    oscillation,
    over,
    swing,
    total,
    training_total,
)
from shoal_lab.experiment.reading.results import Run, mean_over_nodes, moving_average
from shoal_lab.experiment.reading.sheet import Row
from shoal_lab.figures import COLOURS, DASHES, add_note, panels
from shoal_lab.significance import spread

Figures = Iterator[tuple[str, Figure]]
OfRun = Callable[[Run], Sequence[float]]
"""Returns one series of a run."""

PAPER_TOTALS: Final[Mapping[str, float]] = {
    "8/0": 561.79,
    "6/2": 854.43,
    "4/4": 1093.31,
    "2/6": 945.87,
}
"""Reward over 8 nodes × 2000 rounds, training set (arXiv 2509.08721, section 5)."""
PAPER_AGENTS: Final = 8
"""Nodes that the paper's totals are summed over."""
PAPER_NOTE: Final = (
    "Paper (arXiv 2509.08721: 8 × Qwen2.5-0.5B, 2000 rounds, one run), total reward over 8/0: "
    + ", ".join(f"{arm} {gain:+.0%}" for arm, gain in PAPER_GAINS.items() if gain)
)
BAND: Final = "Mean over seeds; band: its 95 % interval (one seed has none)."
GOAL, MOST_PLANTED = 0.95, 0.05
"""Held-out over the clean swarm's that defences aim at; share of planted completions they allow."""
LOOKS: Final = ((COLOURS[2], ""), (COLOURS[1], "///"))
"""Colour and hatch of the first defence and of the second."""
_MEGA: Final = 1_000_000
_NOTE_CHARS: Final = 124
_GREY: Final[Mapping[str, Any]] = {"color": "#444444", "ls": "--", "lw": 1}


@dataclass(frozen=True, slots=True)
class Curve:
    """One line, and its band where there is one."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    half: Sequence[float] = ()


def lines(
    curves: Sequence[Curve], *, title: str, x: str, y: str, note: str, legend: str | None = None
) -> Figure:
    """Return a figure of lines, each in its colour and dashes."""
    figure, ax = _axes(title, note)
    for number, one in enumerate(curves):
        style = {"color": COLOURS[number % 8], "ls": DASHES[(number // 8 + number) % 8]}
        if one.half:
            low, high = (
                [value + sign * half for value, half in zip(one.y, one.half, strict=True)]
                for sign in (-1, 1)
            )
            ax.fill_between(one.x, low, high, color=style["color"], alpha=0.12, lw=0)
        ax.plot(one.x, one.y, lw=1.4, label=one.label, **style)
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.set_xlim(left=0)
    ax.set_ylim(bottom=0)
    ax.legend(title=legend, fontsize=8 if len(curves) < 6 else 7)
    return figure


def bars(rows: Sequence[Row], labels: Sequence[str], *, title: str, y: str, note: str) -> Figure:
    """Return a bar of late held-out pass@1 for each row, with its interval, beside the silo."""
    figure, ax = _axes(title, note, height=1.3 + 0.28 * len(rows))
    arms = list(dict.fromkeys(row.labels["arm"] for row in rows))
    for place, row in enumerate(rows):
        found = over(row.runs, late_heldout)
        colour = COLOURS[arms.index(row.labels["arm"]) % 8]
        ax.barh(place, found.mean, xerr=found.half, height=0.7, color=colour, alpha=0.7)
        if row.labels["arm"] == SILO:
            ax.axvline(found.mean, **_GREY)
    ax.set_yticks(range(len(rows)), labels, fontsize=7)
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    if any(over(row.runs, late_heldout).mean for row in rows):  # else no scale can be chosen
        ax.set_xlim(left=0)
    ax.set_xlabel("held-out pass@1")
    ax.set_ylabel(y)
    return figure


def _axes(title: str, note: str, *, height: float = 4.2, columns: int = 1) -> tuple[Figure, Any]:
    figure = Figure(figsize=(6.4, height), layout="constrained")
    figure.suptitle(title, fontsize=10)
    add_note(figure, note, _NOTE_CHARS)
    return figure, figure.subplots(1, columns)


def _panels(names: Sequence[str], title: str, y: str) -> tuple[Figure, dict[str, Any]]:
    """A panel for each name, three in a row."""
    columns = min(3, len(names))
    size = (7.4, 2.3 * math.ceil(len(names) / columns) + 0.9)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, fontsize=10)
    figure.supylabel(y, fontsize=8)
    axes = panels(figure, len(names), columns, sharex=True)
    for ax in axes:
        ax.tick_params(labelbottom=True, labelsize=7)
        ax.set_xlabel("round", fontsize=8)
    return figure, dict(zip(names, axes, strict=True))


# A comparison of I/J


def comparison_figures(runs: Sequence[Run], arms: Sequence[str], title: str) -> Figures:
    """Yield the paper's two figures and eight of ours."""
    mine = by_arm(runs)
    window = max(1, min(run.rounds for run in runs) // 10)
    yield "1-agents", _agents(mine, window, title)
    for name, (what, x, y, places, values, note) in _comparison_lines(window).items():
        curves = [curve(arm, mine[arm], places, values) for arm in arms]
        words = {"title": f"{title}: {what}", "x": x, "y": y, "note": f"{note} {BAND} {PAPER_NOTE}"}
        yield name, lines(curves, **words, legend="I/J")
    yield "9-oscillation", _oscillation(mine, title)
    base = mine.get(SILO, mine[arms[0]])
    if over(base, total).mean > 0 and over(base, training_total).mean > 0:  # else no ratio exists
        yield "0-totals", _totals(mine, base, title)


LineFigure = tuple[str, str, str, OfRun, OfRun, str]
"""Title, both axes' labels, both coordinates, and a note."""


def _comparison_lines(window: int) -> dict[str, LineFigure]:
    """Return every figure of lines, by its file's name."""

    def smooth(of: OfRun) -> OfRun:
        return lambda run: moving_average(of(run), window)

    own = smooth(lambda run: mean_over_nodes(run.fresh))
    training = smooth(lambda run: mean_over_nodes(run.training))
    signal = smooth(lambda run: run.signal)
    smoothed = f"(moving average over {window} rounds)"
    reward, share = f"reward per completion\n{smoothed}", f"share of I + J groups\n{smoothed}"
    fresh, asked = "reward on own fresh questions", "held-out questions"
    tokens, passed = "tokens generated by a node, thousands", "pass@1, greedy, mean of nodes"
    seconds = "time that a node spent in rounds, seconds"
    other_work = "On a machine with other work, time is that work's too."
    same = "The same questions at each evaluation, apart from training's by their text."
    return {
        "2-swarm": (
            *("training-set reward, mean of agents", "round", reward),
            *(_rounds, training, "Others' groups count."),
        ),
        "3-reward-by-round": (fresh, "round", reward, _rounds, own, ""),
        "4-reward-by-tokens": (fresh, tokens, reward, _tokens, own, ""),
        "5-reward-by-time": (fresh, seconds, reward, lambda run: run.seconds, own, other_work),
        "6-held-out-by-round": (
            asked,
            "round",
            passed,
            lambda run: run.evaluated,
            mean_held_out,
            same,
        ),
        "7-held-out-by-tokens": (asked, tokens, passed, _tokens_at, mean_held_out, same),
        "8-signal": (
            *("groups with signal in the training set", "round", share),
            *(_rounds, signal, "A group has signal when its rewards differ."),
        ),
    }


def mean_held_out(run: Run) -> Sequence[float]:
    """Return the nodes' mean pass@1 at each evaluation."""
    return mean_over_nodes(run.held_out)


def _tokens(run: Run) -> list[float]:
    return [value / 1000 for value in run.tokens]


def _rounds(run: Run) -> Sequence[float]:
    return range(1, run.rounds + 1)


def _tokens_at(run: Run) -> list[float]:
    return [run.tokens[number - 1] / 1000 if number else 0.0 for number in run.evaluated]


def curve(label: str, runs: Sequence[Run], places: OfRun, values: OfRun) -> Curve:
    """Return an arm's line and band over its seeds, of both series of each run."""
    x = [statistics.fmean(column) for column in zip(*map(places, runs), strict=True)]
    found = [spread(column) for column in zip(*map(values, runs), strict=True)]
    return Curve(label, x, [one.mean for one in found], [one.half or 0.0 for one in found])


def _agents(mine: Mapping[str, Sequence[Run]], window: int, title: str) -> Figure:
    """The paper's figure 1: a panel for each arm, a line for each agent."""
    seed = next(iter(mine.values()))[0].seed
    figure, axes = _panels(
        list(mine),
        f"{title}: every agent, seed {seed}",
        f"training-set reward per completion\n(moving average over {window} rounds)",
    )
    for arm, ax in axes.items():
        run = next(run for run in mine[arm] if run.seed == seed)
        for number, node in enumerate(run.training):
            ax.plot(_rounds(run), moving_average(node, window), lw=0.8, color=COLOURS[number % 8])
        paper = PAPER_TOTALS.get(arm)
        beside = "" if paper is None else f" (paper {paper / PAPER_AGENTS:.0f})"
        ax.set_title(f"{arm}: {training_total(run):.1f} an agent{beside}", fontsize=8)
    next(iter(axes.values())).set_ylim(bottom=0)  # of all, and only now that each has drawn
    add_note(
        figure,
        "Number: the reward of all rounds, mean of the agents, since arms may have different "
        f"numbers of them. The paper's: its totals by {PAPER_AGENTS}, of 2000 rounds of "
        f"{PAPER_AGENTS} × Qwen2.5-0.5B (arXiv 2509.08721).",
        _NOTE_CHARS,
    )
    return figure


def _oscillation(mine: Mapping[str, Sequence[Run]], title: str) -> Figure:
    """Two measures: falls on held-out questions, and of the paper's own figure."""
    figure, axes = _axes(
        f"{title}: oscillation",
        "Left: what a node's held-out pass@1 loses between two evaluations where it falls, "
        "averaged over all evaluations (rises count 0). Right: greatest fall of an agent's "
        "training-set reward, averaged over a tenth of the rounds, below its best; fewer own "
        "questions raise it by noise alone. Dots: seeds. Paper: 2/6 oscillates most; it gives "
        "no number.",
        columns=2,
    )
    measures = (
        ("mean fall of pass@1\nbetween evaluations", oscillation),
        ("greatest fall of\ntraining-set reward", swing),
    )
    for ax, (label, measure) in zip(axes, measures, strict=True):
        for place, runs in enumerate(mine.values()):
            dots = [measure(run) for run in runs]
            ax.bar(place, statistics.fmean(dots), color=COLOURS[place % 8], alpha=0.6, width=0.6)
            ax.plot([place] * len(dots), dots, "o", ms=3, color="black")
        _name_places(ax, list(mine), "I/J")
        ax.set_ylabel(label)
    return figure


def _totals(mine: Mapping[str, Sequence[Run]], base: Sequence[Run], title: str) -> Figure:
    figure, ax = _axes(
        f"{title}: total reward, 8/0 = 1",
        "Ours: sum over rounds of the reward on own fresh questions, mean over seeds (dots) with "
        "its 95 % interval; hatched: the same of the training set, which the paper adds up.",
    )
    below, below_training = over(base, total).mean, over(base, training_total).mean
    for place, (arm, runs) in enumerate(mine.items()):
        colour = COLOURS[place % 8]
        found, training = over(runs, total), over(runs, training_total).mean / below_training
        own, half = found.mean / below, (found.half or 0.0) / below
        dots = [total(run) / below for run in runs]
        ax.bar(place - 0.25, own, 0.25, yerr=half, capsize=3, color=colour, alpha=0.8)
        ax.plot([place - 0.25] * len(dots), dots, "o", ms=2.5, color="#444444")
        ax.bar(place, training, 0.25, color=colour, alpha=0.35, hatch="///")
        shown = [(place - 0.25, max(own + half, *dots), own), (place, training, training)]
        if arm in PAPER_GAINS:
            paper = 1 + PAPER_GAINS[arm]
            ax.bar(place + 0.25, paper, 0.25, color="white", edgecolor=colour)
            shown.append((place + 0.25, paper, paper))
        for at, top, value in shown:
            ax.text(at, top + 0.03, f"{value:.2f}", ha="center", fontsize=7)
    _name_places(ax, list(mine), "I/J (left: own questions; hatched: training set; white: paper)")
    ax.set_ylabel("total reward over that of 8/0")
    return figure


def _name_places(ax: Any, names: Sequence[str], x: str) -> None:
    ax.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names], fontsize=7)
    ax.set_xlabel(x)


# Nodes that differ


def role_figures(rows: Sequence[Row], title: str) -> Figures:
    """Yield held-out by role, at the end and by round."""
    labels = [
        f"{row.labels['arm']}: {row.labels['role']} ({len(row.runs[0].fresh)})" for row in rows
    ]
    note = (
        f"pass@1 on held-out questions of all families, mean of the last {LATE} evaluations. "
        "Dashed: the silo; whiskers: 95 % interval over seeds (none with one)."
    )
    yield "held-out", bars(rows, labels, title=title, y="arm: role (nodes)", note=note)
    arms = list(dict.fromkeys(row.labels["arm"] for row in rows))
    figure, axes = _panels(
        arms, f"{title}: held-out questions, by role", "pass@1, greedy, mean of nodes and seeds"
    )
    for arm, ax in axes.items():
        for number, row in enumerate(row for row in rows if row.labels["arm"] == arm):
            mean = mean_over_nodes([node for run in row.runs for node in run.held_out])
            style = {"color": COLOURS[number + 1], "ls": DASHES[number % 8]}
            ax.plot(row.runs[0].evaluated, mean, lw=1.4, label=row.labels["role"], **style)
        ax.set_title(arm, fontsize=8)
        ax.legend(fontsize=6, loc="upper left")
    next(iter(axes.values())).set_ylim(bottom=0)
    yield "held-out-by-round", figure


# Text against weights


def price_figures(runs: Sequence[Run], rows: Sequence[Row]) -> Figures:
    """Yield held-out at the end, and by rounds, tokens and bytes."""
    title = "Held-out questions by what nodes send each other"
    figure = bars(
        rows,
        [row.labels["arm"] for row in rows],
        title=title,
        y="arm",
        note=f"pass@1, mean of the last {LATE} evaluations, of the nodes that are there at the "
        "end. Bar: mean node; whiskers: its 95 % interval over seeds (none with one); triangles: "
        "best and worst node, mean over seeds. Dashed: 8/0.",
    )
    for place, row in enumerate(rows):
        for pick, marker, colour in ((max, ">", COLOURS[2]), (min, "<", COLOURS[3])):
            at = statistics.fmean(pick(late_by_node(run)) for run in row.runs)
            figure.axes[0].plot([at], [place], marker, ms=5, color=colour)
    yield "held-out", figure
    mine = by_arm(runs)

    def by(arms: Mapping[str, Sequence[Run]], x: str, places: OfRun) -> Figure:
        curves = [curve(arm, some, places, mean_held_out) for arm, some in arms.items()]
        return lines(
            [Curve(one.label, one.x, one.y) for one in curves],
            title=title,
            x=x,
            y="held-out pass@1",
            note="pass@1, greedy, mean of the nodes that stay and of the seeds.",
        )

    yield "held-out-by-round", by(mine, "round", lambda run: run.evaluated)
    tokens = "tokens generated by the whole swarm, thousands"
    yield "held-out-by-tokens", by(mine, tokens, _swarm_tokens_at)
    sending = {arm: some for arm, some in mine.items() if _sent_at(some[0])[-1]}
    if sending:
        x = "sent by the whole swarm, millions of bytes (nothing of weights is compressed)"
        figure = by(sending, x, _sent_at)
        ax = figure.axes[0]
        ax.set_xscale("symlog", linthresh=0.1)  # between text and weights there are powers of ten
        if SILO in mine:
            ax.axhline(over(mine[SILO], late_heldout).mean, label="8/0 at its end", **_GREY)
            ax.legend(fontsize=7, ncols=2)
        yield "held-out-by-bytes", figure


def _swarm_tokens_at(run: Run) -> list[float]:
    return [run.swarm_tokens[number - 1] / 1000 if number else 0.0 for number in run.evaluated]


def _sent_at(run: Run) -> list[float]:
    both = zip(run.text_bytes, run.weight_bytes, strict=True)
    return [(text + weights) / _MEGA for text, weights in both]


# Attackers


def attack_figures(rows: Sequence[Row]) -> Figures:
    """Yield held-out by attack and share of attackers, and what was planted."""
    shares = sorted({row.labels["share"] for row in rows if row.labels["share"]})
    for share in shares:
        mine = [row for row in rows if row.labels["share"] == share]
        yield f"held-out-{share * 100:.0f}", _attacked(mine, f"{share:.0%}")
    if len(shares) > 1:
        yield "held-out-by-share", _by_share([row for row in rows if row.labels["share"]])
    planted = [row for row in rows if any(run.planted for run in row.runs)]
    if planted:
        yield "planted", _planted(planted)


def _relative(row: Row) -> tuple[float, float]:
    """Held-out over the clean swarm's, and half of its interval."""
    below = over(row.beside["clean"], late_heldout).mean if row.beside["clean"] else 0.0
    found = over(row.runs, late_heldout)
    return (found.mean / below, (found.half or 0.0) / below) if below else (0.0, 0.0)


def _attacked(rows: Sequence[Row], percent: str) -> Figure:
    figure, ax = _axes(
        f"Honest nodes with {percent} attackers",
        f"pass@1 on held-out questions, mean of the last {LATE} evaluations, over that of the "
        "clean swarm without defences. Line: the goal, 95 %. Whiskers: 95 % interval over seeds "
        "(none with one).",
    )
    kinds, defences = (
        list(dict.fromkeys(row.labels[name] for row in rows)) for name in ("attack", "defence")
    )
    for number, defence in enumerate(defences):
        colour, hatch = LOOKS[number % len(LOOKS)]
        mine = [row for row in rows if row.labels["defence"] == defence]
        found = [_relative(row) for row in mine]
        ax.bar(
            [kinds.index(row.labels["attack"]) + 0.4 * number - 0.2 for row in mine],
            [value for value, _ in found],
            0.38,
            yerr=[half for _, half in found],
            color=colour,
            alpha=0.75,
            hatch=hatch,
            label=f"defences: {defence}",
        )
    ax.axhline(GOAL, **_GREY)
    ax.set_xticks(range(len(kinds)), kinds)
    ax.set_xlabel("attack")
    ax.set_ylabel("held-out pass@1\nover the clean swarm's")
    ax.set_ylim(top=1.18 * ax.get_ylim()[1])  # room for the legend
    ax.legend(fontsize=8, loc="upper right", ncols=2)
    return figure


def _by_share(rows: Sequence[Row]) -> Figure:
    found = [
        Curve(
            f"{kind}: {defence}",
            [100 * row.labels["share"] for row in mine],
            [_relative(row)[0] for row in mine],
        )
        for kind in dict.fromkeys(row.labels["attack"] for row in rows)
        for defence in dict.fromkeys(row.labels["defence"] for row in rows)
        if (
            mine := [
                row
                for row in sorted(rows, key=lambda row: float(row.labels["share"]))
                if (row.labels["attack"], row.labels["defence"]) == (kind, defence)
            ]
        )
    ]
    return lines(
        found,
        title="Honest nodes by the share of attackers",
        x="attackers, % of members",
        y="held-out pass@1\nover the clean swarm's",
        note="pass@1 on held-out questions over that of the clean swarm without defences.",
        legend="attack: defences",
    )


def _planted(rows: Sequence[Row]) -> Figure:
    curves = []
    for row in rows:
        mean = mean_over_nodes([run.planted for run in row.runs if run.planted])
        smooth = [100 * one for one in moving_average(mean, max(1, len(mean) // 10))]
        label = f"{row.labels['arm']} ({mean[-1]:.1%} at the end)"
        curves.append(Curve(label, range(1, len(smooth) + 1), smooth))
    figure = lines(
        curves,
        title="What attackers planted, in honest nodes' completions",
        x="round",
        y="honest completions that hold it, %",
        note="Share of the completions that honest nodes shared in a round, mean of nodes and "
        "seeds, moving average over a tenth of the rounds. Grey: the goal, 5 %.",
        legend="attack share: defences",
    )
    ax = figure.axes[0]
    ax.axhline(100 * MOST_PLANTED, color="#999999", lw=1)
    ax.set_ylim(bottom=-0.02 * ax.get_ylim()[1])  # a line at 0 is seen
    return figure
