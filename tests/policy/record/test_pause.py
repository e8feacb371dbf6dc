"""A run without disk space waits, reports it once, and continues by itself."""

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
    reported: list[str] = []
    answers = iter(["full", "full", "still full", ""])
    pause = RunPause(
        blocked_by=lambda: next(answers), should_stop=lambda: False, on_change=reported.append
    )
    assert pause.wait_for_space()
    assert reported == ["full", ""]
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


def test_a_disk_with_space_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    assert RunPause(
        blocked_by=lambda: "", should_stop=lambda: True, on_change=pytest.fail
    ).wait_for_space()
    assert not caplog.records


def test_a_stop_ends_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "RETRY_S", 60.0)
    requested: Iterator[bool] = iter([False] * 3 + [True] * 10)
    pause = RunPause(
        blocked_by=lambda: "full",
        should_stop=lambda: next(requested),
        on_change=lambda _why: None,
    )
    assert not pause.wait_for_space()
