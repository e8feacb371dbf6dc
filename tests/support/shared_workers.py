"""A task worker for all commands of a room: each would start its own, for 1.5 s of CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache

import pytest

from shoal_tasks.families import FamilySpec
from shoal_tasks.worker.sync import SyncTaskWorker


@contextmanager
def one_worker_for(*modules: str) -> Iterator[None]:
    """Let the commands of these modules share a worker of the same families."""
    with ExitStack() as stack:

        @cache
        def started(families: tuple[FamilySpec, ...]) -> SyncTaskWorker:
            return stack.enter_context(SyncTaskWorker(families))

        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for module in modules:
            patch.setattr(
                f"{module}.SyncTaskWorker", lambda given: nullcontext(started(tuple(given)))
            )
        yield
