"""One task worker of the same families for all commands: each would start its own, for a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from functools import cache

import pytest

from shoal_tasks.spec import FamilySpec
from shoal_tasks.worker.sync import SyncTaskWorker


@pytest.fixture(scope="session", autouse=True)
def shared_workers() -> Iterator[None]:
    with ExitStack() as stack:

        @cache
        def started(families: tuple[FamilySpec, ...]) -> SyncTaskWorker:
            return stack.enter_context(SyncTaskWorker(families))

        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for module in ("answer", "export.data", "prompt_shown", "publish", "tasks.command"):
            patch.setattr(
                f"shoal.{module}.SyncTaskWorker", lambda given: nullcontext(started(tuple(given)))
            )
        yield
