"""`shoal status`: what it says of a trainer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.debug.views import VIEWS
from shoal_ipc.answers.node import Status, TrainerView
from tests.shoal.debug.test_layout import printed


def said_of(trainer: TrainerView) -> str:
    return "\n".join(printed(VIEWS["status"].show, Status(trainer=trainer), 100))


@pytest.mark.parametrize(
    ("state", "code", "told"),
    [("waiting", 1, True), ("broken", -9, True), ("finished", -15, False), ("running", 0, False)],
)
def test_how_a_trainer_ended_is_told_where_it_failed(state: str, code: int, told: bool) -> None:
    """One that has played its rounds is ended by its node: that is no failure."""
    ended = TrainerView(state=state, last_exit=code, last_error="no room", next_start_s=2.0)
    said = said_of(ended)
    assert (f"exit {code}: no room; next start in 2.0 s" in said) == told
    assert ("last end" in said) == told
    assert "last end" not in said_of(replace(ended, last_exit=None))
