"""Fixtures for the tests of any room. No test asserts wall-clock: a slow machine must not fail a
generated example."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.support.doubles.host import FakeHost
    from tests.support.doubles.worker import InstantWorker
    from tests.support.processes import Stage

settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what the tests import out of the garbage collector, which walked it all the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, empty; no setting comes from who runs the tests."""
    for name in [name for name in os.environ if name.startswith("SHOAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Real processes of shoal, which end with the test."""
    from tests.support.processes import open_stage

    with open_stage(tmp_path) as made:
        yield made


@pytest.fixture
def fake_host() -> FakeHost:
    """A host to which nobody is connected yet; the test says who comes and who answers."""
    from tests.support.doubles.host import FakeHost

    return FakeHost()


@pytest.fixture
def worker_double() -> InstantWorker:
    """A task worker that answers at once."""
    from tests.support.doubles.worker import InstantWorker

    return InstantWorker()
