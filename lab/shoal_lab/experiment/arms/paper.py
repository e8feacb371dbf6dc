"""`shoal experiment paper`: SAPO's controlled experiment (arXiv 2509.08721) in miniature.

    6/2, 4/4, 2/6  own questions and others' groups of a round, as in the paper
    8/0            the silo: nobody shares
    8/0 filtered   the silo that asks twice as much and trains on what has signal

Any comparison of I/J is read as here.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from shoal_lab.experiment.folder import LAW, WHOM
from shoal_lab.experiment.plan import SILO, Arm, Experiment, uniform_arm
from shoal_lab.experiment.reading import ceiling, whom
from shoal_lab.experiment.reading.measures import (
    PAPER_GAINS,
    Difference,
    against_silo,
    by_arm,
    differences,
    final_heldout,
    heldout_area,
    heldout_at,
    oscillation,
    over,
    paired_runs,
    swing,
    total,
    training_total,
)
from shoal_lab.experiment.reading.report import Reading
from shoal_lab.experiment.reading.results import Run
from shoal_lab.experiment.reading.sheet import (
    Column,
    Compared,
    Row,
    Sheet,
    interval_of,
    label,
    mean_of,
    p_of,
    pairs_markdown,
    percent_of,
)
from shoal_lab.significance import Spread, spread

if TYPE_CHECKING:  # matplotlib, which takes a second
    from matplotlib.figure import Figure

FILTERED: Final = "8/0 filtered"
"""Most of what sharing does is to filter, so the silo that filters is the fair rival."""
PAPER_ARMS: Final = ("8/0", "6/2", "4/4", "2/6")
MERIT: Final = (
    "held-out pass@1: area under its curve by round, divided by the rounds, mean of the nodes"
)
TESTS: Final = (
    "t-test on differences by seed, two-sided, of the total reward and of the last held-out "
    "pass@1, between any two arms; adjusted (Holm) over all pairs of a measure",
    "the same of the held-out area, of each arm against 8/0; adjusted (Holm) over the arms",
)
TITLE: Final = "SAPO's controlled experiment (arXiv 2509.08721, section 5) in miniature"


def ratio_arm(name: str, num_nodes: int) -> Arm:
    """Return the arm of a name like 4/4: I and J. Raises ValueError for anything else."""
    local, external = (int(part) for part in name.split("/"))
    return uniform_arm(name, num_nodes, local=local, external=external)


def filtered_arm(num_nodes: int) -> Arm:
    """Return the silo that asks twice as much and trains on what has signal."""
    return uniform_arm(FILTERED, num_nodes, local=8, external=0, questions=16)


def all_arms(num_nodes: int) -> tuple[Arm, ...]:
    """Return the paper's four configurations and the filtered silo."""
    return (*(ratio_arm(name, num_nodes) for name in PAPER_ARMS), filtered_arm(num_nodes))


def read(runs: Sequence[Run], experiment: Experiment, *, title: str = TITLE) -> Reading:
    """Compare every arm with the silo, any two with each other, and all with one trainer's."""
    rows = rows_of(runs)
    measures = {"total": total, "heldout": final_heldout}
    pairs = list(combinations(by_arm(runs), 2))
    compared = {name: differences(runs, pairs, measure) for name, measure in measures.items()}
    top = ceiling.ceiling(runs)
    told = [run for run in runs if run.readers]
    return Reading(
        sheet=sheet(title),
        rows=rows,
        document={
            "mode": "in-process",
            "nodes": len(experiment.arms[0].nodes),
            "silo": SILO,
            **sheet(title).by_measure(rows, "arm"),
            "pairs": [
                _pair_json(name, one) for name in compared for one in compared[name].values()
            ],
            **(top.to_json() if top else {}),
            **whom.to_json(told),
        },
        sections=[
            pairs_table(compared["total"], compared["heldout"]),
            *([ceiling.markdown(top)] if top else []),
        ],
        pages=_pages(runs, told),
        figures=partial(_figures, runs, rows, f"shoal experiment {experiment.name}"),
    )


def rows_of(runs: Sequence[Run]) -> list[Row]:
    """Return a row for each arm, beside the silo."""
    arms, p_values = by_arm(runs), against_silo(runs, total)
    of_area = against_silo(runs, heldout_area)
    return [
        Row(
            runs=mine,
            labels={"arm": arm, "p": p_values.get(arm), "area_p": of_area.get(arm)},
            beside={SILO: arms.get(SILO, ())},
        )
        for arm, mine in arms.items()
    ]


def pairs_table(
    totals: Mapping[tuple[str, str], Difference], held_out: Mapping[tuple[str, str], Difference]
) -> str:
    """Return any two arms beside each other, as Markdown."""
    measures = [
        Compared(head="total reward", found=totals, digits=1),
        Compared(head="held-out", found=held_out, digits=3),
    ]
    return pairs_markdown(measures, PAIRS_CAPTION)


def _pages(runs: Sequence[Run], told: Sequence[Run]) -> dict[str, str]:
    from shoal_lab.experiment.reading import law  # numpy and scipy

    found = law.find(runs)
    pages = {} if found is None else {LAW: law.markdown(found)}
    return pages | ({WHOM: whom.markdown(whom.courses(told))} if told else {})


def _pair_json(measure: str, one: Difference) -> dict[str, Any]:
    named = {"arm": one.one, "minus": one.other, "measure": measure}
    return named | {"difference": one.spread.to_json(), "p_adjusted": one.p}


def _over(measure: Callable[[Run], float]) -> Callable[[Row], Spread]:
    return lambda row: over(row.runs, measure)


def _rivals(row: Row) -> Sequence[Run]:
    """The silo's runs; none beside the silo itself."""
    return () if row.labels["arm"] == SILO else row.beside[SILO]


def _gain(row: Row) -> Spread | None:
    """The mean total over the silo's, minus one; its spread is that of the gains by seed."""
    mean = _ratio(row, total)
    if mean is None:
        return None
    both = paired_runs(row.runs, _rivals(row))
    gains = [total(mine) / total(silo) - 1 for mine, silo in both if total(silo) > 0]
    around = spread(gains) if gains else Spread(0.0, 0.0, None, 0)
    return Spread(mean, around.sd, around.half, around.units)


def _ratio(row: Row, measure: Callable[[Run], float]) -> float | None:
    rivals = _rivals(row)
    below = over(rivals, measure).mean if rivals else 0.0
    return over(row.runs, measure).mean / below - 1 if below > 0 else None


def _at_equal_tokens(which: int) -> Callable[[Row], Spread | None]:
    """pass@1 of an arm (0) or of the silo (1), when both had generated as many tokens."""

    def found(row: Row) -> Spread | None:
        both = paired_runs(row.runs, row.beside[SILO])
        values = [
            heldout_at(pair[which], min(pair[0].tokens[-1], pair[1].tokens[-1])) for pair in both
        ]
        return spread(values) if values else None

    return found


def _silo_at(row: Row) -> str | None:
    mine, silo = _at_equal_tokens(0)(row), _at_equal_tokens(1)(row)
    if _gain(row) is None or mine is None or silo is None:
        return None
    if mine.mean < over(row.runs, final_heldout).mean:
        return f"{mine.mean:.3f} * against {silo.mean:.3f}"
    return f"{silo.mean:.3f}"


def _paper_gain(row: Row) -> float | None:
    return PAPER_GAINS.get(row.labels["arm"]) or None


def _signal(run: Run) -> float:
    return statistics.fmean(run.signal)


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
_PERCENT: Final = "{:+.0%}".format


def sheet(title: str) -> Sheet:
    """Return the table of a comparison of I/J."""
    return Sheet(title=title, caption=CAPTION, columns=COLUMNS, wide=150)


COLUMNS: Final = (
    label("arm", "I/J", key=""),
    Column(of=lambda row: len(row.runs), key="seeds"),
    Column(head="total reward", key="totals", of=_over(total), shown=interval_of(1)),
    Column(head="over 8/0", key="gain_over_8_0", of=_gain, shown=partial(percent_of, sign="+")),
    label("p", "p", key="p_adjusted", shown=p_of, digits=None),
    Column(head="paper", key="paper_gain_over_8_0", of=_paper_gain, shown=_PERCENT),
    Column(head="held-out", key="heldout", of=_over(final_heldout), shown=interval_of(3)),
    Column(key="heldout_area", of=_over(heldout_area)),
    label("area_p", key="heldout_area_p_adjusted", digits=None),
    Column(head="8/0, same tokens", of=_silo_at, in_narrow=False),
    Column(key="heldout_at_equal_tokens", of=_at_equal_tokens(0)),
    Column(key="heldout_of_8_0_at_equal_tokens", of=_at_equal_tokens(1)),
    Column(
        head="tokens",
        key="tokens",
        of=_over(lambda run: run.tokens[-1]),
        shown=mean_of(".0f", 1e-3, " k"),
        in_narrow=False,
    ),
    Column(
        head="oscillation",
        key="oscillation",
        of=_over(oscillation),
        shown=mean_of(".4f"),
        in_narrow=False,
    ),
    Column(head="swing", key="swing", of=_over(swing), shown=mean_of(".3f"), in_narrow=False),
    Column(
        head="signal", key="signal_share", of=_over(_signal), shown=mean_of(".0%"), in_narrow=False
    ),
    Column(key="training_totals", of=_over(training_total)),
    Column(
        head="training set",
        key="training_gain_over_8_0",
        of=lambda row: _ratio(row, training_total),
        shown=_PERCENT,
        in_narrow=False,
    ),
)


def _figures(runs: Sequence[Run], rows: Sequence[Row], title: str) -> Iterator[tuple[str, Figure]]:
    from shoal_lab.experiment.drawing import comparison_figures

    return comparison_figures(runs, [row.labels["arm"] for row in rows], title)
