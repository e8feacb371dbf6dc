"""The trace of one group through a node: what it counts, and that it counts the same again."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.harness import ROOT


def traced() -> dict[str, Any]:
    """Return the results of the command, in a process whose caches are empty."""
    command = [sys.executable, "-m", "benchmarks.path_trace", "--json", "--quick"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=True
    )
    results: dict[str, Any] = json.loads(done.stdout)["results"]
    return results


@pytest.mark.slow
def test_the_path_is_traced_from_the_stream_to_the_lease() -> None:
    results = traced()
    whole, parts = results["wire_to_trainer"], (results["wire"], results["lease"])
    assert whole["calls"] == sum(part["calls"] for part in parts)
    assert all(0 < part["functions"] <= part["calls"] for part in parts)
    assert {"SignedEnvelope", "RolloutGroup"} <= set(results["wire"]["types"].split(", "))
    assert "PublishedGroup" in results["lease"]["types"]
    assert results["end"]["ipc_messages"] == 2
    assert traced() == results
