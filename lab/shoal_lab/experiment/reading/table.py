"""The table of an experiment, for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from shoal_lab.experiment.reading.summary import ArmSummary, Pair, Spread

COLUMNS = (
    "I/J",
    "total reward",
    "over 8/0",
    "p",
    "paper",
    "held-out",
    "8/0, same tokens",
    "tokens",
    "oscillation",
    "swing",
    "signal",
    "training set",
)
WIDE = 150
"""Terminal columns that all of them fit into."""
NARROW = ("I/J", "total reward", "over 8/0", "p", "paper", "held-out")
CAPTION = (
    "total reward: sum over rounds of the mean reward on a node's own fresh questions, mean "
    "and 95 % interval over seeds (– with one); over 8/0: its gain, interval of the gains by seed; "
    "p: against 8/0, paired by seed, adjusted (Holm); paper: "
    "the gain in arXiv 2509.08721; held-out: pass@1 at the end; 8/0, same tokens: the silo's "
    "pass@1 when it had generated as many tokens as this arm (or this arm's own when the silo "
    "ended first: marked *); oscillation: mean fall of pass@1 between evaluations; swing: greatest "
    "fall of an agent's training-set reward; signal: "
    "groups with signal among I + J; training set: gain of the paper's own figure, which counts "
    "others' groups"
)

PAIRS_CAPTION = (
    "differences by seed, mean and 95 % interval; p: t-test on them, adjusted over all pairs "
    "(Holm). Nodes of one swarm are not independent: a seed counts once"
)


def rich_table(summaries: Sequence[ArmSummary], title: str, width: int) -> Table:
    """The table for a terminal; a narrow one gets the columns that matter most."""
    shown = [place for place, name in enumerate(COLUMNS) if width >= WIDE or name in NARROW]
    table = Table(title=title, title_justify="left", caption=CAPTION, caption_justify="left")
    for place in shown:
        table.add_column(COLUMNS[place], justify="right" if place else "left", no_wrap=True)
    for one in summaries:
        cells = row(one)
        table.add_row(*(cells[place] for place in shown))
    return table


def markdown(summaries: Sequence[ArmSummary]) -> str:
    """The table as Markdown, with its caption."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(row(one)) + " |" for one in summaries]
    return "\n".join(lines) + f"\n\n{CAPTION}.\n"


def pairs_markdown(compared: Sequence[Pair]) -> str:
    """Any two arms beside each other, as Markdown."""
    lines = ["| | minus | total reward | p | held-out | p |", "|---|---|---|---|---|---|"]
    held_out = {(one.one, one.other): one for one in compared if one.measure == "heldout"}
    for one in compared:
        if one.measure == "total":
            other = held_out[one.one, one.other]
            totals = f"{interval_of(one.difference, 1)} | {_pair_p(one)}"
            evaluated = f"{interval_of(other.difference, 3)} | {_pair_p(other)}"
            lines.append(f"| {one.one} | {one.other} | {totals} | {evaluated} |")
    return "\n".join(lines) + f"\n\n{PAIRS_CAPTION}.\n"


def row(one: ArmSummary) -> list[str]:
    """One arm's cells."""
    return [
        one.arm,
        interval_of(one.total, 1),
        "–" if one.gain is None else f"{one.gain.mean:+.0%} ± {_half(one.gain, '.0%')}",
        "–" if one.p is None else _p(one.p),
        "–" if not one.paper_gain else f"{one.paper_gain:+.0%}",
        interval_of(one.heldout, 3),
        _at(one),
        f"{one.tokens.mean / 1000:.0f} k",
        f"{one.oscillation.mean:.4f}",
        f"{one.swing.mean:.3f}",
        f"{one.signal.mean:.0%}",
        "–" if one.training_gain is None else f"{one.training_gain:+.0%}",
    ]


def interval_of(value: Spread, digits: int) -> str:
    """Mean and 95 % interval; – where one seed has none."""
    return f"{value.mean:.{digits}f} ± {_half(value, f'.{digits}f')}"


def _half(value: Spread, form: str) -> str:
    """Half the interval, which one seed has none of."""
    return "–" if value.half is None else format(value.half, form)


def _pair_p(one: Pair) -> str:
    return "–" if one.p is None else _p(one.p)


def _p(value: float) -> str:
    return "<0.0001" if value < 0.0001 else f"{value:.4f}"


def _at(one: ArmSummary) -> str:
    if one.gain is None or one.silo_heldout_at is None or one.heldout_at is None:
        return "–"
    if one.heldout_at.mean < one.heldout.mean:
        return f"{one.heldout_at.mean:.3f} * against {one.silo_heldout_at.mean:.3f}"
    return f"{one.silo_heldout_at.mean:.3f}"
