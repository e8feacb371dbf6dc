"""`shoal status`: what it says of a trainer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.debug.views import VIEWS
from shoal_ipc.answers.node import Status, TrainerView
from tests.shoal.debug.test_layout import printed


def output_of(trainer: TrainerView) -> str:
    return "\n".join(printed(VIEWS["status"].show, Status(trainer=trainer), 100))


@pytest.mark.parametrize(
    ("state", "code", "is_shown"),
    [("waiting", 1, True), ("broken", -9, True), ("finished", -15, False), ("running", 0, False)],
)
def test_the_exit_of_a_failed_trainer_is_printed(state: str, code: int, is_shown: bool) -> None:
    """One that has played its rounds is ended by its node: that is no failure."""
    ended = TrainerView(state=state, last_exit=code, last_error="no room", next_start_s=2.0)
    output = output_of(ended)
    assert (f"exit {code}: no room; next start in 2.0 s" in output) == is_shown
    assert ("last end" in output) == is_shown
    assert "last end" not in output_of(replace(ended, last_exit=None))
