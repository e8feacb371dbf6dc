"""`shoal debug status`: what it says of a trainer."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from shoal.debug.views import VIEWS
from shoal_base.terminal import Terminal

FIXTURES = Path(__file__).parents[2] / "fixtures"

ANSWERS = json.loads((FIXTURES / "views.json").read_text(encoding="utf-8"))
STATUS = next(case["answers"]["status"] for case in ANSWERS if case["arguments"] == ["status"])


def said_of(trainer: dict[str, Any]) -> str:
    file = io.StringIO()
    view = STATUS | {"trainer": STATUS["trainer"] | trainer}
    VIEWS["status"].show(Terminal(file=file, width=100), view)
    return file.getvalue()


@pytest.mark.parametrize(
    ("state", "code", "told"),
    [("waiting", 1, True), ("broken", -9, True), ("finished", -15, False), ("running", 0, False)],
)
def test_how_a_trainer_ended_is_told_where_it_failed(state: str, code: int, told: bool) -> None:
    """One that has played its rounds is ended by its node: that is no failure."""
    ended = {"state": state, "last_exit": code, "last_error": "no room", "next_start_s": 2.0}
    said = said_of(ended)
    assert (f"exit {code}: no room; next start in 2.0 s" in said) == told
    assert ("last end" in said) == told


def test_it_says_how_many_groups_a_round_looked_at() -> None:
    said = said_of({"last_round": {"groups_looked_at": 11, "own_groups": 4}})
    assert "11 groups in the last round, 4 of them its own" in said


@pytest.mark.parametrize("latest", [None, {}, {"groups_looked_at": 0, "own_groups": 0}])
def test_before_the_first_and_of_none_it_says_nothing(latest: dict[str, int] | None) -> None:
    assert "looked at" not in said_of({"last_round": latest})
