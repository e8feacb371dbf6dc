"""`shoal experiment price`: what nodes may send each other to learn together. Pure.

    8/0            nothing
    text           answers: four own groups and four of others, of eight questions asked
    weights K      the mean of all weights after every K rounds
    both K         answers and, after every K rounds, weights
    4/4            answers, of four questions asked: what a node does unless told otherwise
    … leaving      a quarter of the nodes is gone after half of the rounds
    … mixed        half of the nodes have the larger model, which has another tokenizer

In every arm but 4/4 a node answers eight questions a round and trains on at most eight groups, in
as many steps. Weights of mixed models have no mean: that arm is refused, and the report says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from shoal_lab.experiment.arms.hetero import ALONE, LARGER
from shoal_lab.experiment.plan import SILO, Arm, Experiment, Job, refusal, uniform_arm
from shoal_lab.experiment.reading.measures import (
    LATE,
    by_arm,
    differences,
    late_by_node,
    late_heldout,
    over,
    paired_runs,
    total,
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
    pairs_markdown,
)
from shoal_lab.significance import Spread, spread

if TYPE_CHECKING:  # matplotlib, which takes a second
    from matplotlib.figure import Figure

NODES: Final = 4
TESTS: Final = (
    "t-test on differences by seed, two-sided, of late held-out pass@1 and of the total reward, "
    "between the pairs of the page; adjusted (Holm) over the pairs of a measure",
)
SHARING: Final[dict[str, Any]] = {"local": 4, "external": 4, "questions": 8}
TEXT: Final = "text"
OFTEN, USUAL, SELDOM = 1, 5, 20
"""Rounds between two averages of the weights."""
_GONE: Final = 0.5
LEAVING, MIXED = " leaving", " mixed"
"""Suffixes of the names of such arms."""
MEGA: Final = 1_000_000
PER_TOKENS: Final = 100_000
TITLE: Final = "What learning together costs: text against weights"


def all_arms(num_nodes: int) -> tuple[Arm, ...]:
    """Return what may be sent, at equal samples and steps; nodes that leave, nodes that differ."""
    silo, text, *weights, both = _main(num_nodes)
    usual = next(arm for arm in weights if arm.average_every == USUAL)
    arms = (silo, text, *weights, both, uniform_arm("4/4", num_nodes, local=4, external=4))
    if num_nodes == 1:  # nobody can leave it, or differ from it
        return arms
    return (*arms, *(leaving(arm) for arm in (text, usual, both)), mixed(silo), mixed(text))


def quick_arms(num_nodes: int) -> tuple[Arm, ...]:
    """Return nothing, answers, weights, and both."""
    quick = (SILO, TEXT, f"weights {USUAL}", f"both {USUAL}")
    return tuple(arm for arm in _main(num_nodes) if arm.name in quick)


def leaving(arm: Arm) -> Arm:
    """Return the arm with a quarter of its nodes, at least one, gone after half of the rounds."""
    stay = len(arm.nodes) - max(1, len(arm.nodes) // 4)
    gone = (replace(node, leaves=_GONE) for node in arm.nodes[stay:])
    return replace(arm, name=f"{arm.name}{LEAVING}", nodes=(*arm.nodes[:stay], *gone))


def mixed(arm: Arm) -> Arm:
    """Return the arm with the larger model in every other node."""
    nodes = (
        replace(node, settings={**node.settings, "model": str(LARGER)}) if index % 2 else node
        for index, node in enumerate(arm.nodes)
    )
    return replace(arm, name=f"{arm.name}{MIXED}", nodes=tuple(nodes))


def _main(num_nodes: int) -> tuple[Arm, ...]:
    silo = uniform_arm(SILO, num_nodes, **ALONE)
    text = uniform_arm(TEXT, num_nodes, **SHARING)
    weights = (
        replace(silo, name=f"weights {every}", average_every=every)
        for every in (OFTEN, USUAL, SELDOM)
    )
    return (silo, text, *weights, replace(text, name=f"both {USUAL}", average_every=USUAL))


def read(runs: Sequence[Run], experiment: Experiment) -> Reading:
    """Sum up what every arm knew, and what it generated and sent for it."""
    rows, refused = rows_of(runs, experiment), refusals(experiment)
    pairs = _wanted(list(by_arm(runs)))
    held_out, totals = (differences(runs, pairs, measure) for measure in (late_heldout, total))
    measures = [
        Compared(head="held-out", found=held_out, digits=3, sign="+"),
        Compared(head="total", found=totals, digits=1, sign="+"),
    ]
    compared = [
        {
            "arm": one.one,
            "minus": one.other,
            "heldout": one.spread.to_json(),
            "heldout_p_adjusted": one.p,
            "total": totals[pair].spread.to_json(),
            "total_p_adjusted": totals[pair].p,
        }
        for pair, one in held_out.items()
    ]
    return Reading(
        sheet=SHEET,
        rows=rows,
        document={"prices": SHEET.objects(rows), "pairs": compared, "refused": refused},
        notes=_not_played(refused),
        sections=[pairs_markdown(measures, PAIRS_CAPTION)],
        figures=partial(_figures, runs, rows),
    )


def rows_of(runs: Sequence[Run], experiment: Experiment) -> list[Row]:
    """Return a row for each arm, beside the silo of the same models."""
    nodes = {arm.name: len(arm.nodes) for arm in experiment.arms}
    arms = by_arm(runs)
    return [
        Row(
            runs=mine,
            labels={"arm": arm, "nodes": nodes[arm]},
            beside={SILO: arms.get(_silo_of(arm), ()) if arm != _silo_of(arm) else ()},
        )
        for arm, mine in arms.items()
    ]


def _silo_of(arm: str) -> str:
    return f"{SILO}{MIXED}" if arm.endswith(MIXED) else SILO


def refusals(experiment: Experiment) -> dict[str, str]:
    """Return why arms that belong here cannot be played, by their names."""
    num_nodes = len(experiment.arms[0].nodes)
    averaged = [arm for arm in _main(num_nodes) if arm.average_every == USUAL]
    found = {}
    for arm in map(mixed, averaged) if num_nodes > 1 else ():
        job = Job(arm=arm, seed=1, rounds=experiment.rounds, base=experiment.base)
        if (reason := refusal(job)) is not None:
            found[arm.name] = reason
    return found


def _not_played(refused: dict[str, str]) -> list[str]:
    """Return a sentence for each reason, with the arms that it holds for."""
    return [
        f"not played: {', '.join(name for name, one in refused.items() if one == reason)}: {reason}"
        for reason in dict.fromkeys(refused.values())
    ]


def _wanted(arms: Sequence[str]) -> list[tuple[str, str]]:
    """Return the comparisons that were set before anything was played.

    Every arm against the silo, weights and both against text, and what a change costs.
    """
    plain = [arm for arm in arms if not arm.endswith((LEAVING, MIXED))]
    pairs = [(arm, SILO) for arm in plain if arm != SILO]
    pairs += [(arm, TEXT) for arm in plain if arm.startswith(("weights ", "both ", "4/4"))]
    pairs += [(f"both {USUAL}", f"weights {USUAL}")]
    pairs += [(arm, arm.removesuffix(LEAVING)) for arm in arms if arm.endswith(LEAVING)]
    pairs += [(f"{TEXT}{MIXED}", f"{SILO}{MIXED}")]
    return [pair for pair in pairs if set(pair) <= set(arms)]


def sent(run: Run) -> float:
    """Return the bytes that the whole swarm has sent."""
    return run.text_bytes[-1] + run.weight_bytes[-1]


def _over(measure: Callable[[Run], float]) -> Callable[[Row], Spread]:
    return lambda row: over(row.runs, measure)


def _gain(row: Row) -> Spread | None:
    """Held-out minus that of the silo of the same seed and models."""
    both = paired_runs(row.runs, row.beside[SILO])
    return spread([late_heldout(run) - late_heldout(silo) for run, silo in both]) if both else None


def _gain_per_mb(row: Row) -> Spread | None:
    """The gain for every million bytes that the swarm has sent; None where nothing was."""
    gains = [
        MEGA * (late_heldout(run) - late_heldout(silo)) / sent(run)
        for run, silo in paired_runs(row.runs, row.beside[SILO])
        if sent(run)
    ]
    return spread(gains) if gains else None


def _kilobytes(measure: Callable[[Run], float]) -> Callable[[Row], float]:
    """Return what turns bytes of the swarm into a node's thousands of bytes a round."""

    def found(row: Row) -> float:
        return over(row.runs, measure).mean / (1000 * row.labels["nodes"] * row.runs[0].rounds)

    return found


def _text(run: Run) -> float:
    return run.text_bytes[-1]


def _weights(run: Run) -> float:
    return run.weight_bytes[-1]


def _kilo(value: float) -> str:
    return f"{value:.1f}" if value else "0"


_mean = mean_of(".3f")
SHEET: Final = Sheet(
    title=TITLE,
    caption=(
        f"mean node, best, worst: held-out pass@1, mean of the last {LATE} evaluations, of the "
        "nodes that are there at the end, mean over seeds, ± its 95 % interval (– with one); "
        "total: sum over rounds of the mean reward on a node's own fresh questions; tokens: "
        "generated by the whole swarm; a 100 k: the mean node's pass@1 for every 100,000 of them; "
        "text, weights: what a node sends a round, text as the swarm in memory carries it, signed, "
        "copies that are forwarded included, weights by arithmetic, an all-reduce in a ring; gain "
        "a MB: pass@1 over that of 8/0 (of the same models) for every million bytes that the whole "
        "swarm has sent"
    ),
    wide=110,
    columns=(
        label("arm", "arm"),
        label("nodes"),
        Column(key="seeds", of=lambda row: len(row.runs)),
        Column(head="mean node", key="heldout_mean", of=_over(late_heldout), shown=interval_of(3)),
        Column(
            head="best",
            key="heldout_best",
            of=_over(lambda run: max(late_by_node(run))),
            shown=_mean,
        ),
        Column(
            head="worst",
            key="heldout_worst",
            of=_over(lambda run: min(late_by_node(run))),
            shown=_mean,
        ),
        Column(head="total", key="total", of=_over(total), shown=interval_of(1), in_narrow=False),
        Column(
            head="tokens",
            key="swarm_tokens",
            of=_over(lambda run: run.swarm_tokens[-1]),
            shown=mean_of(".0f", 1e-3, " k"),
            in_narrow=False,
        ),
        Column(
            head="a 100 k",
            key="heldout_per_100k_tokens",
            of=_over(lambda run: PER_TOKENS * late_heldout(run) / run.swarm_tokens[-1]),
            shown=_mean,
            in_narrow=False,
        ),
        Column(key="text_bytes", of=_over(_text)),
        Column(key="weight_bytes", of=_over(_weights)),
        Column(head="text, KB", of=_kilobytes(_text), shown=_kilo),
        Column(head="weights, KB", of=_kilobytes(_weights), shown=_kilo),
        Column(key="gain_over_8_0", of=_gain),
        Column(
            head="gain a MB",
            key="gain_per_mb",
            of=_gain_per_mb,
            shown=mean_of("+.4f"),
            in_narrow=False,
        ),
    ),
)
PAIRS_CAPTION: Final = (
    "differences by seed, mean and 95 % interval, of the mean node's held-out pass@1 and of its "
    "total; p: t-test on them, adjusted over all lines (Holm). A seed counts once"
)


def _figures(runs: Sequence[Run], rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    from shoal_lab.experiment.drawing import price_figures

    return price_figures(runs, rows)
