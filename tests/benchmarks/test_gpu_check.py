"""`make gpu-check` on the device that is always available: the CPU."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from benchmarks import gpu_check


@pytest.mark.slow
def test_its_comparisons_hold_on_a_cpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = gpu_check.check("random", "cpu", rounds=1)
    assert len(found.compared) == 7 and len(found.timed) == 8
    assert [one.what for one in found.compared if not one.right] == []
    table = gpu_check.markdown(found)
    assert table.count("| yes |") == 7 and "**no**" not in table
    monkeypatch.setattr(gpu_check, "check", lambda *_given, **_options: found)
    assert gpu_check.main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out)["compared"][0]["right"]
    wrong = gpu_check.Compared(what="x", off=float("nan"), limit=1.0)
    failed = replace(found, compared=[wrong])
    monkeypatch.setattr(gpu_check, "check", lambda *_given, **_options: failed)
    assert gpu_check.main([]) == 1
    assert "| x | nan | 1 | **no** |" in capsys.readouterr().out.splitlines()


def test_launches_are_those_of_further_tokens_alone() -> None:
    """The names are those that torch's profiler has on a card."""
    few = Counter({"cudaLaunchKernel": 900, "cudaStreamSynchronize": 9, "aten::mm": 700})
    more = Counter(
        {
            "cudaLaunchKernel": 6400,
            "cuLaunchKernelEx": 640,
            "cudaStreamSynchronize": 8,
            "aten::mm": 64,
        }
    )
    found = gpu_check.by_token(few, few + more, 64)
    assert found == {"kernel launches": 110.0, "waits": 0.125}
    checked = gpu_check.Checked(
        device="card", versions="1", model="m", compared=[], timed=[], a_token=found
    )
    assert gpu_check.markdown(checked).splitlines()[-2:] == [
        "| kernel launches | 110.0 |",
        "| waits | 0.1 |",
    ]
