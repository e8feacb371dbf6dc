"""A shared worker over every preset, for tests that do not change it, and a cache per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_tasks.worker.sync import SyncTaskWorker
from tests.tasks.families import ALL_FAMILIES


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def worker() -> Iterator[SyncTaskWorker]:
    with SyncTaskWorker(ALL_FAMILIES) as running:
        yield running
