"""Arms of `shoal experiment unlike-real`: do two real models of other makes learn from each other?

Half of the nodes run SmolLM2-135M-Instruct, which is prompted as a chat; the others run Gemma 3
270M, a base model that at first continues after its answer. All train adapters. Pure.

    unlike 8/0            each alone
    unlike 8/0 filtered   each alone, with twice as many groups, training on those with signal
    unlike 4/4 naive      SAPO as published
    unlike 4/8 shoal      a node's defaults

A report has a row for each model, and compares the rows of one model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from shoal_lab.experiment.arms.results import NAIVE, PUBLISHED
from shoal_lab.experiment.arms.unlike import arm_of_roles
from shoal_lab.experiment.plan import FILTERED, OURS, SILO, Arm

TASKS: Final = Path(".shoal") / "experiment" / "tasks"
GEMMA: Final = Path(".shoal") / "experiment" / "models" / "gemma-3-270m-q4_k_m.gguf"
FAMILIES: Final = ("before", "after", "place", "missing", "largest", "price")
NODES: Final = 4
MODELS: Final[Mapping[str, str]] = {"smollm2": "smollm2", "gemma": str(GEMMA)}
BASE: Final[Mapping[str, Any]] = {
    "model": "smollm2",
    "tasks": [str(TASKS / f"{name}.toml") for name in FAMILIES],
    "shots": "2",
    "device": "cpu",
    "lora_rank": 16,
    "learning_rate": 3e-4,
    "completions": 8,
    "temperature": 1.0,
    "max_new_tokens": 6,
    "publisher_sampling": "weighted",
    "eval_every": 4,
    "eval_per_family": 17,
}
"""Short questions and answers: a round of four nodes takes half a minute on one core."""
TITLE: Final = "Two real models of other makes in one swarm"


def all_arms(num_nodes: int) -> tuple[Arm, ...]:
    """Return the mixed swarm alone, filtered, naive and at a node's defaults."""
    silo = {"local": 8, "external": 0}
    kinds: Mapping[str, Mapping[str, Any]] = {
        SILO: silo,
        FILTERED: {**silo, "questions": 16},
        NAIVE: {"local": 4, "external": 4, **PUBLISHED},
        OURS: {},
    }
    return tuple(
        arm_of_roles(f"unlike {name}", num_nodes, MODELS, **settings)
        for name, settings in kinds.items()
    )
