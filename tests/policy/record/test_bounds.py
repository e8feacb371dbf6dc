"""What a run leaves stays small however long it is: metrics.jsonl, and what sinks get."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from shoal_policy.record import sinks
from shoal_policy.record.metrics import MetricsFile, thin_events
from shoal_settings.schema import Settings
from tests.policy.training_cases import metrics


def line(number: int, kind: str = "round") -> bytes:
    return json.dumps({"event": kind, "round": number, "pad": "x" * 50}).encode() + b"\n"


def numbers(path: Path, kind: str = "round") -> list[int]:
    return [event["round"] for event in metrics(path.parent, kind)]


def test_metrics_keep_the_newest_rounds_and_the_whole_course(tmp_path: Path) -> None:
    path, bound = tmp_path / "metrics.jsonl", 40_000
    file = MetricsFile(path, last_round=0, max_bytes=bound)
    for number in range(1, 5001):
        file.append({"event": "round", "round": number, "pad": "x" * 50})
        if number % 500 == 0:
            file.append({"event": "held_out", "round": number})
        assert path.stat().st_size <= bound
    kept = numbers(path)
    assert kept == sorted(set(kept)), "in order, each once"
    assert kept[-100:] == list(range(4901, 5001)), "the newest are all there"
    assert kept[0] < 600, "and the beginning, more coarsely"
    assert numbers(path, "held_out") == list(range(500, 5001, 500)), "evaluations stay"
    # A resumed run continues in the thinned file, each round at most once.
    file = MetricsFile(path, last_round=4990, last_held_out=4500, max_bytes=bound)
    assert numbers(path)[-1] == 4990
    assert numbers(path, "held_out")[-1] == 4500
    for number in range(4991, 5001):
        file.append({"event": "round", "round": number})
    assert numbers(path)[-11:] == list(range(4990, 5001))


def test_without_room_for_the_shorter_file_the_longer_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"".join(line(number) for number in range(1, 501)))

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    file = MetricsFile(path, last_round=500, max_bytes=20_000)
    assert len(numbers(path)) == 500
    monkeypatch.undo()
    for number in range(501, 600):
        file.append({"event": "round", "round": number, "pad": "x" * 50})
    assert path.stat().st_size <= 20_000
    assert numbers(path)[-1] == 599


def test_thinning_ends_for_any_bound() -> None:
    lines = [line(number) for number in range(1, 100)]
    for bound in (0, 50, 1000, 5000, 100_000):
        kept = thin_events(lines, bound)
        assert sum(map(len, kept)) <= bound
        assert kept == sorted(kept, key=lines.index)
    assert thin_events(lines, 100_000) == lines


def test_sinks_take_the_first_rounds_and_then_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    taken: list[int] = []

    class Sink:
        def write(self, round_number: int, figures: object) -> None:
            taken.append(round_number)

        def close(self) -> None: ...

    monkeypatch.setattr(sinks, "_installed", lambda name: True)
    monkeypatch.setattr(sinks, "_OPENERS", {"wandb": lambda *_: Sink()})
    made = sinks.MetricSinks(Settings(data_dir=tmp_path, log="wandb"))
    for number in range(1, 6001):
        made.write({"round": number, "reward": 0.5})
        now += 0.05  # the toy's pace: five minutes
    assert taken[: sinks.FIRST_EVENTS] == list(range(1, sinks.FIRST_EVENTS + 1))
    assert 55 <= len(taken) - sinks.FIRST_EVENTS <= 65
    made.write({"round": 6000, "held_out/pass@1": 0.5})
    assert taken[-1] == 6000, "an evaluation is not lost among rounds"
