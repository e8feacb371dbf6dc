"""One victim for each file: it must outlive every attack in it, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.victim import Victim


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A whole node."""
    with Victim(tmp_path_factory.mktemp("victim") / "node") as running:
        yield running
