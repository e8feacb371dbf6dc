"""`shoal experiment results`: does sharing help a node as `make node` runs it, at equal cost? Pure.

    8/0            the silo: nobody shares
    8/0 filtered   the silo that asks twice as much and trains on what has signal
    4/4 naive      SAPO as published: uniform choice, all completions
    4/8 HACPO      HACPO's form, as far as it goes without claims (`playing.learners`)
    4/8 shoal      a node's defaults
    24/0 all data  one trainer that asks all nodes' questions (here of six)
    12 answers     supervised fine-tuning on right answers, in as many steps as 4/8

All at a node's own model, rate and words. What is compared is held-out pass@1 by round, by token
generated and by CPU second: the height of its curve, up to where the silo ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from shoal_lab.experiment.arms.paper import filtered_arm, ratio_arm
from shoal_lab.experiment.plan import SILO, Arm, Experiment, NodeSpec, uniform_arm
from shoal_lab.experiment.reading.measures import (
    area,
    by_arm,
    cpu_at,
    differences,
    final_heldout,
    heldout_area,
    over,
    tokens_at,
    total,
)
from shoal_lab.experiment.reading.report import Reading
from shoal_lab.experiment.reading.results import Run, mean_over_nodes
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

NODES: Final = 6
OURS: Final = "4/8 shoal"
NAIVE: Final = "4/4 naive"
ANSWERS: Final = "12 answers"
BASE: Final[Mapping[str, Any]] = {
    "model": "tiny",
    "device": "cpu",
    "draws": "standing",
    "eval_every": 4,
    "eval_per_family": 68,
}
"""Settings that differ from a node's defaults: where it computes and which questions it gets.
68 questions of each of three families make 204."""
COUNTED: Final = ("spell_backward_easy", "letter_counting_easy", "simple_equations_easy")
"""The families that results are claimed of. The other three of `easy` have 120 to 210 questions by
meaning (docs/tasks.md); these have 2,500 to some 15,000. Of other tasks every family counts."""
TITLE: Final = "Alone or together, at a node's defaults"
MERIT: Final = (
    "held-out pass@1: area under its curve by round and by CPU second, each up to where 8/0 ends, "
    f"mean of the nodes, of the families {', '.join(COUNTED)}"
)
TESTS: Final = (
    f"t-test on differences by seed, two-sided, {OURS} minus each other arm, of the area by round; "
    "adjusted (Holm) over the arms",
    "the same of the area by CPU second, adjusted over the arms",
)


def all_arms(num_nodes: int) -> tuple[Arm, ...]:
    """Return every arm."""
    hacpo = NodeSpec(
        settings={"local": 4, "external": 8, "strategy": "uniform", "draws": "uniform"},
        learner="hacpo",
    )
    answers = NodeSpec(settings={"local": 12, "external": 0}, learner="answers")
    return (
        *quick_arms(num_nodes),
        Arm(name="4/8 HACPO", nodes=(hacpo,) * num_nodes),
        Arm(name=ANSWERS, nodes=(answers,) * num_nodes),
    )


def quick_arms(num_nodes: int) -> tuple[Arm, ...]:
    """Return the five arms of the figure."""
    local = 4 * num_nodes
    return (
        ratio_arm(SILO, num_nodes),
        filtered_arm(num_nodes),
        uniform_arm(NAIVE, num_nodes, local=4, external=4, strategy="uniform", draws="uniform"),
        Arm(name=OURS, nodes=(NodeSpec(),) * num_nodes),
        uniform_arm(f"{local}/0 all data", 1, local=local, external=0),
    )


def read(runs: Sequence[Run], experiment: Experiment) -> Reading:
    """Compare a node's defaults with every other arm."""
    runs = [run.of_families(COUNTED) for run in runs]
    ends = _ends(runs)
    measures: dict[str, Callable[[Run], float]] = {"by round": heldout_area}
    if all(run.cpu for run in runs):
        measures["by CPU second"] = partial(_by_cpu, ends=ends)
    arms = by_arm(runs)
    pairs = [(OURS, arm) for arm in arms if arm != OURS and OURS in arms]
    compared = {name: differences(runs, pairs, one) for name, one in measures.items()}
    rows = [Row(runs=mine, labels={"arm": arm, "ends": ends}) for arm, mine in arms.items()]
    return Reading(
        sheet=SHEET,
        rows=rows,
        document={
            "mode": "in-process",
            "nodes": len(experiment.arms[0].nodes),
            **SHEET.by_measure(rows, "arm"),
            "pairs": [
                {
                    "arm": one.one,
                    "minus": one.other,
                    "measure": name,
                    "difference": one.spread.to_json(),
                    "p_adjusted": one.p,
                }
                for name, found in compared.items()
                for one in found.values()
            ],
        },
        sections=[_pairs(compared)] if pairs else [],
        figures=lambda: _figures(runs, list(arms)),
    )


Ends = Mapping[tuple[str, int], float]
"""Where the silo ends, by what is counted and seed."""


def _ends(runs: Sequence[Run]) -> Ends:
    silos = [run for run in runs if run.arm == SILO]
    cpu = {("cpu", run.seed): run.cpu[-1] for run in silos if run.cpu}
    return {**cpu, **{("tokens", run.seed): run.tokens[-1] for run in silos}}


def _by_cpu(run: Run, ends: Ends) -> float:
    places = cpu_at(run)
    return area(places, mean_over_nodes(run.held_out), ends.get(("cpu", run.seed), places[-1]))


def _by_tokens(run: Run, ends: Ends) -> float:
    places = tokens_at(run)
    return area(places, mean_over_nodes(run.held_out), ends.get(("tokens", run.seed), places[-1]))


def _spread(measure: Callable[[Run], float]) -> Callable[[Row], Spread]:
    return lambda row: over(row.runs, measure)


def _cpu_area(row: Row) -> Spread | None:
    if not all(run.cpu for run in row.runs):
        return None
    return spread([_by_cpu(run, row.labels["ends"]) for run in row.runs])


def _token_area(row: Row) -> Spread | None:
    """Return the area by token; none of an arm that generates nothing."""
    if not all(run.tokens[-1] for run in row.runs):
        return None
    return spread([_by_tokens(run, row.labels["ends"]) for run in row.runs])


def _milliseconds(row: Row) -> Spread | None:
    if not all(run.cpu for run in row.runs):
        return None
    return spread([1000 * run.cpu[-1] / run.rounds for run in row.runs])


SHEET: Final = Sheet(
    title=TITLE,
    caption=(
        "area: mean height of the curve of held-out pass@1, mean of the nodes, and its 95 % "
        "interval over seeds (– with one); by CPU second and by token up to where 8/0 ends, and a "
        "curve that ends before goes on as it ended; last: pass@1 at the end; total: sum over "
        f"rounds of the reward on own fresh questions; of `easy` the families {', '.join(COUNTED)} "
        "count"
    ),
    columns=(
        label("arm", "arm", is_text=True),
        Column(key="seeds", of=lambda row: len(row.runs)),
        Column(head="area by round", key="area", of=_spread(heldout_area), shown=interval_of(3)),
        Column(head="by CPU second", key="area_by_cpu", of=_cpu_area, shown=interval_of(3)),
        Column(head="by token", key="area_by_token", of=_token_area, shown=interval_of(3)),
        Column(head="last", key="heldout", of=_spread(final_heldout), shown=interval_of(3)),
        Column(head="total", key="totals", of=_spread(total), shown=mean_of(".1f")),
        Column(head="CPU ms a round", key="cpu_ms", of=_milliseconds, shown=mean_of(".0f")),
        Column(
            head="tokens",
            key="tokens",
            of=_spread(lambda run: run.tokens[-1]),
            shown=mean_of(".0f", 1e-3, " k"),
            in_narrow=False,
        ),
    ),
    wide=110,
)


def _pairs(compared: Mapping[str, Any]) -> str:
    measures = [
        Compared(head=f"area {name}", found=found, digits=3, sign="+")
        for name, found in compared.items()
    ]
    return pairs_markdown(
        measures,
        "differences by seed, mean and 95 % interval; p: t-test on them, adjusted over the arms "
        "(Holm). Nodes of one swarm are not independent: a seed counts once",
    )


def _figures(runs: Sequence[Run], arms: Sequence[str]) -> Iterator[tuple[str, Figure]]:
    from shoal_lab.experiment.drawing_cost import cost_figures

    return cost_figures(runs, arms, TITLE)
