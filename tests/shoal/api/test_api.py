"""The Python API: two real nodes on loopback, one that it starts and one that runs already."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import trio

import shoal
from shoal_wire.invite import Invite, encode_invite
from shoal_wire.types import Completion, FinishReason
from tests.support.peers import INSTANT
from tests.support.processes import LOOPBACK, ProcessManager, wait_for
from tests.support.running_node import RunningNode

pytestmark = pytest.mark.timeout(300)
QUIET = ("--listen", LOOPBACK, "--no-mdns")
GAMES = "games-1"
"""A preset whose task worker starts in a fifth of the time, where its questions do not matter."""
PAGE = Path(__file__).resolve().parents[3] / "docs/python-api.md"


def _drawn(swarm: shoal.Swarm, count: int) -> list[shoal.LeasedGroup]:
    """Sample until there are `count`."""
    found: list[shoal.LeasedGroup] = []

    def enough() -> bool:
        found.extend(swarm.draw(count - len(found)))
        return len(found) >= count

    wait_for(enough, 60.0, f"{count} external groups")
    return found


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[shoal.Swarm, shoal.Swarm]]:
    """Two programs of one swarm: one at a node that runs, one with a node that it has started.

    A test that has them leaves nothing to draw.
    """
    root = tmp_path_factory.mktemp("pair")
    with RunningNode(root / "one") as node:
        invite = Invite(swarm=node.node.manifest.digest, addresses=(node.address,))
        with (
            shoal.connect(root / "one") as one,
            shoal.connect(encode_invite(invite), data_dir=root / "two", node_flags=QUIET) as two,
        ):
            wait_for(lambda: two.status()["peers"] == 1, 60.0, "the nodes to meet")
            yield one, two


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a node without a trainer, that runs and has no peers."""
    with RunningNode(tmp_path_factory.mktemp("alone"), parts=INSTANT, tasks=GAMES) as node:
        yield node.data_dir


def test_what_one_publishes_another_draws_verifies_and_acknowledges_once(
    pair: tuple[shoal.Swarm, shoal.Swarm],
) -> None:
    one, two = pair
    assert (one.name, one.families) == (two.name, two.families)
    questions = one.tasks(3, seed=7)
    assert questions == two.tasks(3, seed=7)
    cut = Completion(text="cut", num_tokens=3, finish_reason=FinishReason.LENGTH)
    right = [one._tasks.expected([question.task])[0] or "" for question in questions]
    mine = [
        shoal.Group(
            question, [f"<answer>{answer}</answer>" if question.tagged else answer, "no", cut]
        )
        for question, answer in zip(questions, right, strict=True)
    ]
    assert one.publish(mine, author="a-model", version=4)
    rewards = one.verify(mine)
    assert all(first > second for first, second, _ in rewards)

    drawn = _drawn(two, 3)
    assert {group.publisher for group in drawn} == {one.peer_id}
    assert {group.source.policy.model_name for group in drawn} == {"a-model"}
    by_text = {group.question.text: group for group in mine}
    for group, earned in zip(drawn, two.verify(drawn), strict=True):
        own = by_text[group.question.text]
        assert group.answers == own.answers
        assert earned == rewards[mine.index(own)]
    first, *rest = drawn
    two.release(rest)
    assert two.acknowledge([first])
    again = _drawn(two, 2)
    assert {group.id for group in again} == {group.id for group in rest}
    assert two.acknowledge(again)
    assert two.draw(3) == []


def test_a_node_that_is_away_or_killed_in_between_loses_nothing(
    stage: ProcessManager, tmp_path: Path
) -> None:
    folder = tmp_path / "giver"
    with ExitStack() as stack:
        life = stack.enter_context(ExitStack())
        giver = life.enter_context(RunningNode(folder, parts=INSTANT, tasks=GAMES))
        taker = stage.node("taker", "--role=observe", bootstrap=giver.address)
        one = stack.enter_context(shoal.connect(folder))
        two = stack.enter_context(shoal.connect(taker.data_dir))
        groups = [shoal.Group(question, ["1", "2"]) for question in one.tasks(4, seed=1)]
        wait_for(lambda: two.status()["peers"] == 1, 60.0, "the nodes to meet")
        assert one.publish(groups[:2])
        drawn = _drawn(two, 2)
        life.close()
        assert not one.publish(groups[2:]), "they wait here while the node is away"
        with pytest.raises(shoal.SwarmError, match=r"no node at|broke"):
            one.status()

        taker.kill()
        assert not two.acknowledge(drawn[:1])
        assert two.unconfirmed == (drawn[0].id,)
        assert two.draw(1) == []
        stack.enter_context(RunningNode(folder, parts=INSTANT, tasks=GAMES))
        taker.start()
        wait_for(lambda: one.publish([]), 60.0, "what waited to be on the node's disk")
        wait_for(lambda: two.acknowledge([]), 60.0, "the node to confirm")
        assert {group.id for group in _drawn(two, 2)}.isdisjoint({group.id for group in drawn})
        # The lease of the second one outlived the node, and ends with its release.
        two.release(drawn[1:])
        assert _drawn(two, 1)[0].id == drawn[1].id


def test_a_program_that_is_killed_names_what_its_checkpoint_has(
    pair: tuple[shoal.Swarm, shoal.Swarm],
) -> None:
    one, two = pair
    assert one.publish([shoal.Group(question, ["1", "2"]) for question in one.tasks(2)])
    trained = _drawn(two, 2)
    # As the end of a process: nothing is acknowledged, the leases end with the connection.
    two._client.close()
    with shoal.connect(two.data_dir) as later:
        assert later.acknowledge([trained[0].id])
        assert [group.id for group in _drawn(later, 1)] == [trained[1].id]
        assert later.draw(1) == []
        assert later.acknowledge([trained[1].id])


@pytest.mark.slow
def test_a_node_that_was_started_ends_with_the_program(tmp_path: Path) -> None:
    flags = [*QUIET, "--tasks", GAMES]
    swarm = shoal.connect(tmp_path / "node", node_flags=flags)
    assert swarm._node is not None
    pid = swarm._node.pid
    swarm.close()
    assert not psutil.pid_exists(pid)
    script = (
        f"import shoal, os; s = shoal.connect({str(tmp_path / 'node')!r}, node_flags={flags!r});"
        "print(s._node.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    wait_for(
        lambda: not psutil.pid_exists(int(done.stdout)), 30.0, "the node to end with its program"
    )


@pytest.mark.parametrize(
    ("connecting", "says"),
    [
        (lambda folder: shoal.connect("shoal1xyz"), "cut or altered"),
        (
            lambda folder: shoal.connect(folder, node_flags=["--no-such"]),
            "did not start: .*no-such",
        ),
        (lambda folder: shoal.connect(folder, data_dir=folder), "folder once"),
        (
            lambda folder: shoal.connect(folder, tasks=["missing.toml"]),
            "did not start: .*missing.toml",
        ),
    ],
)
def test_what_cannot_be_joined_is_one_line(
    connecting: Callable[[Path], shoal.Swarm], says: str, tmp_path: Path
) -> None:
    with pytest.raises(shoal.SwarmError, match=says) as refused:
        connecting(tmp_path)
    assert "\n" not in str(refused.value)


def test_what_peers_would_refuse_is_not_published(alone: Path) -> None:
    with shoal.connect(alone) as swarm:
        before = swarm.status()["groups_published"]
        (question,) = swarm.tasks(1)
        good = shoal.Group(question, ["1", "2"])
        for bad, says in ((["1"], "group 1 has 1 completions"), (["1", "\0"], "refuse")):
            with pytest.raises(shoal.SwarmError, match=says):
                swarm.publish([good, shoal.Group(question, bad)])
        with pytest.raises(shoal.SwarmError, match="author"):
            swarm.publish([good], author="\n")
        assert swarm.status()["groups_published"] == before
        assert swarm.publish([good])
        assert swarm.publish([good]), "again it changes nothing"
        assert swarm.status()["groups_published"] == before + 1
        assert not swarm.publish([shoal.Group(question, ["3", "4"])], wait=False)
        assert swarm.publish([])
        assert swarm.status()["groups_published"] == before + 2


@pytest.mark.parametrize("run", [asyncio.run, lambda coroutine: trio.run(lambda: coroutine)])
def test_it_is_awaited_under_asyncio_and_under_trio(
    run: Callable[[object], None], alone: Path
) -> None:
    async def main() -> None:
        async with shoal.aconnect(alone) as swarm:
            before = (await swarm.status())["groups_published"]
            (question,) = await swarm.tasks(1)
            group = shoal.Group(question, ["1", "2"])
            assert await swarm.publish([group])
            assert len((await swarm.verify([group]))[0]) == 2
            assert await swarm.draw(1) == []
            assert await swarm.acknowledge([])
            await swarm.release([])
            assert (await swarm.status())["groups_published"] == before + 1

    threads = threading.active_count()
    run(main())
    assert threading.active_count() <= threads + 1, "anyio keeps one idle thread under Trio"


def test_importing_it_costs_nothing_and_never_torch() -> None:
    script = (
        "import sys; before = set(sys.modules); import shoal;"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "assert not new & {'shoal_policy', 'shoal_p2p', 'pydantic', 'trio', 'google'}, new;"
        "shoal.connect; shoal.aconnect; assert {'torch', 'libp2p'}.isdisjoint(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_page_s_example_does_what_it_says(
    pair: tuple[shoal.Swarm, shoal.Swarm], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first block of the page, as it stands, at a node of this test."""
    one, two = pair
    before = one.status()["groups_received"]
    assert two.publish([shoal.Group(question, ["1", "2"]) for question in two.tasks(2)])
    example = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert example is not None
    wait_for(
        lambda: one.status()["groups_received"] >= before + 2, 60.0, "the groups of the other node"
    )
    one._client.close()  # a node has one trainer; it takes the place back when it is used again
    connect = shoal.connect
    monkeypatch.setattr(shoal, "connect", lambda _line: connect(one.data_dir), raising=False)
    names: dict[str, object] = {}
    exec(example[1], names)
    assert len(names["drawn"]) == 2
    assert [len(rewards) for rewards in names["rewards"]] == [2, 2]
    assert two.acknowledge(_drawn(two, 4))
