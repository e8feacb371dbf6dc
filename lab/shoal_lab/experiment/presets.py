"""The experiments that have a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shoal_lab.experiment.arms import hetero, paper, poison, price, real, results
from shoal_lab.experiment.making.larger_model import make_larger_model
from shoal_lab.experiment.making.tagged import make_tagged_start
from shoal_lab.experiment.plan import Arm
from shoal_lab.experiment.reading.report import Read


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
    read: Read = paper.read
    """Sums up its runs."""
    merit: str = paper.MERIT
    """The figure that arms are compared by, as `plan.toml` states it."""
    tests: Sequence[str] = paper.TESTS
    """The tests of the comparison, as `plan.toml` states them."""


LATE_MERIT: Final = "held-out pass@1, mean of the last three evaluations, mean of the nodes"
NO_TESTS: Final = ("none: means with 95 % intervals over seeds",)

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
"""The same at the rate that docs/archive/experiments.md found best for every arm."""

PRESETS: Final[Mapping[str, Preset]] = {
    "results": Preset(
        title=results.TITLE,
        arms=results.all_arms,
        base=results.BASE,
        full=Size(seeds=5, rounds=40),
        quick=Size(seeds=3, rounds=24, arms=results.quick_arms),
        nodes=results.NODES,
        read=results.read,
        merit=results.MERIT,
        tests=results.TESTS,
    ),
    "paper": Preset(
        title=paper.TITLE,
        arms=paper.all_arms,
        base=SPARSE,
        full=Size(seeds=3, rounds=100),
        quick=Size(seeds=2, rounds=80),
    ),
    "poison": Preset(
        title=poison.TITLE,
        arms=poison.all_arms,
        base=poison.BASE,
        full=Size(seeds=3, rounds=40),
        quick=Size(seeds=1, rounds=30, arms=poison.quick_arms),
        nodes=6,
        read=poison.read,
        merit=LATE_MERIT,
        tests=NO_TESTS,
    ),
    "planted": Preset(
        title="How far a word spreads that attackers plant around the tags of answers",
        arms=poison.planted_arms,
        base={**TUNED, **poison.TAGGED_BASE},
        full=Size(seeds=3, rounds=60),
        quick=Size(seeds=1, rounds=60),
        nodes=6,
        prepare=make_tagged_start,
        read=poison.read,
        merit=LATE_MERIT,
        tests=NO_TESTS,
    ),
    "hetero": Preset(
        title=hetero.TITLE,
        arms=hetero.all_arms,
        base={**TUNED, "strategy": "positive+balance"},
        full=Size(seeds=2, rounds=100),
        quick=Size(seeds=1, rounds=60),
        prepare=lambda: make_larger_model(hetero.LARGER),
        read=hetero.read,
        merit=LATE_MERIT,
        tests=NO_TESTS,
    ),
    "price": Preset(
        title=price.TITLE,
        arms=price.all_arms,
        base={**TUNED, "strategy": "positive+balance"},
        full=Size(seeds=3, rounds=60),
        quick=Size(seeds=1, rounds=40, arms=price.quick_arms),
        nodes=price.NODES,
        prepare=lambda: make_larger_model(hetero.LARGER),
        read=price.read,
        merit=LATE_MERIT,
        tests=price.TESTS,
    ),
    "real": Preset(
        title=real.TITLE,
        arms=real.all_arms,
        base=real.BASE,
        full=Size(seeds=3, rounds=60),
        quick=Size(seeds=1, rounds=70, arms=real.quick_arms),
        nodes=real.NODES,
        read=real.read,
    ),
}

REAL: Final[Mapping[str, Any]] = {"device": "auto", "eval_per_family": 8}
"""Settings for a model that is not embedded, beside `shoal_settings.real_models`."""
