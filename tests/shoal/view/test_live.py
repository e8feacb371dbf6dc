"""One peer as it is shown: what it showed stays while it is away, whatever stands there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.view.live import LivePeer
from tests.shoal.view.node_answers import FRIEND, LEDGER, ME, PEERS, ROLLOUTS, STATUS
from tests.support.answering_node import answering_node
from tests.support.processes import wait_for

ANSWERS = {"status": STATUS, "peers": PEERS, "ledger": LEDGER, "rollouts": ROLLOUTS}


class Odd(dict[str, Any]):
    """Answers of another version, which no version can read."""

    num_requests = 0

    def __contains__(self, view: object) -> bool:
        self.num_requests += 1
        return True

    def __getitem__(self, view: str) -> Any:
        return ["not an object"]


def until(peer: LivePeer, *, state: str) -> Any:
    """Ask until its state is that."""

    def found() -> Any:
        peer.poll()
        return (
            peer.shown if (peer.shown["health"]["state"] == "down") is (state == "down") else None
        )

    return wait_for(found, 30.0, f"a peer that is {state}")


def test_what_it_showed_stays_while_it_is_away(tmp_path: Path) -> None:
    peer = LivePeer("node", tmp_path, program="shoal")
    with answering_node(tmp_path, ANSWERS):
        up = until(peer, state="up")
        assert up["peer_id"] == ME and FRIEND in [one["peer_id"] for one in up["publishers"]]
    kept = ("peer_id", "learning", "publishers", "rollouts")
    down = until(peer, state="down")
    assert [down[key] for key in kept] == [up[key] for key in kept]
    assert {**down["benefit"], "message": ""} == {**up["benefit"], "message": ""}
    assert "In the 1 h 0 min until 2027-" in down["benefit"]["message"]
    assert "shoal status --last" in down["next_steps"][0]["command"]
    odd = Odd()
    with answering_node(tmp_path, odd):
        wait_for(lambda: peer.poll() or odd.num_requests, 30.0, "a question")
        assert peer.shown["health"]["state"] == "down"
        assert [peer.shown[key] for key in kept] == [up[key] for key in kept]
    with answering_node(tmp_path, {**ANSWERS, "rollouts": {"rollouts": []}}):
        again = until(peer, state="up")
        assert again["rollouts"] == [] and again["publishers"] != []


@pytest.mark.parametrize(
    ("state", "is_ready"),
    [("training", True), ("finished", True), ("disabled", True), ("loading", False),
     ("broken", False), ("paused", False), ("", False), (None, True)],
)  # fmt: skip
def test_ready_is_a_trainer_at_work(tmp_path: Path, state: str | None, is_ready: bool) -> None:
    """A bootstrap is ready without one; a peer that is down is neither well nor ready."""
    peer = LivePeer("node", tmp_path, program="shoal")
    assert peer.health() == (False, "no answer yet")
    status = {**STATUS, "trainer": {"state": state}}
    if state is None:
        status = {**STATUS, "trainer": None, "role": "bootstrap"}
    with answering_node(tmp_path, {"status": status}):
        until(peer, state="up")
        assert peer.health()[0]
        assert peer.health(at_work=True)[0] is is_ready
    until(peer, state="down")
    assert peer.health(at_work=True) == (False, "no node answers here (for 0.0 s)")
