"""Weights are taken back through the host's memory, whatever device the policy is on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal_policy import training_run
from shoal_settings.schema import Settings
from tests.policy import training_cases as case


@pytest.mark.parametrize("from_checkpoint", [True, False])
def test_a_device_need_not_hold_two_policies(
    from_checkpoint: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = case.trainer(tmp_path, case.model_folder(tmp_path))
    if from_checkpoint:
        made.run()
    devices: list[str] = []
    for name in ("load_checkpoint", "fresh_policy"):
        real = getattr(training_run, name)

        def noting(*given: Any, real: Any = real, **options: Any) -> Any:
            settings = (one for one in (*given, *options.values()) if isinstance(one, Settings))
            devices.append(options.get("device") or next(settings).device)
            return real(*given, **options)

        monkeypatch.setattr(training_run, name, noting)
    before = case.weights(made.training_run.policy)
    settings = case.settings(tmp_path, str(made.training_run.policy.name), device="cuda:7")
    training_run.roll_back(made.training_run, settings, seed=1)
    assert devices == ["cpu"]
    assert case.same_weights(before, case.weights(made.training_run.policy))
