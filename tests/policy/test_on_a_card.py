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

pytest.importorskip("peft")

LAYERS = 2
MOST_LAUNCHES_A_LAYER = 60
"""For each token; 41 stand in the layer itself, the rest is the batch's share of drawing."""


@cache
def counted(kind: str, size: int) -> dict[str, Any]:
    """Count in a process of its own."""
    command = [sys.executable, "-m", "tests.policy.card_cases", kind, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["card"] == pytest.approx(found["host"], abs=1e-4, rel=1e-5)
    return found


def test_an_update_waits_as_often_whatever_the_number_of_rows() -> None:
    few, many = counted("update", 4), counted("update", 16)
    assert few["waits"] == many["waits"] <= 8
    assert few["from_host"] == many["from_host"]


def test_attention_in_an_update_has_a_kernel_that_holds_no_scores() -> None:
    assert counted("update", 16)["math_attention"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["answer", "answer with an adapter"])
def test_a_token_costs_one_wait_and_launches_within_the_ceiling(kind: str) -> None:
    few, many = counted(kind, 8), counted(kind, 24)
    assert many["waits"] - few["waits"] == 16
    assert many["from_host"] == few["from_host"]
    launches = (many["launches"] - few["launches"]) / 16
    assert launches <= LAYERS * MOST_LAUNCHES_A_LAYER + 20


@pytest.mark.slow
def test_an_adapter_costs_no_launch_at_a_token() -> None:
    def at_a_token(kind: str) -> int:
        found: int = counted(kind, 24)["launches"] - counted(kind, 8)["launches"]
        return found

    assert at_a_token("answer with an adapter") == at_a_token("answer")
