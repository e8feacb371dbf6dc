"""Fixtures that tests of experiments share: each process starts them once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from shoal_lab.experiment.run.in_process import Workers, workers


@pytest.fixture(scope="session")
def shared() -> Iterator[Workers]:
    """Task workers, with their cached questions and scores."""
    torch.set_num_threads(1)
    with workers() as made:
        yield made
