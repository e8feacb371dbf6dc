"""What lacks room waits, says so once, and goes on by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal_policy.record import pause as pauses
from shoal_policy.record.pause import RunPause


def test_it_goes_on_when_nothing_lacks(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses, "RETRY_S", 0.0)
    caplog.set_level("INFO")
    told: list[str] = []
    answers = iter(["full", "full", "still full", ""])
    pause = RunPause(lack=lambda: next(answers), should_stop=lambda: False, tell=told.append)
    assert pause.hold()
    assert told == ["full", ""]
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


def test_nothing_is_said_of_a_disk_with_room(caplog: pytest.LogCaptureFixture) -> None:
    assert RunPause(lack=lambda: "", should_stop=lambda: True, tell=pytest.fail).hold()
    assert not caplog.records


def test_a_stop_is_heard_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "RETRY_S", 60.0)
    asked: Iterator[bool] = iter([False] * 3 + [True] * 10)
    pause = RunPause(
        lack=lambda: "full",
        should_stop=lambda: next(asked),
        tell=lambda _why: None,
    )
    assert not pause.hold()
