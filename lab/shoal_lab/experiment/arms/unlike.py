"""Arms of `shoal experiment unlike`: does sharing help strong and weak nodes of one swarm? Pure.

Half of the nodes run `tiny`, which is strong at the start; the others run a weak model of another
size and tokenizer.

    unlike 8/0         each alone
    unlike 4/4 naive   SAPO as published
    unlike 4/8 shoal   a node's defaults
    alike 4/8, ROLE    the control: a swarm of one role only, at a node's defaults

A report has a row for each role, and compares the rows of one role.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from shoal_lab.experiment.arms.results import PUBLISHED
from shoal_lab.experiment.plan import OURS, Arm, NodeSpec

LARGER: Final = Path(".shoal") / "experiment" / "models" / "larger"
"""The weak model, made from `tiny-sparse` when it is first needed."""
MODELS: Final[Mapping[str, str]] = {"strong": "tiny", "weak": str(LARGER)}
TITLE: Final = "Strong and weak nodes in one swarm"


def all_arms(num_nodes: int) -> tuple[Arm, ...]:
    """Return the mixed swarm alone, naive and at a node's defaults, and a control for each role."""
    naive = {"local": 4, "external": 4, **PUBLISHED}
    return (
        arm_of_roles("unlike 8/0", num_nodes, MODELS, local=8, external=0),
        arm_of_roles("unlike 4/4 naive", num_nodes, MODELS, **naive),
        arm_of_roles(f"unlike {OURS}", num_nodes, MODELS),
        *(
            arm_of_roles(f"alike 4/8, {role}", num_nodes, {role: model})
            for role, model in MODELS.items()
        ),
    )


def arm_of_roles(name: str, num_nodes: int, models: Mapping[str, str], **settings: Any) -> Arm:
    """Return a swarm whose nodes run these models in turn, each with its role."""
    kinds = [
        NodeSpec(settings={"model": model, **settings}, role=role) for role, model in models.items()
    ]
    return Arm(name=name, nodes=tuple(kinds[i % len(kinds)] for i in range(num_nodes)))
