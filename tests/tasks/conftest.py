"""One worker over every preset, shared by the tests that leave it as they found it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal_tasks.client_sync import TaskWorker
from shoal_tasks.families import EASY, EASY_PAPER, PAPER

ALL_FAMILIES = EASY + EASY_PAPER + PAPER


@pytest.fixture(scope="session")
def worker() -> Iterator[TaskWorker]:
    with TaskWorker(ALL_FAMILIES) as running:
        yield running
