"""`shoal experiment hetero`: swarms whose nodes differ. Pure.

Each arm is a swarm. A role is the nodes of an arm that are alike, and is what is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shoal_lab.experiment.plan import SILO, Arm, Experiment, NodeSpec
from shoal_lab.experiment.reading.measures import (
    LATE,
    groups_external,
    late_heldout,
    late_reward,
    over,
)
from shoal_lab.experiment.reading.report import Reading
from shoal_lab.experiment.reading.results import Run
from shoal_lab.experiment.reading.sheet import Column, Row, Sheet, interval_of, label, mean_of
from shoal_lab.significance import Spread
from shoal_tasks.families import EASY

if TYPE_CHECKING:  # matplotlib, which takes a second
    from matplotlib.figure import Figure

LARGER: Final = Path(".shoal") / "experiment" / "models" / "larger"
"""The model of another size and tokenizer, made from `tiny-sparse` when it is first needed."""
SHARING: Final[Mapping[str, Any]] = {"local": 4, "external": 4}
ALONE: Final[Mapping[str, Any]] = {"local": 8, "external": 0}
FROZEN: Final[Mapping[str, Any]] = {"local": 4, "external": 0, "learning_rate": 1e-15}
"""A node that only answers: a step of this rate is below what a float32 weight can change by."""
SLOW: Final = 3
"""A slow node plays every third round."""
LATE_JOINER: Final = 0.5
"""A late node joins after half of the rounds."""
TITLE: Final = "Swarms whose nodes differ"


def all_arms(num_nodes: int) -> tuple[Arm, ...]:
    """Return every kind of difference, and the two swarms without any."""
    alike = _kind("alike")
    dense, sparse = _kind("dense start", model="tiny"), _kind("sparse", model="tiny-sparse")
    slow, late = _kind("slow", every=SLOW), _kind("late", late=LATE_JOINER)
    steady, training = _kind("steady"), _kind("in training")
    answering = NodeSpec(settings={**FROZEN, "model": "tiny"}, role="answers only")
    kinds: dict[str, Sequence[NodeSpec]] = {
        SILO: [NodeSpec(settings=ALONE, role="alone")],
        "4/4": [alike],
        "specialists 8/0": _specialists(ALONE),
        "specialists 4/4": _specialists(SHARING),
        "L": [_kind(f"L = {count}", completions=count) for count in (4, 8, 16)],
        "slow and late": [steady, slow, steady, late],
        "models": [dense, sparse],
        "sizes and tokenizers": [_kind("small"), _kind("larger", model=str(LARGER))],
        "generate-only": [training, answering],
    }
    return tuple(
        Arm(name=name, nodes=tuple(some[i % len(some)] for i in range(num_nodes)))
        for name, some in kinds.items()
    )


def _kind(role: str, *, every: int = 1, late: float = 0.0, **settings: Any) -> NodeSpec:
    return NodeSpec(settings={**SHARING, **settings}, role=role, every=every, late=late)


def _specialists(settings: Mapping[str, Any]) -> list[NodeSpec]:
    specialist = NodeSpec(settings=settings, role="specialist")
    return [replace(specialist, families=(family.name,)) for family in EASY]


def read(runs: Sequence[Run], experiment: Experiment) -> Reading:
    """Sum up every role, in the order of the arms."""
    silo = [run for run in runs if run.arm == SILO]
    rows = [
        Row(
            runs=[run.of_role(role) for run in runs if run.arm == arm.name],
            labels={"arm": arm.name, "role": role},
            beside={SILO: silo},
        )
        for arm in experiment.arms
        if any(run.arm == arm.name for run in runs)
        for role in dict.fromkeys(node.role for node in arm.nodes)
    ]
    return Reading(
        sheet=SHEET,
        rows=rows,
        document={"roles": SHEET.objects(rows)},
        figures=lambda: _figures(rows),
    )


def _over(measure: Callable[[Run], float]) -> Callable[[Row], Spread]:
    return lambda row: over(row.runs, measure)


def _gain(row: Row) -> float | None:
    """Held-out over the silo's, minus one; None without a silo that has learnt anything."""
    silo = row.beside[SILO]
    below = over(silo, late_heldout).mean if silo else 0.0
    return over(row.runs, late_heldout).mean / below - 1 if below else None


SHEET: Final = Sheet(
    title=TITLE,
    caption=(
        f"held-out: pass@1 over all families, mean of the last {LATE} evaluations, and "
        "its 95 % interval over seeds (– with one); over 8/0: against "
        "the silo's; own reward: on own fresh questions, last third of the rounds played; others' "
        "groups: trained on, a round"
    ),
    columns=(
        label("arm", "arm", is_text=True),
        Column(head="nodes", key="nodes", of=lambda row: len(row.runs[0].fresh)),
        label("role", "role", is_text=True),
        Column(key="seeds", of=lambda row: len(row.runs)),
        Column(head="held-out", key="heldout", of=_over(late_heldout), shown=interval_of(3)),
        Column(head="over 8/0", key="gain_over_8_0", of=_gain, shown="{:+.0%}".format, digits=4),
        Column(head="own reward", key="reward", of=_over(late_reward), shown=mean_of(".3f")),
        Column(
            head="others' groups",
            key="groups_external",
            of=_over(groups_external),
            shown=mean_of(".1f"),
        ),
    ),
)


def _figures(rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    from shoal_lab.experiment.drawing import role_figures

    return role_figures(rows, TITLE)
