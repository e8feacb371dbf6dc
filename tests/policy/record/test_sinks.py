"""Destinations of metrics in addition to their file."""

from __future__ import annotations

import errno
import re
import threading
import time
from pathlib import Path

import pytest

from shoal_policy.record import sinks as metric_sinks
from shoal_policy.record.earlier_runs import TENSORBOARD_FOLDER
from shoal_policy.record.sinks import FIRST_EVENTS, MetricSinks, run_name, sink_names
from shoal_settings.loader import SettingsError
from shoal_settings.schema import Settings


def test_tensorboard_holds_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.summary.writer import event_file_writer

    # Files of one second sort by the process's count of them, as text: 10 comes before 9.
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))
    settings = Settings(data_dir=tmp_path, log="auto")
    first = MetricSinks(settings)
    assert first.names == ("tensorboard",)
    for number in (1, 2, 3):
        first.write({"round": number, "reward": 0.25 * number, "completions/mean_length": None})
    first.close()
    resumed = MetricSinks(settings)
    resumed.write({"round": 3, "reward": 0.5})
    resumed.write({"round": 3, "held_out/pass@1": 0.125})
    resumed.close()
    read = EventAccumulator(str(tmp_path / TENSORBOARD_FOLDER))
    read.Reload()
    assert set(read.Tags()["scalars"]) == {"reward", "held_out/pass@1"}
    assert [(at.step, at.value) for at in read.Scalars("reward")] == [
        (1, 0.25),
        (2, 0.5),
        (3, 0.5),  # the round that was played again, not the first try
    ]


@pytest.mark.slow
def test_weights_and_biases_takes_a_run_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    sinks = MetricSinks(Settings(data_dir=tmp_path, log="wandb"))
    sinks.write({"round": 1, "reward": 0.5})
    sinks.close()
    (run,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    assert b"reward" in run.read_bytes()


def test_what_was_named_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_sinks, "_installed", lambda name: False)
    assert sink_names("auto") == sink_names("none") == ()
    for name in ("tensorboard", "wandb", "trackio"):
        with pytest.raises(SettingsError, match=f"pip install {name}"):
            sink_names(f"auto,{name}")
    monkeypatch.setattr(metric_sinks, "_installed", lambda name: True)
    assert sink_names("wandb,auto,wandb") == ("wandb", "tensorboard")


def test_a_sink_that_breaks_is_left_out_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Working:
        seen: list[int] = []  # noqa: RUF012 - read by the test

        def write(self, round_number: int, _figures: object) -> None:
            self.seen.append(round_number)

        def close(self) -> None:
            self.seen.append(-1)

    class Broken(Working):
        def write(self, round_number: int, figures: object) -> None:
            raise ConnectionError("offline")

    monkeypatch.setattr(metric_sinks, "_installed", lambda name: True)
    openers = {"wandb": lambda *_: Broken(), "trackio": lambda *_: Working()}
    monkeypatch.setattr(metric_sinks, "_OPENERS", openers)
    sinks = MetricSinks(Settings(data_dir=tmp_path, log="wandb,trackio"))
    for number in (1, 2):
        sinks.write({"round": number, "reward": 0.5})
    sinks.close()
    assert Working.seen == [1, 2, -1]
    assert caplog.text.count("no more metrics to wandb: offline") == 1


def test_a_full_disk_costs_a_sink_what_was_played_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    write, kept = RecordWriter.write, set()

    def write_if_room(writer: object, data: bytes) -> None:
        step = Event.FromString(data).step
        if 20 <= step < 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(writer, data)
        kept.add(step)

    monkeypatch.setattr(RecordWriter, "write", write_if_room)
    monkeypatch.setattr(threading, "excepthook", lambda _failed: None)
    sinks = MetricSinks(Settings(data_dir=tmp_path, log="tensorboard"))
    for number in range(1, FIRST_EVENTS):
        sinks.write({"round": number, "reward": 0.5})
        time.sleep(0.01)  # a thread of its own writes
        if number > 40 and number in kept:
            break
    sinks.close()
    assert not caplog.text, "it is not closed"
    assert {*range(1, 20), number} <= kept


def test_a_sink_that_does_not_open_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no key\nlong explanation")

    monkeypatch.setattr(metric_sinks, "_installed", lambda name: True)
    monkeypatch.setattr(metric_sinks, "_OPENERS", {"wandb": refuse})
    with pytest.raises(SettingsError, match=r"^log = 'wandb': wandb: no key$"):
        MetricSinks(Settings(data_dir=tmp_path, log="wandb"))


def test_a_run_keeps_its_name_over_restarts(tmp_path: Path) -> None:
    name = run_name(tmp_path / "my swarm" / "node-1")
    assert name == run_name(tmp_path / "my swarm" / "node-1") == "my-swarm-node-1"
    assert re.fullmatch(r"[\w-]+", run_name(Path(".shoal/node")))
