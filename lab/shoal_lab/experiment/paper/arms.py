"""The arms of SAPO's controlled experiment (arXiv 2509.08721, section 5). Pure."""

from __future__ import annotations

from typing import Final

from shoal_lab.experiment.plan import Arm, uniform_arm

FILTERED: Final = "8/0 filtered"
"""The silo that asks twice as much and trains on what has signal: most of what sharing does is
to filter, so this is the fair rival."""

PAPER_ARMS: Final = ("8/0", "6/2", "4/4", "2/6")


def ratio_arm(name: str, num_nodes: int) -> Arm:
    """The arm of a name like 4/4: I and J. Raises ValueError for anything else."""
    local, external = (int(part) for part in name.split("/"))
    return uniform_arm(name, num_nodes, local=local, external=external)


def paper_arms(num_nodes: int) -> tuple[Arm, ...]:
    """The paper's four configurations and the filtered silo."""
    filtered = uniform_arm(FILTERED, num_nodes, local=8, external=0, questions=16)
    return (*(ratio_arm(name, num_nodes) for name in PAPER_ARMS), filtered)
