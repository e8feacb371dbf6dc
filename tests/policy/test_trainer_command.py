"""`shoal trainer` as its node, a person and a shell meet it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shoal_policy import __main__ as command
from shoal_policy.__main__ import StopFlag, main
from shoal_policy.record.phases import ProgressTracker
from shoal_policy.rollback import DivergedError
from shoal_policy.trainer import Trainer
from shoal_settings.exits import EXIT_DIVERGED
from shoal_settings.schema import Settings
from shoal_tasks.families import PRESETS
from shoal_tasks.swarm import families_of
from shoal_wire.manifest import decode_manifest, make_manifest
from shoal_wire.types import PeerId
from tests.support import factories as make
from tests.support.local_node import NodeThread

PATIENCE_S = 20.0

pytestmark = pytest.mark.usefixtures("as_it_was")


def flags(model: str, *more: str) -> list[str]:
    small = "--local=2 --external=2 --completions=2 --max-new-tokens=4 --device=cpu --rounds=2"
    return [*small.split(), f"--model={model}", "--data-dir=d", *more]


def events(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.usefixtures("shared_worker")
def test_alone_it_trains_and_says_so_round_by_round(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(flags(model, "--alone", "--json", "--seed=3")) == 0
    shown = events(capsys.readouterr().out)
    assert [(row["event"], row["round"]) for row in shown] == [("round", 1), ("round", 2)]
    assert (Path("d") / "metrics.jsonl").exists()
    # For a person: the last round is always printed.
    assert main(flags(model, "--alone", "--rounds=3", "--seed=3")) == 0
    text = capsys.readouterr().out
    assert text.startswith("round 3/3  own reward ")
    assert "external 0/2" in text


def test_with_its_node_it_shares_and_reports(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = tmp_path / "d"
    data_dir.mkdir()
    manifest = make_manifest("one family", families_of((make.GCD,)))
    with NodeThread(data_dir, manifest=manifest) as node:
        assert main(flags(model, "--json")) == 0
        assert node.node.link.status["state"] == "finished"
        assert node.node.live.counters.groups_published > 0
        # The manifest comes from the node: its one family, not the preset's six.
        recent = node.node.recent.after(0, limit=99)
        assert {found.group.group.task.family for found in recent} == {make.GCD.name}
    assert [row["round"] for row in events(capsys.readouterr().out)] == [1, 2]


def test_a_stop_while_it_waits_for_its_node_ends_it(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = StopFlag()
    stop.set()
    monkeypatch.setattr(command, "StopFlag", lambda: stop)
    assert main(flags(model)) == 0


@pytest.mark.usefixtures("shared_worker")
def test_a_node_whose_trainer_crashed_does_not_start_over_twice(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def played(run: str, rounds: int) -> list[object]:
        over = ("--no-resume", f"--node-run={run}", f"--rounds={rounds}")
        assert main(flags(model, "--alone", "--json", *over)) == 0
        return [row["round"] for row in events(capsys.readouterr().out)]

    assert played("one", 1) == [1]
    assert played("one", 3) == [2, 3], "the same node's next trainer"
    assert played("two", 1) == [1], "another start of the node"
    assert played("", 1) == [1], "by hand"


@pytest.mark.usefixtures("shared_worker")
def test_numbers_that_stay_not_finite_are_an_end_of_their_own(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def diverge(_self: Trainer) -> None:
        raise DivergedError("its numbers are not finite")

    monkeypatch.setattr(Trainer, "run", diverge)
    assert main(flags(model, "--alone")) == EXIT_DIVERGED
    assert capsys.readouterr().err == "shoal trainer: its numbers are not finite\n"


def test_a_wrong_model_is_reported_before_any_wait(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is neither a node nor a task worker here."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "vit").mkdir()
    (tmp_path / "vit" / "config.json").write_text('{"model_type": "vit"}')
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    for bad in ("/no/such/folder", "./empty", "./vit", "./adapter"):
        assert main(flags(bad)) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.startswith("shoal trainer: cannot ")
        assert bad in line


def test_a_second_trainer_in_the_same_folder_is_refused(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "MINUTE_S", 0.0)
    Path("d").mkdir()
    with Path("d/trainer.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert main(flags(model, "--alone")) == 2
    assert "another trainer is using d" in capsys.readouterr().err


def test_the_trainer_waits_for_a_predecessor_that_still_writes_and_logs_it_at_once(
    model: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    free: list[bool] = []
    monkeypatch.setattr(command, "_with_tasks", lambda *_: free.append(held.closed) or 0)  # type: ignore[func-returns-value, has-type]
    Path("d").mkdir()
    held = Path("d/trainer.lock").open("a")  # noqa: SIM115 - closed by the timer below
    fcntl.flock(held, fcntl.LOCK_EX)
    timer = threading.Timer(0.3, held.close)
    timer.start()
    assert main(flags(model, "--alone")) == 0
    timer.join()
    assert free == [True]
    message = [line for line in caplog.messages if "another trainer is using d" in line]
    assert message == ["another trainer is using d: waiting for it to end, 60 s at most"]


def test_the_end_of_its_standard_input_is_its_nodes_end() -> None:
    reading, writing = os.pipe()
    before = os.dup(0)
    os.dup2(reading, 0)
    try:
        stop = StopFlag()
        stop.watch_parent()
        os.write(writing, b"still here")
        assert not stop()
        os.close(writing)
        assert stop._event.wait(PATIENCE_S)
    finally:
        os.dup2(before, 0)
        for descriptor in (before, reading):
            os.close(descriptor)


def test_a_signal_asks_for_a_stop() -> None:
    stop = StopFlag()
    assert not stop()
    stop.on_signal(signal.SIGTERM, None)
    assert stop()


def test_each_node_samples_its_own_tasks_by_default() -> None:
    ann, bob = PeerId("ann"), PeerId("bob")
    assert command._seed(Settings(seed=5), ann) == 5
    assert command._seed(Settings(), ann) == command._seed(Settings(), ann)
    assert command._seed(Settings(), ann) != command._seed(Settings(), bob)
    assert 0 <= command._seed(Settings(), ann) < 1 << 31


def test_alone_the_manifest_is_the_presets() -> None:
    manifest = command._manifest(Settings(alone=True, tasks=("paper",)), None, StopFlag())
    assert manifest is not None
    assert [family.name for family in manifest.families] == [s.name for s in PRESETS["paper"]]
    assert decode_manifest(manifest.raw) == manifest


def test_settings_are_shown_without_loading_what_would_run() -> None:
    program = (
        "import sys; from shoal_policy.__main__ import main; main(['--print-config']); "
        "print(*(one for one in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    rooms = ("shoal_ipc", "shoal_tasks.swarm", "shoal_policy.record.metrics", "httpx", "rich")
    assert not loaded & {*rooms, "torch", "h11"}


def test_a_librarys_warning_is_printed_once_and_its_requests_are_not() -> None:
    program = (
        "import logging; from shoal_policy.__main__ import _quieten_libraries as quieten; "
        "quieten(); "
        "logging.basicConfig(level=logging.INFO); import huggingface_hub.utils.logging as hub; "
        "hub.get_logger('huggingface_hub.x').warning('no way to the hub'); import httpx; "
        "answer = httpx.MockTransport(lambda request: httpx.Response(200)); "
        "httpx.Client(transport=answer).get('http://127.0.0.1/models')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr.count("no way to the hub") == 1
    assert "HTTP Request" not in done.stderr


@pytest.mark.usefixtures("shared_worker")
def test_completed_rounds_are_reported(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags(model, "--alone")) == 0
    assert "rounds are done" not in capsys.readouterr().out
    assert main(flags(model, "--alone")) == 0
    assert capsys.readouterr().out == "2 rounds are done: continue with --rounds 4\n"


@pytest.mark.usefixtures("shared_worker")
def test_a_stop_ends_a_long_generation(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = StopFlag()
    steps: list[int] = []

    def step(_self: ProgressTracker, done: int, _fraction: float) -> None:
        steps.append(done)
        stop.set()

    monkeypatch.setattr(command, "StopFlag", lambda: stop)
    monkeypatch.setattr(ProgressTracker, "step", step)
    assert main(flags(model, "--alone", "--max-new-tokens=60", "--eval-every=0")) == 0
    assert len(steps) == 1
    assert not list(Path("d").glob("checkpoints/*"))
