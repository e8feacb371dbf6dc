"""Fixtures that tests of the trainer share: each process makes them once."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from shoal_policy.node.link import NodeLink
from shoal_tasks.worker import sync as client_sync
from tests.policy import training_cases
from tests.support import factories as make
from tests.support.local_node import NodeThread


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small model's folder. No test writes into it."""
    return training_cases.model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    """A node over the test's own folder."""
    with NodeThread(tmp_path) as running:
        yield running


@pytest.fixture
def link(node: NodeThread) -> Iterator[NodeLink]:
    """A trainer's link with that node."""
    with training_cases.connected(node) as made:
        yield made


@pytest.fixture
def as_it_was(empty_folder: Path) -> Iterator[None]:
    """An empty folder for a command, and afterwards signals and logging as before it ran."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def shared_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session's task worker in the place of the command's own, which takes seconds to start."""
    shared = SharedWorker(make.real_worker())
    monkeypatch.setattr(client_sync, "SyncTaskWorker", lambda _families, **_limits: shared)


class SharedWorker:
    """That worker, which no test ends."""

    def __init__(self, worker: client_sync.SyncTaskWorker) -> None:
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
