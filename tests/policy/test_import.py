"""Starting the trainer imports nothing that only a loaded model needs: a refusal comes at once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    *("torch._dynamo", "torch.distributed.tensor", "torch.distributed.fsdp"),
    *("transformers.modeling_utils", "transformers.masking_utils", "scipy", "sympy", "peft"),
}
"""Two and a half CPU seconds and 120 MB together."""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["shoal_policy.trainer", "shoal_policy.__main__"])
def test_a_trainer_that_starts_imports_no_model(module: str) -> None:
    program = f"import {module}, json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, timeout=120
    )
    loaded = set(json.loads(done.stdout))
    assert module in loaded
    assert HEAVY.isdisjoint(loaded), sorted(HEAVY & loaded)
