"""Arms of `shoal experiment results`: does sharing help a node as `make node` runs it? Pure.

    8/0            the silo: no node shares
    8/0 filtered   the silo that generates twice as many groups and trains on those with signal
    4/4 naive      SAPO as published: uniform choice, all completions
    4/8 HACPO      HACPO's method, as far as it works without claims (`run.learners`)
    4/8 shoal      a node's defaults
    24/0 all data  one trainer that has all nodes' questions (here of six)
    12 answers     supervised fine-tuning on right answers, in as many steps as 4/8

All at a node's own model, rate and words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shoal_lab.experiment.plan import (
    OURS,
    SILO,
    Arm,
    NodeSpec,
    filtered_arm,
    ratio_arm,
    uniform_arm,
)

NODES: Final = 6
NAIVE: Final = "4/4 naive"
ANSWERS: Final = "12 answers"
PUBLISHED: Final[Mapping[str, Any]] = {"strategy": "uniform", "publisher_sampling": "uniform"}
"""SAPO's choice of external groups, as in its paper."""
BASE: Final[Mapping[str, Any]] = {
    "model": "tiny",
    "device": "cpu",
    "publisher_sampling": "weighted",
    "eval_every": 4,
    "eval_per_family": 68,
}
"""Settings that differ from a node's defaults: its device and its questions.
68 questions of each of three families make 204."""
TITLE: Final = "Alone or together, at a node's defaults"


def all_arms(num_nodes: int) -> tuple[Arm, ...]:
    """Return every arm."""
    hacpo = NodeSpec(settings={"local": 4, "external": 8, **PUBLISHED}, learner="hacpo")
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
        uniform_arm(NAIVE, num_nodes, local=4, external=4, **PUBLISHED),
        Arm(name=OURS, nodes=(NodeSpec(),) * num_nodes),
        uniform_arm(f"{local}/0 all data", 1, local=local, external=0),
    )
