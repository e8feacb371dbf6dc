"""Spans count each part's own time, and leave nothing out."""

from __future__ import annotations

import pytest

from benchmarks import spans as spans_module
from benchmarks.spans import REST, Spans


class Clock:
    """Stands still until told how long something took."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Work:
    """Outer work with inner work in it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def outer(self) -> str:
        self._clock.now += 2.0
        self.inner()
        self._clock.now += 1.0
        return "done"

    def inner(self) -> None:
        self._clock.now += 5.0
        if self._clock.now > 100:
            raise ValueError


def test_a_caller_does_not_count_what_it_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(spans_module, "perf_counter", clock)
    watched = type("Watched", (Work,), dict(vars(Work)))
    spans = Spans()
    spans.watch("outer", watched, "outer")
    spans.watch("inner", watched, "inner")
    work = watched(clock)
    work.outer()
    spans.start()
    clock.now += 4.0
    assert work.outer() == "done"
    found = spans.stop()
    assert {name: span["seconds"] for name, span in found.items()} == {
        "inner": 5.0,
        REST: 4.0,
        "outer": 3.0,
    }
    assert found["inner"]["calls"] == 1
    clock.now = 200.0
    with pytest.raises(ValueError):
        work.outer()
    clock.now += 1.0
    assert sum(span["seconds"] for span in spans.stop().values()) == clock.now - 8.0
