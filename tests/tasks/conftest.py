"""One worker over every preset, shared by the tests that leave it as they found it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal_tasks.worker.sync import SyncTaskWorker
from tests.tasks.families import ALL_FAMILIES


@pytest.fixture(scope="session")
def worker() -> Iterator[SyncTaskWorker]:
    with SyncTaskWorker(ALL_FAMILIES) as running:
        yield running
