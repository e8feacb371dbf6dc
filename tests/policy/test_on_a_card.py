"""Updates and answers on a pretended card: right devices, few waits, few launches, fused attention.

Every operation of these is checked for tensors of two devices by `tests.support.pretended_device`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from shoal_policy.generation.local import CHECK_EVERY

pytest.importorskip("peft")

LAYERS = 2
MOST_LAUNCHES_A_LAYER = 60
"""For each token; 41 stand in the layer itself, the rest is the batch's share of drawing."""
MOST_BEHIND_EXAMPLES = 200
"""For each token of two layers whose prompts begin with worked examples, in however many families:
189 in one, 191 in eleven."""


@cache
def counted(kind: str, *sizes: int) -> list[dict[str, Any]]:
    """Count what each size takes, in one process of their own."""
    command = [sys.executable, "-m", "tests.policy.card_cases", kind, *map(str, sizes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[dict[str, Any]] = json.loads(done.stdout)
    for one in found:
        assert one["card"] == pytest.approx(one["host"], abs=1e-4, rel=1e-5)
    return found


@pytest.mark.slow
def test_an_update_waits_as_often_whatever_the_number_of_rows() -> None:
    few, many = counted("update", 4, 16)
    # One of the nine asks whether the gradient that was computed ahead is the loss's own: what has
    # no weight of its own takes that way, as nearly every step does.
    assert few["waits"] == many["waits"] <= 9
    assert few["from_host"] == many["from_host"]
    assert many["math_attention"] == 0, "its kernel holds no scores"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["answer", "answer with an adapter"])
def test_a_token_s_launches_stay_within_the_ceiling(kind: str) -> None:
    assert at_a_token(kind) <= LAYERS * MOST_LAUNCHES_A_LAYER + 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["answer in 1 family", "answer in 11 families"])
def test_worked_examples_cost_as_many_launches_whatever_their_families(kind: str) -> None:
    assert at_a_token(kind) <= MOST_BEHIND_EXAMPLES


def at_a_token(kind: str) -> float:
    """Launches a token. The host waits once in `CHECK_EVERY` tokens, and copies nothing over."""
    few, many = counted(kind, 8, 8 + 2 * CHECK_EVERY)
    assert many["waits"] - few["waits"] == 2
    assert many["from_host"] == few["from_host"]
    launches: int = many["launches"] - few["launches"]
    return launches / (2 * CHECK_EVERY)


@pytest.mark.slow
def test_an_adapter_costs_no_launch_at_a_token() -> None:
    assert at_a_token("answer with an adapter") == at_a_token("answer")
