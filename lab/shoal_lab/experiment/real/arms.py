"""The arms of `shoal experiment real`: sharing, the silo, its fair rivals. Pure.

4/4            four own questions, four groups of others
8/0            eight own: as many groups trained on, twice the tokens generated
8/0 filtered   sixteen asked, eight with signal trained on: as many steps, four times the tokens
4/0            four own: as many rounds and tokens generated as 4/4, and nobody else
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shoal_lab.experiment.paper.arms import FILTERED
from shoal_lab.experiment.plan import Arm, uniform_arm

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
"""SmolLM2-135M with adapters, on what it answers right now and then. In bfloat16 a round takes some
two thirds of its time in float32, on CPUs with instructions for it."""


def real_arms(num_nodes: int) -> tuple[Arm, ...]:
    """All four; the silo first, which gains are measured against."""
    return (
        uniform_arm("8/0", num_nodes, local=8, external=0),
        uniform_arm("4/4", num_nodes, local=4, external=4),
        uniform_arm(FILTERED, num_nodes, local=8, external=0, questions=16),
        uniform_arm("4/0", num_nodes, local=4, external=0),
    )


def quick_arms(num_nodes: int) -> tuple[Arm, ...]:
    """Sharing and the silo of as many tokens alone: what an hour of two cores holds."""
    arms = {arm.name: arm for arm in real_arms(num_nodes)}
    return (arms["8/0"], arms["4/4"])
