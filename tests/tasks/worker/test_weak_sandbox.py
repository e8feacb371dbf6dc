"""Machines without isolation for users' files: reported, and accepted or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_ipc.answers.doctor import Facts
from shoal_ipc.answers.node import Status
from shoal_ipc.answers.peer import WorkerView
from shoal_p2p.ipc.checks import machine
from shoal_p2p.ipc.checks.seen import Seen
from shoal_tasks.errors import FamilyError
from shoal_tasks.families import EASY
from shoal_tasks.types import Layer, WorkerReport
from shoal_tasks.worker import process, serving
from shoal_tasks.worker.sync import SyncTaskWorker
from tests.tasks.worker.test_refusals import family

SOURCE = "def reward(completions, **kwargs):\n    return [float(t == '1') for t in completions]\n"


def layers(*active: str) -> tuple[Layer, ...]:
    names = ("filesystem", "landlock", "network", "seccomp", "audit_hook")
    return tuple(
        Layer(name=name, active=name in active, detail="on" if name in active else "not permitted")
        for name in names
    )


@pytest.mark.parametrize(
    ("active", "is_sandboxed"),
    [
        (("filesystem", "network", "seccomp", "audit_hook"), True),
        (("landlock", "seccomp", "audit_hook"), True),
        (("seccomp", "network", "audit_hook"), False),
        (("filesystem", "landlock", "audit_hook"), False),
        (("audit_hook",), False),
    ],
)
def test_without_a_wall_a_users_file_is_refused_unless_that_is_accepted(
    tmp_path: Path, active: tuple[str, ...], is_sandboxed: bool
) -> None:
    spec = family(tmp_path, SOURCE)
    serving._check_isolation([EASY[0]], layers(*active))  # without a user's file
    if is_sandboxed:
        serving._check_isolation([spec], layers(*active))
        return
    with pytest.raises(FamilyError, match=r"'mine'.*--weak-sandbox.*without .*not permitted"):
        serving._check_isolation([spec], layers(*active))


def test_what_is_accepted_reaches_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(process.WEAK_SANDBOX, raising=False)
    assert process._accepted() == []
    monkeypatch.setenv(process.WEAK_SANDBOX, "1")
    assert process._accepted() == ["--weak-sandbox"]


def test_a_workers_layers_are_described_and_shown_by_the_doctor(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with SyncTaskWorker([family(tmp_path, SOURCE)]) as worker:
        report = worker.report
    assert report is not None
    assert f"sandbox of 'mine': {report.sandbox}" in caplog.text
    weak = WorkerReport(pid=1, layers=layers("audit_hook"))
    assert weak.sandbox.startswith("the interpreter's hook; without a root of its own (not permi")
    view = WorkerView(running=True, sandbox=weak.sandbox, is_sandboxed=weak.is_sandboxed)
    seen = Seen(status=Status(worker=view), facts=Facts())
    (found,) = machine.sandbox(seen)
    assert (found.state, "weak_sandbox" in found.remedy) == ("warn", True)


def test_a_judge_is_reported_to_have_the_users_rights(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SyncTaskWorker([family(tmp_path, SOURCE, local=True)]):
        pass
    assert "reward.py runs outside the sandbox, with your rights" in caplog.text
