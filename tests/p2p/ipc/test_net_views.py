"""`shoal doctor` and orders about a peer against two whole nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from shoal_p2p.reputation.peer_manager import REPUTATION
from shoal_p2p.state_file import STATE_FILE, read_state
from tests.p2p.ipc.conftest import Debug
from tests.support.nodes import fresh_identity, until
from tests.support.running_node import RunningNode


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningNode, RunningNode]]:
    root = tmp_path_factory.mktemp("pair")
    with (
        RunningNode(root / "one") as one,
        RunningNode(root / "two", bootstrap=[one.address]) as two,
    ):
        two.call(until, lambda: any(two.node.member.gossip.mesh().values()))
        yield one, two


def test_the_doctor_finds_two_nodes_well(
    pair: tuple[RunningNode, RunningNode], debug: Debug
) -> None:
    one, two = pair
    code, answer = debug.json(two, "doctor")
    found = {finding["check"]: finding for finding in answer["findings"]}
    assert code == 0
    for check in ("peers", "bootstrap", "reachable", "observed", "clock", "mesh", "trainer"):
        assert found[check]["state"] == "ok", found[check]
    assert one.address in found["bootstrap"]["message"]
    assert "127.0.0.1" in found["observed"]["message"]
    assert answer["facts"]["reachability"][0]["reached"]
    text = debug.text(two, "doctor")
    assert "listens on /ip4/127.0.0.1/tcp/" in text
    assert "0 errors" in text


def test_who_asks_the_doctor_all_the_time_spares_the_peers(
    pair: tuple[RunningNode, RunningNode],
) -> None:
    _, two = pair
    doctor = two.node.views.by_name()["doctor"]
    views: Any = doctor.__self__  # type: ignore[attr-defined]

    def time_of_view(**options: float) -> float:
        two.call(doctor, options)
        return float(views._report.at)

    first = time_of_view(within_s=60)
    assert time_of_view(within_s=60) == first
    second = time_of_view()
    assert second > first
    # A node that was isolated asks again, whatever it knew.
    views._report = replace(views._report, is_isolated=True)
    assert time_of_view(within_s=60) > second


def test_the_doctor_finds_the_end_of_the_disk_and_says_so_by_its_exit_code(
    pair: tuple[RunningNode, RunningNode],
    debug: Debug,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shoal_p2p.ipc.checks.machine.DISK_BAD_BYTES", 1 << 62)
    monkeypatch.setattr("shoal_p2p.ipc.checks.machine.DISK_WARN_BYTES", 1 << 62)
    code, answer = debug.json(pair[1], "doctor")
    assert (code, answer["state"]) == (1, "bad")
    code, text, _ = debug.run(pair[1], "doctor")
    assert code == 1
    assert "free some space" in text


def test_orders_about_a_peer_take_the_end_that_tables_print(
    pair: tuple[RunningNode, RunningNode], debug: Debug
) -> None:
    one, two = pair
    peer, stranger = one.node.member.peer_id, fresh_identity().peer_id
    for order, action, is_blocked, is_protected in (
        (["block"], "block", True, False),
        (["protect"], "protect", False, True),
        (["protect", "--off"], "unprotect", False, False),
        (["block"], "block", True, False),
        (["unblock"], "unblock", False, False),
    ):
        for name, peer_id in ((f"…{peer[-10:]}", peer), (stranger, stranger)):
            code, answer = debug.json(two, *order, name)
            row = answer["peer"]
            found = code, answer["action"], row["peer_id"], row["blocked"]
            assert found == (0, action, peer_id, is_blocked)
        assert row["protected"] is is_protected, "a bootstrap always is"
        kept = json.loads(read_state(two.data_dir / STATE_FILE, REPUTATION) or b"")
        assert kept["blocked"] == sorted([peer, stranger]) * is_blocked
    code, _, output = debug.run(two, "block", "zzzz")
    assert code == 1
    assert output.count("\n") == 1 and peer[-10:] in output
