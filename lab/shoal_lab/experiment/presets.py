"""The named experiments: tables of arms, with the settings of every node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shoal_lab.experiment.arms import hetero, poison, real, results, unlike, unlike_real
from shoal_lab.experiment.plan import Arm
from shoal_lab.experiment.setup.larger_model import make_larger_model
from shoal_lab.experiment.setup.tagged import make_tagged_start
from shoal_lab.experiment.setup.unlike_real import make_gemma, write_questions


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The length of an experiment."""

    seeds: int
    rounds: int
    arms: Callable[[int], tuple[Arm, ...]] | None = None
    """Replaces the preset's arms."""


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
    nodes: int
    prepare: Callable[[], None] = lambda: None
    """Makes the files that its nodes need, unless they exist."""
    write_tasks: Callable[[], None] = lambda: None
    """Writes the task files that its settings name."""


SPARSE: Final[Mapping[str, Any]] = {
    "model": "tiny-sparse",
    "tasks": "easy",
    "device": "cpu",
    "learning_rate": 4e-4,
    "completions": 8,
    "temperature": 1.0,
    "max_new_tokens": 12,
    "strategy": "uniform",
    "minibatches": 2,
    "eval_every": 10,
    "eval_per_family": 16,
}
"""About one answer in a hundred is right at the start; at the rate that was best for every arm
(docs/results.md)."""

PRESETS: Final[Mapping[str, Preset]] = {
    "results": Preset(
        title=results.TITLE,
        arms=results.all_arms,
        base=results.BASE,
        full=Size(seeds=5, rounds=40),
        quick=Size(seeds=3, rounds=24, arms=results.quick_arms),
        nodes=results.NODES,
    ),
    "poison": Preset(
        title=poison.TITLE,
        arms=poison.all_arms,
        base=poison.BASE,
        full=Size(seeds=3, rounds=40),
        quick=Size(seeds=1, rounds=30, arms=poison.quick_arms),
        nodes=6,
    ),
    "planted": Preset(
        title=poison.PLANTED_TITLE,
        arms=poison.planted_arms,
        base={**SPARSE, **poison.TAGGED_BASE},
        full=Size(seeds=3, rounds=60),
        quick=Size(seeds=1, rounds=60),
        nodes=6,
        prepare=make_tagged_start,
    ),
    "hetero": Preset(
        title=hetero.TITLE,
        arms=hetero.all_arms,
        base={**SPARSE, "strategy": "positive+balance"},
        full=Size(seeds=2, rounds=100),
        quick=Size(seeds=1, rounds=60),
        nodes=8,
    ),
    "unlike": Preset(
        title=unlike.TITLE,
        arms=unlike.all_arms,
        base=results.BASE,
        full=Size(seeds=5, rounds=60),
        quick=Size(seeds=1, rounds=24),
        nodes=results.NODES,
        prepare=lambda: make_larger_model(unlike.LARGER),
    ),
    "unlike-real": Preset(
        title=unlike_real.TITLE,
        arms=unlike_real.all_arms,
        base=unlike_real.BASE,
        full=Size(seeds=3, rounds=12),
        quick=Size(seeds=1, rounds=8),
        nodes=unlike_real.NODES,
        prepare=lambda: make_gemma(unlike_real.GEMMA),
        write_tasks=lambda: write_questions(unlike_real.TASKS),
    ),
    "real": Preset(
        title=real.TITLE,
        arms=real.all_arms,
        base=real.BASE,
        full=Size(seeds=3, rounds=60),
        quick=Size(seeds=1, rounds=70, arms=real.quick_arms),
        nodes=real.NODES,
    ),
}

REAL: Final[Mapping[str, Any]] = {"device": "auto", "eval_per_family": 8}
"""Settings for a model that is not embedded, in addition to `shoal_settings.real_models`."""
