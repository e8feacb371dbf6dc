"""A fork server shared by these tests: it takes half a second to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal_tasks.unit_tests import fork_server
from shoal_tasks.unit_tests.runner import TestRunner


@pytest.fixture(scope="session")
def runner() -> Iterator[TestRunner]:
    """Return the runner of completions; the server ends with its socket."""
    control = fork_server.start(512 << 20)
    yield TestRunner(control)
    control.close()
