"""Nodes behind address translation, in network namespaces: they meet through a relay."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient
from tests.support import factories as make
from tests.support import nat
from tests.support.processes import ProcessManager, ShoalProcess, wait_for

PATIENCE_S = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def internet() -> Iterator[nat.Internet]:
    if not nat.available():
        pytest.skip("needs root, iproute2 and nftables")
    with nat.open_internet() as net:
        yield net


def bootstrap(stage: ProcessManager, net: nat.Internet, *flags: str) -> ShoalProcess:
    listen = ("--listen", f"/ip4/{nat.PUBLIC}/tcp/4001")
    return stage.process("bootstrap", "boot", *listen, *flags, prefix=net.public).start()


def hidden(
    stage: ProcessManager,
    net: nat.Internet,
    name: str,
    boot: ShoalProcess,
    at: nat.Prefix | None = None,
) -> ShoalProcess:
    common = ("--role=observe", "--no-mdns", "--bootstrap", boot.address)
    return stage.process("node", name, *common, prefix=at or net.behind_nat()).start()


def publish(node: ShoalProcess, number: int) -> None:
    (question,) = make.real_worker().questions([make.coordinates_at(number)])
    group = make.group(of=make.task(number, question=question))
    path = node.data_dir / SOCKET_NAME
    with closing(NodeClient(path, role=m.Role.TRAINER, timeout_seconds=20.0)) as client:
        client.call(make.publish([group], key=b"key %d" % number), m.PublishReply)


def exchange(one: ShoalProcess, two: ShoalProcess) -> None:
    for number, (sender, receiver) in enumerate([(one, two), (two, one)]):
        sender.wait_status(lambda s: all(s["mesh"].values()), "a mesh")
        publish(sender, number)
        receiver.wait_status(lambda s: s["groups_received"] >= 1, "the other's batch")


def address_of(node: ShoalProcess, other: ShoalProcess) -> str | None:
    rows = (node.view("peers") or {"peers": []})["peers"]
    return next((row["address"] for row in rows if row["peer_id"] == other.peer_id), None)


def finding(node: ShoalProcess, check: str) -> dict[str, Any]:
    rows = (node.view("doctor") or {"findings": []})["findings"]
    return next(row for row in rows if row["check"] == check)


def test_two_nodes_behind_routers_exchange_batches_through_a_relay(
    internet: nat.Internet, stage: ProcessManager
) -> None:
    boot = bootstrap(stage, internet, "--relay")
    routers = [internet.behind_nat(nat.Router.SYMMETRIC) for _ in range(2)]
    one, two = (hidden(stage, internet, n, boot, at) for n, at in zip("ab", routers, strict=True))
    for node in (one, two):
        node.wait_status(lambda s: s["relays"] == [boot.peer_id], "a place at the relay")
    address = wait_for(lambda: address_of(two, one), PATIENCE_S, "the two to meet")
    assert address.endswith("/p2p-circuit")
    assert address_of(one, two) is not None
    assert not address_of(one, boot).endswith("/p2p-circuit")  # type: ignore[union-attr]
    exchange(one, two)
    relay = boot.wait_status(lambda s: s["relay"]["circuits"] >= 1, "a circuit")["relay"]
    assert relay["reservations"] == 2
    assert relay["bytes"] > 0
    found = finding(one, "reachable")
    assert (found["state"], "1 relay" in found["message"]) == ("ok", True), found
    wait_for(
        lambda: any("stays behind its relay" in node.log for node in (one, two)),
        PATIENCE_S,
        "one to say so",
    )
    assert not (is_direct(one, two) or is_direct(two, one))
    assert "not one of its own" in finding(one, "observed")["message"]


@pytest.mark.parametrize(
    ("refuses", "delay_s"), [(False, 0.0), (True, 0.06)], ids=["silent", "refusing, far"]
)
def test_two_nodes_behind_cone_routers_become_direct(
    internet: nat.Internet, stage: ProcessManager, refuses: bool, delay_s: float
) -> None:
    """A router that refuses must be knocked at while the other's knock is on its way."""
    boot = bootstrap(stage, internet, "--relay")
    routers = [internet.behind_nat(refuses=refuses, delay_s=delay_s) for _ in range(2)]
    one, two = (hidden(stage, internet, n, boot, at) for n, at in zip("ab", routers, strict=True))
    wait_for(lambda: address_of(two, one), PATIENCE_S, "the two to meet")
    for node, other in ((one, two), (two, one)):
        wait_for(
            lambda node=node, other=other: is_direct(node, other),
            PATIENCE_S,
            "a direct connection",
        )
    boot.wait_status(lambda s: s["relay"]["circuits"] == 0, "the circuit to end")
    assert any("is reached directly" in node.log for node in (one, two))
    assert any(finding(node, "direct")["message"].startswith("1 of 1") for node in (one, two))
    exchange(one, two)


@pytest.mark.skipif(shutil.which("miniupnpd") is None, reason="needs Debian's miniupnpd")
def test_a_router_that_forwards_ports_lets_others_in(
    internet: nat.Internet, stage: ProcessManager
) -> None:
    boot = bootstrap(stage, internet)
    host, outside = internet.behind_forwarding()
    one = hidden(stage, internet, "one", boot, host)
    port = one.address.split("/")[4]
    place = f"/ip4/{outside}/tcp/{port}"
    wait_for(lambda: place in announced(one), PATIENCE_S, "the router's port to be announced")
    assert f"dport {port}" in internet.forwards()
    two = hidden(stage, internet, "two", boot)
    wait_for(lambda: address_of(two, one), PATIENCE_S, "the two to meet")
    assert address_of(two, one) == place
    assert "a port" not in finding(one, "reachable")["remedy"]
    assert "peers can connect through it" in finding(one, "port mapping")["message"]
    one.stop()
    assert f"dport {port}" not in internet.forwards()


def announced(node: ShoalProcess) -> list[str]:
    """Return the transport addresses that a node tells others."""
    view = node.view("status") or {"addresses": []}
    return [address.rpartition("/p2p/")[0] for address in view["addresses"]]


def is_direct(node: ShoalProcess, other: ShoalProcess) -> bool:
    address = address_of(node, other)
    return address is not None and not address.endswith("/p2p-circuit")


def test_without_a_relay_they_connect_to_the_bootstrap_only_and_log_it(
    internet: nat.Internet, stage: ProcessManager
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
    assert "docs/reach.md" in found["remedy"]
