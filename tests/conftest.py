"""Fixtures for the tests of any room. No test asserts wall-clock: a slow machine must not fail a
generated example."""

from __future__ import annotations

import gc
import inspect
import os
import tempfile
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.support.doubles.host import FakeHost
    from tests.support.doubles.worker import InstantWorker
    from tests.support.processes import ProcessManager

settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")


def pytest_configure(config: pytest.Config) -> None:
    """Give a run a cache of its own, so that no run finds, or leaves, files of another.

    The processes of pytest-xdist inherit the first one's.
    """
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="shoal-tests-")
        config.add_cleanup(folder.cleanup)
        os.environ["XDG_CACHE_HOME"] = folder.name


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the async tests marked `virtual_time` so, be the mark their own or their module's."""
    for item in items:
        is_async = inspect.iscoroutinefunction(getattr(item, "obj", None))
        if is_async and item.get_closest_marker("virtual_time"):
            item.add_marker(pytest.mark.trio(run=_in_virtual_time), append=False)


def _in_virtual_time(main: Callable[[], Awaitable[Any]], *, clock: None, instruments: Any) -> Any:
    jumping = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(main, clock=jumping, instruments=instruments)


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, empty; no setting comes from who runs the tests."""
    for name in [name for name in os.environ if name.startswith("SHOAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ProcessManager]:
    """Real processes of shoal, which end with the test."""
    from tests.support.processes import open_stage

    with open_stage(tmp_path) as made:
        yield made


@pytest.fixture
def fake_host() -> FakeHost:
    """A host without peers. The test decides which peers connect and which answer."""
    from tests.support.doubles.host import FakeHost

    return FakeHost()


@pytest.fixture
def worker_double() -> InstantWorker:
    """A task worker that answers at once."""
    from tests.support.doubles.worker import InstantWorker

    return InstantWorker()
