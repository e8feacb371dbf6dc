"""A peer written in JavaScript only from docs/wire.md and the .proto files, in a real swarm."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import ProcessManager, wait_for

JS = Path(__file__).parent / "js"
INSTALL_SECONDS = 180

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        shutil.which("node") is None or shutil.which("npm") is None,
        reason="needs Node.js and npm",
    ),
]


@pytest.fixture(scope="session")
def js() -> Path:
    """The folder of the JavaScript peer, with its packages installed."""
    installed = JS / "node_modules" / ".package-lock.json"
    # Test processes run in parallel: one installs, the others wait.
    with (JS / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (
            not installed.exists()
            or installed.stat().st_mtime < (JS / "package-lock.json").stat().st_mtime
        ):
            done = subprocess.run(
                ["npm", "ci", "--no-audit", "--no-fund"],
                cwd=JS,
                capture_output=True,
                text=True,
                timeout=INSTALL_SECONDS,
                check=False,
            )
            assert done.returncode == 0, done.stderr
    return JS


class JsPeer:
    """The process and its output so far."""

    def __init__(self, js: Path, log: Path, *arguments: str) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                ["node", "peer.mjs", *arguments],
                cwd=js,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def events(self, event: str) -> list[dict[str, Any]]:
        """Every output line of that kind."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines() if line[:1] == "{"]
        return [line for line in lines if line["event"] == event]

    def wait_events(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until there are `count` lines of that kind."""

        def check() -> list[dict[str, Any]] | None:
            found = self.events(event)
            if len(found) >= count:
                return found
            assert self._process.poll() is None, self._log.read_text()
            return None

        found: list[dict[str, Any]] = wait_for(check, 90.0, f"{count} x {event} of the js peer")
        return found

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


def test_known_answers_are_the_same_in_javascript(js: Path) -> None:
    done = subprocess.run(
        ["node", "vectors.mjs"], cwd=js, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["differences"] == []
    assert answer["checked"] > 20


@pytest.mark.slow
def test_a_js_peer_hears_verifies_and_is_trained_on(
    js: Path, tmp_path: Path, stage: ProcessManager
) -> None:
    bootstrap = stage.bootstrap()
    short = ("--round-seconds", "0.3", "--model", "tiny", "--local", "2", "--eval-every", "0")
    node = stage.node("node", *short, bootstrap=bootstrap.address)
    peer = JsPeer(
        js, tmp_path / "js.txt", bootstrap.address, "--answer", "12", "--forge", "--seconds", "200"
    )
    try:
        peer_id = peer.wait_events("started")[0]["peerId"]
        received = peer.wait_events("heard", 2)
        assert received[0]["signer"] == node.peer_id
        # In any order: the second of two batches may take the shorter route.
        assert received[1]["sequence"] != received[0]["sequence"]
        rollouts = node.view("rollouts", limit=200)
        assert rollouts is not None
        assert _texts(rollouts, node.peer_id) >= {
            text for group in received[0]["texts"] for text in group
        }

        # The only other publisher is the js peer, so the groups trained on came from it.
        node.wait_status(lambda s: s["groups_external_used"] >= 1, "a group of js trained on")
        forged = peer.wait_events("forged")
        assert len(forged) == 1
        wait_for(
            lambda: _rejected(node.view("status"), "question_mismatch") or None,
            60.0,
            "the forged batch rejected",
        )
        assert not peer.events("refused"), "every batch of the node verifies in JavaScript"
        assert peer_id in json.dumps(node.view("peers"))
    finally:
        peer.close()


def _texts(rollouts: dict[str, Any], publisher: str) -> set[str]:
    return {
        completion["text"]
        for group in rollouts["rollouts"]
        if group["publisher"] == publisher
        for completion in group["completions"]
    }


def _rejected(status: dict[str, Any] | None, reason: str) -> int:
    assert status is not None
    return int(status["verdicts"]["reject"].get(reason, 0))
