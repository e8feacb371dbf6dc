"""What no run can begin with is told before a model is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_policy.model.from_settings import refuse_wrong_model
from shoal_policy.model.loading import ModelError
from tests.policy import training_cases as case


@pytest.mark.parametrize("resumes", [True, False])
def test_float16_is_not_trained_in(resumes: bool, tmp_path: Path) -> None:
    if resumes:
        (tmp_path / "checkpoints").mkdir()
    with pytest.raises(ModelError, match="--dtype float16 cannot be trained: use bfloat16"):
        refuse_wrong_model(case.settings(tmp_path, "tiny", dtype="float16"))
    refuse_wrong_model(case.settings(tmp_path, "tiny", dtype="bfloat16"))
