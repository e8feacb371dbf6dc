"""Nodes behind address translation, in network namespaces: they meet through a relay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient
from shoal_tasks.families import PRESETS, TRAIN_SEED_MIN, coordinates
from shoal_wire.types import RolloutGroup
from tests.support import factories as make
from tests.support import nat
from tests.support.processes import ShoalProcess, Stage, open_stage, wait_for

GCD = next(spec for spec in PRESETS["easy"] if spec.generator == "gcd")
PATIENCE_S = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def internet() -> Iterator[nat.Internet]:
    if not nat.available():
        pytest.skip("needs root, iproute2 and nftables")
    with nat.open_internet() as net:
        yield net


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with open_stage(tmp_path) as opened:
        yield opened


def bootstrap(stage: Stage, net: nat.Internet, *flags: str) -> ShoalProcess:
    listen = ("--listen", f"/ip4/{nat.PUBLIC}/tcp/4001")
    return stage.process("bootstrap", "boot", *listen, *flags, prefix=net.public).start()


def hidden(stage: Stage, net: nat.Internet, name: str, boot: ShoalProcess, *flags: str) -> Any:
    common = ("--no-trainer", "--no-mdns", "--bootstrap", boot.address)
    return stage.process("node", name, *common, *flags, prefix=net.behind_nat()).start()


def group(number: int) -> RolloutGroup:
    at = coordinates(GCD, TRAIN_SEED_MIN + number)
    question = make.real_worker().questions([at])[0]
    return make.group(of=make.task(number, question=question))


def publish(node: ShoalProcess, number: int) -> None:
    path = node.data_dir / SOCKET_NAME
    client = NodeClient(path, role=m.Role.TRAINER, timeout_seconds=20.0)
    try:
        client.call(make.publish([group(number)], key=b"key %d" % number), m.PublishReply)
    finally:
        client.close()


def address_of(node: ShoalProcess, other: ShoalProcess) -> str | None:
    rows = (node.view("peers") or {"peers": []})["peers"]
    return next((row["address"] for row in rows if row["peer_id"] == other.peer_id), None)


def finding(node: ShoalProcess, check: str) -> dict[str, Any]:
    rows = (node.view("doctor") or {"findings": []})["findings"]
    return next(row for row in rows if row["check"] == check)


def test_two_nodes_behind_routers_exchange_batches_through_a_relay(
    internet: nat.Internet, stage: Stage
) -> None:
    boot = bootstrap(stage, internet, "--relay")
    one = hidden(stage, internet, "one", boot)
    two = hidden(stage, internet, "two", boot)
    for node in (one, two):
        node.wait_status(lambda s: s["relays"] == [boot.peer_id], "a place at the relay")
    address = wait_for(lambda: address_of(two, one), PATIENCE_S, "the two to meet")
    assert address.endswith("/p2p-circuit")
    assert address_of(one, two) is not None
    assert not address_of(one, boot).endswith("/p2p-circuit")  # type: ignore[union-attr]
    for number, (sender, receiver) in enumerate([(one, two), (two, one)]):
        sender.wait_status(lambda s: all(s["mesh"].values()), "a mesh")
        publish(sender, number)
        receiver.wait_status(lambda s: s["groups_received"] >= 1, "the other's batch")
    relay = boot.wait_status(lambda s: s["relay"]["circuits"] >= 1, "a circuit")["relay"]
    assert relay["reservations"] == 2
    assert relay["bytes"] > 0
    assert two.view("ping", peer=one.peer_id)["ms"] > 0
    found = finding(one, "reachable")
    assert (found["state"], "1 relay" in found["says"]) == ("ok", True), found
    assert "not one of its own" in finding(one, "observed")["says"]


def test_without_a_relay_they_meet_by_the_bootstrap_only_and_are_told_so(
    internet: nat.Internet, stage: Stage
) -> None:
    boot = bootstrap(stage, internet)
    one = hidden(stage, internet, "one", boot)
    two = hidden(stage, internet, "two", boot)
    for node in (one, two):
        node.wait_status(lambda s: s["peers"] >= 1 and all(s["mesh"].values()), "the bootstrap")
    publish(one, 7)
    two.wait_status(lambda s: s["groups_received"] >= 1, "gossip through the bootstrap")
    assert address_of(two, one) is None
    found = finding(one, "reachable")
    assert found["state"] == "warn"
    assert "docs/reach.md" in found["do"]
