"""Arms of `shoal experiment hetero`: swarms whose nodes differ. Pure.

`KIND 4/4` are unlike nodes that share, `KIND 8/0` the same nodes alone. A report has a row for each
role in an arm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from shoal_lab.experiment.plan import SILO, Arm, NodeSpec
from shoal_tasks.families import EASY

SHARING: Final[Mapping[str, Any]] = {"local": 4, "external": 4}
ALONE: Final[Mapping[str, Any]] = {"local": 8, "external": 0}
FROZEN: Final[Mapping[str, Any]] = {"local": 4, "external": 0, "learning_rate": 1e-15}
"""A node that only generates: a step of this rate is below the resolution of a float32 weight."""
SLOW: Final = 3
"""A slow node runs every third round."""
LATE_JOINER: Final = 0.5
"""A late node joins after half of the rounds."""
TITLE: Final = "Swarms whose nodes differ"


def all_arms(num_nodes: int) -> tuple[Arm, ...]:
    """Return every kind of difference, and the two swarms without any."""
    steady = _kind("steady")
    slow, late = replace(steady, role="slow", every=SLOW), replace(steady, role="late")
    answering = NodeSpec(settings={**FROZEN, "model": "tiny"}, role="answers only")
    specialists = [replace(_kind("specialist"), families=(family.name,)) for family in EASY]
    kinds: dict[str, Sequence[NodeSpec]] = {
        SILO: [_alone(_kind("alone"))],
        "4/4": [_kind("alike")],
        "specialists 8/0": list(map(_alone, specialists)),
        "specialists 4/4": specialists,
        "L 4/4": [_kind(f"L = {count}", completions=count) for count in (4, 8, 16)],
        "slow and late 4/4": [steady, slow, steady, replace(late, late=LATE_JOINER)],
        "generate-only 4/4": [_kind("in training"), answering],
    }
    return tuple(
        Arm(name=name, nodes=tuple(some[i % len(some)] for i in range(num_nodes)))
        for name, some in kinds.items()
    )


def _kind(role: str, **settings: Any) -> NodeSpec:
    return NodeSpec(settings={**SHARING, **settings}, role=role)


def _alone(node: NodeSpec) -> NodeSpec:
    return replace(node, settings={**node.settings, **ALONE})
