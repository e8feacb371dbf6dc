"""The doctor's findings: pure, one case a rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from p2p.ipc.doctor import (
    BootstrapSeen,
    Facts,
    Finding,
    FullSeen,
    KeySeen,
    LearningSeen,
    OutsideSeen,
    State,
    TopicSeen,
    diagnose,
    learning_of,
)
from p2p.ipc.reach_checks import MappingSeen, ReachSeen
from shoal_wire.types import PeerId

BOOT = BootstrapSeen(address="/ip4/192.0.2.1/tcp/4001/p2p/X", latency_ms=20.0)
DEAD = BootstrapSeen(address="/ip4/192.0.2.2/tcp/4001/p2p/Y", latency_ms=None, error="refused")
BARRED = replace(DEAD, error="the peer has another swarm key", mends="--swarm-key FILE")
SEEN = OutsideSeen(
    peer_id=PeerId("P"),
    observed="/ip4/198.51.100.7/tcp/50000",
    dialled=True,
    reached=True,
    clock_ahead_ms=40,
)
HEALTHY = Facts(
    uptime_s=100.0,
    listens=("/ip4/198.51.100.7/tcp/4001",),
    transports=(("tcp over ip4", 4),),
    peers=4,
    relays=0,
    bootstraps=(BOOT,),
    outside=(SEEN,),
    topics=(TopicSeen(topic="/shoal/1/" + 64 * "a" + "/rollouts/0", peers=4, mesh=4),),
    mesh_low=4,
    clock_limit_ms=120_000,
    trainer="training",
    trainer_error="",
    learning=(LearningSeen(state=State.OK, says="nothing wrong", do=""),),
    groups_looked_at=9,
    one_network="",
    groups_received=9,
    buffered=(9, 4096),
    groups_too_old=0,
    disk_free_bytes=50 * 1024**3,
    files_open=50,
    files_limit=65_536,
)


def only(facts: Facts, check: str) -> Finding:
    (found,) = [finding for finding in diagnose(facts) if finding.check == check]
    return found


def test_healthy_node_has_nothing_to_do() -> None:
    findings = diagnose(HEALTHY)
    assert {f.state for f in findings} == {State.OK}
    assert not any(f.do for f in findings)
    looked_at = "peers bootstrap reachable observed transports clock mesh trainer learning buffer"
    assert [f.check for f in findings] == [*looked_at.split(), "disk", "files"]


def outside(**changes: Any) -> dict[str, Any]:
    return {"outside": (replace(SEEN, **changes),)}


@pytest.mark.parametrize(
    ("check", "state", "changes"),
    [
        ("peers", State.BAD, {"peers": 0}),
        ("peers", State.WARN, {"peers": 0, "uptime_s": 3.0}),
        ("peers", State.WARN, {"peers": 0, "bootstraps": ()}),
        ("bootstrap", State.BAD, {"bootstraps": (DEAD,), "peers": 0}),
        ("bootstrap", State.WARN, {"bootstraps": (DEAD,)}),
        ("bootstrap", State.WARN, {"bootstraps": (replace(BOOT, latency_ms=1500.0),)}),
        ("bootstrap", State.WARN, {"bootstraps": (BARRED,)}),
        ("swarm key", State.WARN, {"key": KeySeen(file="swarm.key", problem="has another key")}),
        ("reachable", State.WARN, {"outside": ()}),
        ("reachable", State.WARN, outside(dialled=False)),
        ("reachable", State.WARN, outside(reached=False)),
        ("transports", State.BAD, {"listens": ()}),
        ("clock", State.WARN, outside(clock_ahead_ms=-6_000)),
        ("clock", State.BAD, outside(clock_ahead_ms=3_600_000)),
        ("mesh", State.WARN, {"topics": (TopicSeen(topic="t", peers=0, mesh=0),)}),
        ("mesh", State.BAD, {"topics": (TopicSeen(topic="t", peers=3, mesh=0),)}),
        ("mesh", State.WARN, {"topics": (TopicSeen(topic="t", peers=9, mesh=3),)}),
        ("trainer", State.BAD, {"trainer": "broken"}),
        ("trainer", State.WARN, {"trainer": "waiting"}),
        ("buffer", State.WARN, {"groups_received": 0}),
        ("disk", State.BAD, {"disk_full": True}),
        ("trainer", State.BAD, {"trainer": "paused", "paused": "no space left on the disk"}),
        ("disk", State.WARN, {"disk_free_bytes": 1024**3}),
        ("disk", State.BAD, {"disk_free_bytes": 1024**2}),
        ("files", State.WARN, {"files_limit": 256}),
        ("files", State.BAD, {"files_limit": 4096, "files_open": 4090}),
    ],
)
def test_what_is_wrong_is_found_with_what_to_do(
    check: str, state: State, changes: dict[str, Any]
) -> None:
    found = only(replace(HEALTHY, **changes), check)
    assert found.state is state
    assert found.do
    assert "\n" not in found.says + found.do


def test_the_key_is_advised_only_where_it_may_be_the_cause() -> None:
    key = KeySeen(file="swarm.key")
    alone = replace(HEALTHY, bootstraps=(DEAD,), peers=0)
    assert "key" not in only(alone, "bootstrap").do
    assert "swarm.key" in only(replace(alone, key=key), "bootstrap").do
    assert "give the address" not in only(alone, "peers").do
    assert only(replace(HEALTHY, bootstraps=(BARRED,)), "bootstrap").do == BARRED.mends
    assert only(replace(HEALTHY, key=key), "swarm key").state is State.OK


def test_a_meeting_point_seeks_nobody_and_says_how_others_come() -> None:
    alone = replace(HEALTHY, peers=0, bootstraps=(), is_meeting_point=True)
    assert "shoal invite" in only(alone, "peers").do
    assert "--bootstrap" in only(replace(alone, is_meeting_point=False), "peers").do


def test_who_has_loopback_only_is_not_told_to_listen_elsewhere() -> None:
    facts = replace(HEALTHY, listens=("/ip4/127.0.0.1/tcp/4001",))
    advice = [f.do for f in diagnose(facts) if "loopback" in f.says]
    assert advice == ["--listen /ip4/0.0.0.0/tcp/4001, if they should"]
    (found,) = [f for f in diagnose(replace(facts, other_network=False)) if "loopback" in f.says]
    assert "this machine has no network but loopback" in found.says
    assert not found.do


def test_a_mesh_of_everybody_there_is_healthy() -> None:
    facts = replace(HEALTHY, topics=(TopicSeen(topic="t", peers=2, mesh=2),))
    assert only(facts, "mesh").state is State.OK


def test_the_clock_says_which_way() -> None:
    assert "behind" in only(replace(HEALTHY, **outside(clock_ahead_ms=9_000)), "clock").says
    assert "ahead of" in only(replace(HEALTHY, **outside(clock_ahead_ms=-9_000)), "clock").says


def test_one_liar_does_not_set_the_clock() -> None:
    liar = replace(SEEN, clock_ahead_ms=10**12)
    facts = replace(HEALTHY, outside=(SEEN, SEEN, liar))
    assert only(facts, "clock").state is State.OK


def test_address_translation_is_noticed() -> None:
    facts = replace(HEALTHY, listens=("/ip4/10.0.0.5/tcp/4001",))
    found = only(facts, "observed")
    assert "198.51.100.7" in found.says
    assert "not one of its own" in found.says


def test_a_relay_makes_up_for_a_closed_port() -> None:
    found = only(replace(HEALTHY, relays=1, **outside(reached=False)), "reachable")
    assert found.state is State.OK
    assert "relay" in found.says


def test_a_bootstrap_peer_has_no_trainer_and_no_buffer() -> None:
    facts = replace(HEALTHY, trainer=None, buffered=None, groups_received=None)
    assert {"trainer", "buffer"} & {f.check for f in diagnose(facts)} == set()


def test_a_trainer_that_ended_is_named_with_its_cause() -> None:
    why = "exit code 1: ValueError: odd; next start in 3 s"
    found = only(replace(HEALTHY, trainer="waiting", trainer_error=why), "trainer")
    assert found.says == f"waiting: {why}"
    assert only(replace(HEALTHY, trainer_error=why), "trainer").says == "training", "it is over"


SAID: dict[str, Any] = {
    "state": "bad",
    "says": "own answers earn nothing (and 1 more)",
    "rounds": 30,
    "drawn": 0,
    "findings": [
        {"check": "nothing-earned", "state": "bad", "since": 30, "says": "own answers earn nothing",
         "do": "a stronger model", "example": "asked “2+2?”, expected “4”"},
        {"check": "all-cut", "state": "warn", "since": 10, "says": "all are cut",
         "do": "--max-new-tokens", "example": ""},
    ],
}  # fmt: skip


def test_the_doctor_says_what_the_trainer_says_of_its_learning() -> None:
    facts = replace(HEALTHY, learning=learning_of(SAID))
    bad, warn = [one for one in diagnose(facts) if one.check == "learning"]
    assert (bad.state, bad.do) == (State.BAD, "a stronger model")
    assert bad.says == "own answers earn nothing, since round 30; asked “2+2?”, expected “4”"
    assert (warn.state, warn.says) == (State.WARN, "all are cut, since round 10")
    (well,) = learning_of({**SAID, "findings": [], "says": "nothing wrong"})
    assert (well.state, well.says, well.do) == (State.OK, "nothing wrong", "")


@pytest.mark.parametrize(
    "said", [None, {}, [], "x", {"findings": 3}, {**SAID, "findings": [{"state": "worse"}]}]
)
def test_a_trainer_of_another_version_has_no_finding(said: object) -> None:
    assert learning_of(said) == ()


def test_one_network_that_gives_too_much_is_told_with_what_to_do() -> None:
    found = only(replace(HEALTHY, one_network="most came by one"), "sources")
    assert (found.state, found.says) == (State.WARN, "most came by one")
    assert "shoal debug block" in found.do


def test_groups_that_are_too_old_for_the_trainer_are_learning_lost() -> None:
    lost = {"groups_looked_at": 0, "groups_too_old": 9, "groups_received": 10}
    _, found = [f for f in diagnose(replace(HEALTHY, **lost)) if f.check == "learning"]
    assert found.state is State.WARN
    assert "9 of 10 became too old" in found.says
    for well in ({"groups_looked_at": 3}, {"groups_looked_at": None}, {"groups_too_old": 3}):
        assert only(replace(HEALTHY, **{**lost, **well}), "learning").state is State.OK


def test_a_full_house_is_told_with_what_to_raise() -> None:
    full = FullSeen(slots=8, let_go=12, refused=3, ago_s=4.0)
    found = only(replace(HEALTHY, full=full), "full")
    assert found.state is State.WARN
    assert "12 peers were let go" in found.says
    assert "--max-connections" in found.do


@pytest.mark.parametrize(("peers", "state"), [(4, State.OK), (0, State.WARN)])
def test_a_full_bootstrap_is_no_dead_one(peers: int, state: State) -> None:
    full = replace(DEAD, full_s=42.0)
    found = only(replace(HEALTHY, peers=peers, bootstraps=(full,)), "bootstrap")
    assert found.state is state
    assert "is full" in found.says
    assert "42 s" in found.says
    assert bool(found.do) is (peers == 0)


HIDDEN = replace(HEALTHY, relays=1, **outside(reached=False))


@pytest.mark.parametrize(
    ("state", "says", "do", "serious"),
    [
        ("reached", "peers get in by it", "", State.OK),
        ("untried", "no peer has tried it yet", "", State.OK),
        ("shut", "peers do not get in", "another router above it", State.WARN),
        (
            "none",
            "no router forwards a port when asked (no device)",
            "turn NAT-PMP or UPnP on",
            State.OK,
        ),
    ],
)
def test_a_port_of_the_router(state: str, says: str, do: str, serious: State) -> None:
    mapping = MappingSeen(state=state, place="/ip4/198.51.100.7/tcp/4001", error="no device")
    found = only(replace(HIDDEN, reach=ReachSeen(mapping=mapping)), "port mapping")
    assert (found.state, says in found.says, do in found.do) == (serious, True, True), found
    assert bool(do) == bool(found.do)


def test_a_port_that_nobody_needs_is_no_advice() -> None:
    mapping = MappingSeen(state="none", place="", error="no device")
    assert not only(replace(HEALTHY, reach=ReachSeen(mapping=mapping)), "port mapping").do


def test_how_many_of_those_met_through_a_relay_are_direct() -> None:
    reach = ReachSeen(punched=(2, 3), relayed=1, many_doors=True)
    found = only(replace(HIDDEN, reach=reach), "direct")
    assert "2 of 3 peers" in found.says
    assert "1 go through one" in found.says
    assert "shows each place another port" in found.says
    assert "forwarded port" in found.do
    assert not only(replace(HIDDEN, reach=ReachSeen(punched=(3, 3))), "direct").do
    assert not [f for f in diagnose(HIDDEN) if f.check == "direct"]


def test_what_the_user_announces_is_named() -> None:
    reach = ReachSeen(announced=("/dns4/host.example/tcp/4001",))
    assert "host.example" in only(replace(HEALTHY, reach=reach), "reachable").says
