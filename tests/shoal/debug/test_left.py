"""Page, watch and `debug ledger --last` say what was so when a node stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.__main__ import main
from shoal.layout import local_time
from shoal_p2p.peers.outside import wall_ms
from shoal_p2p.rollouts.ledger_file import LEDGER
from shoal_p2p.state_file import STATE_FILE, write_state
from tests.shoal.view.node_answers import FRIEND, outcome
from tests.support.peers import INSTANT
from tests.support.running_node import RunningNode
from tests.support.schemas import check

ROUNDS = 833


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A killed node that trained on 833 external groups, and the time of its last training."""
    folder = tmp_path_factory.mktemp("stopped") / "node"
    with RunningNode(folder, parts=INSTANT) as node:

        async def learn() -> int:
            for number in range(1, ROUNDS + 1):
                outcomes = [outcome(FRIEND, 1.0), outcome("", 3.0)]
                at_ms = wall_ms()
                node.node.learning.take(number, outcomes, now_ms=at_ms)
            return at_ms

        at_ms = node.call(learn)
    lines = [{"event": "round", "round": n, "reward_local": 0.25} for n in range(1, ROUNDS + 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return folder, at_ms


def test_watch_says_what_was_so_and_when(
    stopped: tuple[Path, int], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, at_ms = stopped
    assert main(["watch", "--data-dir", str(folder), "--json"]) == 3
    shown = json.loads(capsys.readouterr().out)
    check("watch", shown)
    assert f"until {local_time(at_ms)}, 25% of the" in shown["benefit"]["message"]
    assert shown["benefit"]["last_hour"]["groups_external"] == ROUNDS
    assert (shown["learning"]["round"], shown["learning"]["reward_local"]) == (ROUNDS, 0.25)
    assert {(one["is_local"], one["groups_trained"]) for one in shown["publishers"]} == {
        (True, ROUNDS),
        (False, ROUNDS),
    }
    assert abs(shown["health"]["down_since_unix"] - at_ms / 1000) < 60
    (ledger,) = (one["command"] for one in shown["next_steps"])
    assert " debug ledger --last --data-dir " in ledger, "and none for the status that it left not"
    assert main(["watch", "--data-dir", str(folder)]) == 3
    text = " ".join(capsys.readouterr().out.split())
    assert "yet" not in text, text
    assert "25% of the training signal" in text


def test_its_ledger_is_shown_with_the_time(
    stopped: tuple[Path, int], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, at_ms = stopped
    command = ["debug", "ledger", "--last", "--data-dir", str(folder)]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"as it was when the node trained last, {local_time(at_ms)}")
    assert text.count(str(ROUNDS)) >= 3
    assert main([*command, "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    check("debug ledger", view)
    assert (view["at_ms"], view["round"]) == (at_ms, ROUNDS)
    assert main(["debug", "ledger", "--data-dir", str(folder)]) == 3
    assert "no node is running" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, b"", b"[]", b"\xff", b'{"form": 1}', b"[" * 100_000])
def test_where_there_is_none_that_is_one_line(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        write_state(tmp_path / STATE_FILE, LEDGER, content)
    assert main(["debug", "ledger", "--last", "--data-dir", str(tmp_path)]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "no node has left a ledger that can be read" in line
