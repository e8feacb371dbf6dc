"""The trace of one group through a node: what it counts, and that it counts the same again."""

from __future__ import annotations

from benchmarks import path_trace
from benchmarks.harness import Options


def test_the_path_is_traced_from_the_stream_to_the_lease() -> None:
    results = path_trace.measure(Options(quick=True)).results
    whole, parts = results["wire_to_trainer"], (results["wire"], results["lease"])
    assert whole["calls"] == sum(part["calls"] for part in parts)
    assert all(0 < part["functions"] <= part["calls"] for part in parts)
    assert {"SignedEnvelope", "RolloutGroup"} <= set(results["wire"]["types"].split(", "))
    assert "SampledGroup" in results["lease"]["types"]
    assert results["end"]["ipc_messages"] == 3
    assert path_trace.measure(Options(quick=True)).results == results
