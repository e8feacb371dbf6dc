"""One worker over every preset, shared by the tests that leave it as they found it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal_tasks.families import EASY, EASY_PAPER, PAPER, FamilySpec
from shoal_tasks.generators import TEXT_EVALUATING
from shoal_tasks.worker.sync import TaskWorker

ALL_FAMILIES = EASY + EASY_PAPER + PAPER

EVALUATED_FAMILIES = tuple(
    FamilySpec(name=f"{generator}_default", generator=generator)
    for generator in sorted(TEXT_EVALUATING)
)
"""The generators whose own scorer evaluates text, as the library configures them."""


@pytest.fixture(scope="session")
def worker() -> Iterator[TaskWorker]:
    with TaskWorker(ALL_FAMILIES + EVALUATED_FAMILIES) as running:
        yield running
