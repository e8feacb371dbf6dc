"""The experiments that have a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from shoal_lab.experiment.hetero import arms as hetero
from shoal_lab.experiment.hetero import report as hetero_report
from shoal_lab.experiment.hetero.larger_model import make_larger_model
from shoal_lab.experiment.paper.arms import paper_arms
from shoal_lab.experiment.plan import Arm, Experiment
from shoal_lab.experiment.poison import arms as poison
from shoal_lab.experiment.poison import planted
from shoal_lab.experiment.poison import report as poison_report
from shoal_lab.experiment.poison.tagged import make_tagged_start
from shoal_lab.experiment.price import arms as price
from shoal_lab.experiment.price import report as price_report
from shoal_lab.experiment.real import arms as real
from shoal_lab.experiment.real import report as real_report

Report = Callable[[Path, Experiment, bool], tuple[Callable[[int], Table] | None, dict[str, Any]]]
"""Given folder, experiment, and whether to draw: the table (by width; None without one finished
job) and the JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How long an experiment is."""

    seeds: int
    rounds: int
    arms: Callable[[int], tuple[Arm, ...]] | None = None
    """Other arms than the preset's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A named experiment; flags may change any of it."""

    title: str
    arms: Callable[[int], tuple[Arm, ...]]
    """Given the number of nodes."""
    base: Mapping[str, Any]
    """Settings of every node."""
    full: Size
    quick: Size
    nodes: int = 8
    prepare: Callable[[], None] = lambda: None
    """Makes what its nodes need, if it is not there yet."""
    report: Report | None = None
    """Sums it up; None: as the comparison of I/J that `reading.report` writes."""


SPARSE: Final[Mapping[str, Any]] = {
    "model": "tiny-sparse",
    "tasks": "easy",
    "device": "cpu",
    "learning_rate": 1.5e-4,
    "completions": 8,
    "temperature": 1.0,
    "max_new_tokens": 12,
    "strategy": "uniform",
    "minibatches": 1,
    "eval_every": 10,
    "eval_per_family": 16,
}
"""The regime of the presets: about one answer in a hundred is right at the start."""

TUNED: Final[Mapping[str, Any]] = {**SPARSE, "learning_rate": 4e-4, "minibatches": 2}
"""The same at the rate that docs/experiments.md found best for every arm."""

PRESETS: Final[Mapping[str, Preset]] = {
    "paper": Preset(
        title="SAPO's controlled experiment (arXiv 2509.08721, section 5) in miniature",
        arms=paper_arms,
        base=SPARSE,
        full=Size(seeds=3, rounds=100),
        quick=Size(seeds=2, rounds=80),
    ),
    "poison": Preset(
        title=poison_report.PRESET_TITLE,
        arms=poison.all_arms,
        base=TUNED,
        full=Size(seeds=1, rounds=80),
        quick=Size(seeds=1, rounds=60, arms=poison.quick_arms),
        nodes=6,
        report=poison_report.report,
    ),
    "planted": Preset(
        title="How far a word spreads that attackers plant around the tags of answers",
        arms=planted.all_arms,
        base={**TUNED, **planted.BASE},
        full=Size(seeds=3, rounds=60),
        quick=Size(seeds=1, rounds=60),
        nodes=6,
        prepare=make_tagged_start,
        report=poison_report.report,
    ),
    "hetero": Preset(
        title=hetero_report.TITLE,
        arms=hetero.all_arms,
        base={**TUNED, "strategy": "positive+balance"},
        full=Size(seeds=2, rounds=100),
        quick=Size(seeds=1, rounds=60),
        prepare=lambda: make_larger_model(hetero.LARGER),
        report=hetero_report.report,
    ),
    "price": Preset(
        title=price_report.TITLE,
        arms=price.all_arms,
        base={
            **SPARSE,
            "learning_rate": 4e-4,
            "minibatches": 2,
            "strategy": "positive+balance",
        },
        full=Size(seeds=3, rounds=60),
        quick=Size(seeds=1, rounds=40, arms=price.quick_arms),
        nodes=price.NODES,
        prepare=lambda: make_larger_model(hetero.LARGER),
        report=price_report.report,
    ),
    "real": Preset(
        title=real_report.TITLE,
        arms=real.real_arms,
        base=real.BASE,
        full=Size(seeds=3, rounds=60),
        quick=Size(seeds=1, rounds=70, arms=real.quick_arms),
        nodes=real.NODES,
        report=real_report.report,
    ),
}

REAL: Final[Mapping[str, Any]] = {"device": "auto", "eval_per_family": 8}
"""What a model that is not embedded needs instead, beside `shoal_settings.real_models`."""
