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

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from shoal_lab.experiment.hetero.arms import LARGER
from shoal_lab.experiment.plan import SILO, Arm, uniform_arm

NODES: Final = 4
ALONE: Final[Mapping[str, Any]] = {"local": 8, "external": 0}
SHARING: Final[Mapping[str, Any]] = {"local": 4, "external": 4, "questions": 8}
TEXT: Final = "text"
OFTEN, USUAL, SELDOM = 1, 5, 20
_GONE: Final = 0.5


def all_arms(num_nodes: int) -> tuple[Arm, ...]:
    """What may be sent, at equal samples and steps; nodes that leave, and nodes that differ."""
    silo, text, *weights, both = _main(num_nodes)
    usual = next(arm for arm in weights if arm.average_every == USUAL)
    arms = (silo, text, *weights, both, uniform_arm("4/4", num_nodes, local=4, external=4))
    if num_nodes == 1:  # nobody can leave it, or differ from it
        return arms
    return (*arms, *(leaving(arm) for arm in (text, usual, both)), mixed(silo), mixed(text))


def quick_arms(num_nodes: int) -> tuple[Arm, ...]:
    """Nothing, answers, weights, and both."""
    quick = (SILO, TEXT, f"weights {USUAL}", f"both {USUAL}")
    return tuple(arm for arm in _main(num_nodes) if arm.name in quick)


def refused_arms(num_nodes: int) -> tuple[Arm, ...]:
    """What cannot be played, by name: an experiment says so."""
    averaged = [arm for arm in _main(num_nodes) if arm.average_every == USUAL]
    return tuple(map(mixed, averaged)) if num_nodes > 1 else ()


def leaving(arm: Arm) -> Arm:
    """The arm with a quarter of its nodes, at least one, gone after half of the rounds."""
    stay = len(arm.nodes) - max(1, len(arm.nodes) // 4)
    gone = (replace(node, leaves=_GONE) for node in arm.nodes[stay:])
    return replace(arm, name=f"{arm.name} leaving", nodes=(*arm.nodes[:stay], *gone))


def mixed(arm: Arm) -> Arm:
    """The arm with the larger model in every other node."""
    nodes = (
        replace(node, settings={**node.settings, "model": str(LARGER)}) if index % 2 else node
        for index, node in enumerate(arm.nodes)
    )
    return replace(arm, name=f"{arm.name} mixed", nodes=tuple(nodes))


def _main(num_nodes: int) -> tuple[Arm, ...]:
    silo = uniform_arm(SILO, num_nodes, **ALONE)
    text = uniform_arm(TEXT, num_nodes, **SHARING)
    weights = (
        replace(silo, name=f"weights {every}", average_every=every)
        for every in (OFTEN, USUAL, SELDOM)
    )
    return (silo, text, *weights, replace(text, name=f"both {USUAL}", average_every=USUAL))
