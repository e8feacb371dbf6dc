"""Fixtures that tests of the trainer share: each process makes them once."""

from __future__ import annotations

import pytest

from tests.policy import training_cases


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small model's folder. No test writes into it."""
    return training_cases.model_folder(tmp_path_factory.mktemp("model"))
