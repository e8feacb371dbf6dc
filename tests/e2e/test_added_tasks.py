"""A running swarm takes new tasks, as users do it: three nodes, a kill, and a hostile member."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal_p2p.parts import Dependencies
from shoal_tasks.bundle import ACCEPTED_FILE, TASKS_FOLDER, accepted_task_files
from tests.p2p.bundles.cases import author_spec
from tests.support import nat
from tests.support.doubles.worker import InstantWorker
from tests.support.processes import LOOPBACK, ProcessManager, ShoalProcess, wait_for
from tests.support.running_node import RunningNode
from tests.support.task_files import task_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

GAME = """
class Game:
    def reset(self, seed):
        self.side = "ab"[seed % 2]
        return "Say a or b."

    def step(self, message):
        return "Over.", float(message.strip() == self.side), True
"""
FLAGS = ("--eval-every", "0", "--log", "none", "--no-mdns", "--checkpoint-seconds", "0.5")


def tasks(node: ShoalProcess, *words: str, prefix: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run `shoal tasks` on a node; return the exit code and all output."""
    command = [*prefix, sys.executable, "-m", "shoal", "tasks", *words]
    done = subprocess.run(
        [*command, "--data-dir", str(node.data_dir)],
        capture_output=True, text=True, timeout=120.0, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def rows(node: ShoalProcess) -> dict[str, Any]:
    """Return the rows of the view `tasks` by name."""
    found = node.view("tasks") or {"tasks": []}
    return {one["name"]: one for one in found["tasks"]}


def until_on_offer(node: ShoalProcess, name: str) -> None:
    wait_for(lambda: rows(node).get(name), 90.0, f"{name} on offer")


def invitation(node: ShoalProcess) -> str:
    command = [sys.executable, "-m", "shoal", "invite", "--data-dir", str(node.data_dir)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60.0)
    return done.stdout.strip()


def until_trained(node: ShoalProcess, name: str) -> None:
    """Wait until a node has played rounds with groups of its own of a task."""

    def trained() -> bool:
        families = (node.view("ledger") or {"families": []})["families"]
        return any(one["name"] == name and one["groups"] > 4 for one in families)

    wait_for(trained, 120.0, f"{node.data_dir.name} to train on {name}")


def game_file(folder: Path, *, name: str = "guess", num_bytes: int = 0) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "game.py").write_text(GAME + "#" * num_bytes)
    return str(task_file(folder, name, environment="game.py", max_turns=2, share=True))


def test_a_friends_game_comes_to_the_founder_and_goes_again(
    stage: ProcessManager, tmp_path: Path
) -> None:
    author_spec(tmp_path / "author", num_rows=30, reward="reward.py")
    first = stage.node("first", "--tasks", str(tmp_path / "author/sums.toml"), *FLAGS)
    line = invitation(first)
    joining = ("--listen", LOOPBACK, "--accept-tasks", "1MB,sums", *FLAGS, line)
    second = stage.process("join", "second", *joining).start()
    third = stage.process(
        "join", "third", "--tasks", game_file(tmp_path / "third-game"), *joining
    ).start()
    until_on_offer(first, "guess")
    before = first.wait_status(lambda status: status["round"] > 3, "rounds")
    assert tasks(first, "add", "guess")[0] == 2, "there is no terminal to ask at"
    code, text = tasks(first, "add", "guess", "--accept-tasks", "1MB,guess")
    assert (code, "this node trains on it now" in text) == (0, True), text
    until_trained(first, "guess")
    after = first.wait_status(lambda status: status["round"] > before["round"], "more rounds")
    assert after["uptime_s"] > before["uptime_s"] and after["peer_id"] == before["peer_id"]
    until_on_offer(second, "guess")
    wait_for(lambda: rows(second)["guess"]["nodes"] >= 1, 60.0, "what it earns there")
    assert not accepted_task_files(second.data_dir)[1:], "the second has not accepted it"
    assert tasks(first, "remove", "guess")[0] == 0
    ended = first.wait_status(lambda status: status["trainer"]["connected"], "its trainer")
    first.wait_status(lambda status: status["round"] > ended["round"], "rounds without it")
    assert "Traceback" not in first.log
    assert [node.stop() for node in (third, second, first)] == [0, 0, 0]


def test_a_node_that_is_killed_in_a_fetch_continues_it(
    stage: ProcessManager, tmp_path: Path
) -> None:
    """40 MB of rows at 8 MB a second: the node is killed once some pieces are there."""
    author_spec(tmp_path / "big", num_rows=4000, chars=10_000)
    first = stage.node("first", "--tasks", "easy", *FLAGS, "--role", "observe")
    friend = stage.process(
        "join", "friend", "--tasks", str(tmp_path / "big/sums.toml"), "--listen", LOOPBACK,
        *FLAGS, "--role", "observe", invitation(first),
    ).start()  # fmt: skip
    until_on_offer(first, "sums")
    adding = [sys.executable, "-m", "shoal", "tasks", "add", "sums", "--accept-tasks", "64MB"]
    command = subprocess.Popen(
        [*adding, "--data-dir", str(first.data_dir)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    parts = first.data_dir / TASKS_FOLDER
    wait_for(
        lambda: [one for one in parts.glob("*/*.part") if one.stat().st_size > 3 << 20],
        60.0, "the first pieces",
    )  # fmt: skip
    first.kill()
    (_, error), code = command.communicate(timeout=60.0), command.wait()
    assert code in (1, 3) and "Traceback" not in error, error
    (part,) = parts.glob("*/*.part")
    kept = part.stat().st_size
    first.start()
    until_on_offer(first, "sums")
    code, text = tasks(first, "add", "sums", "--accept-tasks", "64MB")
    assert code == 0, text
    (path,) = accepted_task_files(first.data_dir)
    assert (Path(path).parent / "rows.jsonl").stat().st_size > kept > 3 << 20
    assert rows(first)["sums"]["state"] == "accepted"
    assert friend.stop() == first.stop() == 0


@pytest.mark.skipif(not nat.available(), reason="needs root, iproute2 and nftables")
def test_three_nodes_behind_routers_share_a_new_task(stage: ProcessManager, tmp_path: Path) -> None:
    author_spec(tmp_path / "author", num_rows=30, reward="reward.py")
    with nat.open_internet() as net:
        listen = ("--listen", f"/ip4/{nat.PUBLIC}/tcp/4001")
        meeting = stage.process(
            "bootstrap", "meeting", *listen, "--relay", "--no-mdns", "--tasks", "easy",
            prefix=net.public,
        ).start()  # fmt: skip

        def node(name: str, *flags: str) -> tuple[ShoalProcess, nat.Prefix]:
            prefix = net.behind_nat()
            made = stage.process(
                "node", name, "--listen", "/ip4/0.0.0.0/tcp/4001", *FLAGS, *flags,
                "--bootstrap", meeting.address, prefix=prefix,
            )  # fmt: skip
            return made.start(), prefix

        first, at_first = node("first")
        second, _ = node("second", "--tasks", str(tmp_path / "author/sums.toml"))
        third, _ = node("third", "--accept-tasks", f"1MB,sums,from:{second.peer_id}")
        until_on_offer(first, "sums")
        code, text = tasks(first, "add", "sums", "--accept-tasks", "1MB,sums", prefix=at_first)
        assert code == 0, text
        for one in (first, second, third):
            until_trained(one, "sums")
        wait_for(lambda: rows(second)["sums"]["nodes"] == 3, 120.0, "all three")
        wait_for(lambda: len(rows(second)["sums"]["offered_by"]) == 2, 120.0, "both offers")


def test_what_a_stranger_offers_harms_no_node(stage: ProcessManager, tmp_path: Path) -> None:
    """Code that attacks when it is imported, and a task whose every answer is right."""
    attack = tmp_path / "attack"
    author_spec(
        attack, num_rows=9, reward="reward.py", code=ATTACK.format(str(tmp_path / "was here"))
    )
    worthless = tmp_path / "worthless"
    worthless.mkdir()
    every = "def reward(completions, **_):\n    return [1.0 for _ in completions]\n"
    author_spec(worthless, num_rows=9, reward="reward.py", code=every)
    text = (worthless / "sums.toml").read_text().replace('name = "sums"', 'name = "all"')
    (worthless / "all.toml").write_text(text)
    first = stage.node("first", "--tasks", "easy", *FLAGS)
    # A node lints its own tasks at its start; this one does not.
    hostile = RunningNode(
        tmp_path / "stranger",
        parts=Dependencies(worker=lambda families, _s: InstantWorker(families)),
        bootstrap=(first.address,),
        tasks=(str(attack / "sums.toml"), str(worthless / "all.toml")),
    )
    with hostile:
        for name in ("sums", "all"):
            until_on_offer(first, name)
            ended, text = tasks(first, "add", name, "--accept-tasks", f"1MB,{name}")
            assert ended == 1 and "is not added: " in text, text
            assert rows(first)[name]["state"] == "refused"
    assert not (tmp_path / "was here").exists()
    assert not list((first.data_dir / TASKS_FOLDER).glob(f"*/{ACCEPTED_FILE}"))
    status = first.wait_status(lambda one: one["round"] > 0, "rounds")
    first.wait_status(lambda one: one["round"] > status["round"], "more rounds")
    assert "Traceback" not in first.log


ATTACK = """
import os, signal, subprocess, sys, threading
for do in (
    lambda: open({0!r}, "w").write("x"),
    lambda: os.kill(os.getppid(), signal.SIGKILL),
    lambda: subprocess.Popen(["touch", {0!r}]),
    lambda: os.system("touch " + {0!r}),
    lambda: [threading.Thread(target=lambda: None).start() for _ in range(10_000)],
    lambda: bytearray(1 << 40),
    lambda: sys.setrecursionlimit(1 << 30),
):
    try:
        do()
    except BaseException:
        pass
while True:
    pass


def reward(completions, **_):
    return [0.0 for _ in completions]
"""
