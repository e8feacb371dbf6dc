"""What `shoal debug status` says of a trainer."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from shoal.debug import status


def said(trainer: dict[str, Any]) -> str:
    """The rows of a trainer."""
    rows, out = Table.grid(), StringIO()
    usual = {"state": "training", "pid": 7, "restarts": 0, "reward_local": 0.3}
    view = {
        "trainer": {**usual, "reward_start": 0.1, **trainer},
        "round": 4,
        "groups_published": 1,
        "groups_received": 2,
        "groups_external_used": 3,
        "outbox": {"unsent": 0},
    }
    status._trainer_rows(rows, view)
    Console(file=out, width=160).print(rows)
    return out.getvalue()


def test_it_says_how_many_groups_a_round_looked_at() -> None:
    text = said({"last_round": {"groups_looked_at": 11, "own_groups": 4}})
    assert "11 groups in the last round, 4 of them its own" in text


@pytest.mark.parametrize("latest", [None, {}, {"groups_looked_at": 0, "own_groups": 0}])
def test_before_the_first_and_of_none_it_says_nothing(latest: dict[str, int] | None) -> None:
    assert "looked at" not in said({"last_round": latest})
