"""The shoal of an earlier commit, where this clone has it."""

from __future__ import annotations

import pytest

from tests.support.old_commit import NoHistoryError, unpack_old_commit
from tests.support.processes import Program


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The old commit's program; skips where there is none."""
    try:
        return unpack_old_commit(tmp_path_factory.mktemp("old"))
    except NoHistoryError as error:
        pytest.skip(str(error))
