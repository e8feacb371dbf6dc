"""Arms of `shoal experiment real`: does a real language model learn, and does sharing help? Pure.

4/4            four local groups, four external ones
8/0            eight local ones: as many groups trained on, twice the tokens generated
8/0 filtered   sixteen generated, eight with signal trained on: as many steps, four times the tokens
4/0            four local ones: as many rounds and tokens generated as 4/4, no external groups
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shoal_lab.experiment.plan import SILO, Arm, filtered_arm, ratio_arm

NODES: Final = 4
BASE: Final[Mapping[str, Any]] = {
    "model": "smollm2",
    "tasks": "chat-1",
    "shots": "4",
    "device": "cpu",
    "dtype": "bfloat16",
    "lora_rank": 16,
    "learning_rate": 3e-4,
    "completions": 8,
    "temperature": 1.0,
    "max_new_tokens": 16,
    "strategy": "positive+balance",
    "minibatches": 2,
    "eval_every": 20,
    "eval_per_family": 4,
}
"""SmolLM2-135M with adapters, on tasks that it sometimes answers right. In bfloat16 a round takes
about two thirds of its time in float32, on CPUs with instructions for it."""
TITLE: Final = "a real model: SmolLM2-135M with adapters, alone and together"


def all_arms(num_nodes: int) -> tuple[Arm, ...]:
    """Return all four; the silo first."""
    silo, sharing, few = (ratio_arm(name, num_nodes) for name in (SILO, "4/4", "4/0"))
    return (silo, sharing, filtered_arm(num_nodes), few)


def quick_arms(num_nodes: int) -> tuple[Arm, ...]:
    """Return only sharing and the silo with as many tokens: they take an hour on two cores."""
    return all_arms(num_nodes)[:2]
