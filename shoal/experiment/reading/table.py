"""The table of an experiment, for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from shoal.experiment.reading.summary import ArmSummary, Spread

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
    "total reward: sum over rounds of the mean reward on a node's own fresh questions, mean ± sd "
    "over seeds; over 8/0: its gain, sd by seed; p: Welch against 8/0, adjusted (Holm); paper: "
    "the gain in arXiv 2509.08721; held-out: pass@1 at the end; 8/0, same tokens: the silo's "
    "pass@1 when it had generated as many tokens as this arm (or this arm's own when the silo "
    "ended first: marked *); oscillation: mean fall of pass@1 between evaluations; swing: greatest "
    "fall of an agent's training-set reward; signal: "
    "groups with signal among I + J; training set: gain of the paper's own figure, which counts "
    "others' groups"
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


def row(one: ArmSummary) -> list[str]:
    """One arm's cells."""
    return [
        one.arm,
        _spread(one.total, 1),
        "–" if one.gain is None else f"{one.gain.mean:+.0%} ± {_sd(one.gain, '.0%')}",
        "–" if one.p is None else _p(one.p),
        "–" if not one.paper_gain else f"{one.paper_gain:+.0%}",
        _spread(one.heldout, 3),
        _at(one),
        f"{one.tokens.mean / 1000:.0f} k",
        f"{one.oscillation.mean:.4f}",
        f"{one.swing.mean:.3f}",
        f"{one.signal.mean:.0%}",
        "–" if one.training_gain is None else f"{one.training_gain:+.0%}",
    ]


def _spread(value: Spread, digits: int) -> str:
    return f"{value.mean:.{digits}f} ± {_sd(value, f'.{digits}f')}"


def _sd(value: Spread, form: str) -> str:
    """The deviation, which one seed has none of."""
    return format(value.sd, form) if value.seeds > 1 else "–"


def _p(value: float) -> str:
    return "<0.0001" if value < 0.0001 else f"{value:.4f}"


def _at(one: ArmSummary) -> str:
    if one.gain is None or one.silo_heldout_at is None or one.heldout_at is None:
        return "–"
    if one.heldout_at.mean < one.heldout.mean:
        return f"{one.heldout_at.mean:.3f} * against {one.silo_heldout_at.mean:.3f}"
    return f"{one.silo_heldout_at.mean:.3f}"
