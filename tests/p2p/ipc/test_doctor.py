"""The doctor's findings: pure, one case a rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal_ipc.answers.doctor import (
    BootstrapSeen,
    Facts,
    Finding,
    FullSeen,
    MappingSeen,
    OutsideSeen,
    ReachSeen,
    State,
)
from shoal_ipc.answers.form import read
from shoal_ipc.answers.learning import Learning
from shoal_ipc.answers.node import BufferTotals, Status, TrainerView
from shoal_ipc.answers.peer import DiskView, KeyFile
from shoal_p2p.ipc.checks.seen import Seen
from shoal_p2p.ipc.doctor import diagnose

BOOT = BootstrapSeen(address="/ip4/192.0.2.1/tcp/4001/p2p/X", latency_ms=20.0)
DEAD = BootstrapSeen(address="/ip4/192.0.2.2/tcp/4001/p2p/Y", latency_ms=None, error="refused")
BARRED = replace(DEAD, error="the peer has another swarm key", mends="--swarm-key FILE")
SEEN = OutsideSeen(
    peer_id="P",
    observed="/ip4/198.51.100.7/tcp/50000",
    dialled=True,
    reached=True,
    clock_ahead_ms=40,
)
TOPIC = "/shoal/1/" + 64 * "a" + "/rollouts/0"
WELL = Learning(state="ok", says="nothing wrong", drawn=9)
TRAINER = TrainerView(state="training", learning=WELL)
BUFFER = BufferTotals(groups=9, capacity_groups=4096)
HEALTHY = Seen(
    status=Status(
        uptime_s=100.0,
        peers=4,
        mesh={TOPIC: 4},
        disk=DiskView(free_bytes=50 * 1024**3),
        trainer=TRAINER,
        groups_received=9,
        buffer=BUFFER,
    ),
    facts=Facts(
        listens=("/ip4/198.51.100.7/tcp/4001",),
        bootstraps=(BOOT,),
        outside=(SEEN,),
        subscribed={TOPIC: 4},
        mesh_low=4,
        clock_limit_ms=120_000,
        wants_others=True,
        files_open=50,
        files_limit=65_536,
    ),
)


def changed(of: Seen = HEALTHY, **changes: Any) -> Seen:
    """What was seen with other fields of the status, or of the facts."""
    in_status = {name: value for name, value in changes.items() if hasattr(of.status, name)}
    in_facts = {name: value for name, value in changes.items() if name not in in_status}
    return Seen(
        status=replace(of.status, **in_status),
        facts=replace(of.facts, **in_facts),
    )


def only(seen: Seen, check: str) -> Finding:
    (found,) = [finding for finding in diagnose(seen) if finding.check == check]
    return found


def test_healthy_node_has_nothing_to_do() -> None:
    findings = diagnose(HEALTHY)
    assert {f.state for f in findings} == {"ok"}
    assert not any(f.do for f in findings)
    looked_at = "peers bootstrap reachable observed transports clock mesh trainer learning buffer"
    assert [f.check for f in findings] == [*looked_at.split(), "disk", "files"]


def outside(**changes: Any) -> dict[str, Any]:
    return {"outside": (replace(SEEN, **changes),)}


@pytest.mark.parametrize(
    ("check", "state", "changes"),
    [
        ("peers", "bad", {"peers": 0}),
        ("peers", "warn", {"peers": 0, "uptime_s": 3.0}),
        ("peers", "warn", {"peers": 0, "bootstraps": ()}),
        ("bootstrap", "bad", {"bootstraps": (DEAD,), "peers": 0}),
        ("bootstrap", "warn", {"bootstraps": (DEAD,)}),
        ("bootstrap", "warn", {"bootstraps": (replace(BOOT, latency_ms=1500.0),)}),
        ("bootstrap", "warn", {"bootstraps": (BARRED,)}),
        ("swarm key", "warn", {"key": KeyFile(file="swarm.key", problem="has another key")}),
        ("reachable", "warn", {"outside": ()}),
        ("reachable", "warn", outside(dialled=False)),
        ("reachable", "warn", outside(reached=False)),
        ("transports", "bad", {"listens": ()}),
        ("clock", "warn", outside(clock_ahead_ms=-6_000)),
        ("clock", "bad", outside(clock_ahead_ms=3_600_000)),
        ("mesh", "warn", {"subscribed": {"t": 0}}),
        ("mesh", "bad", {"subscribed": {"t": 3}}),
        ("mesh", "warn", {"subscribed": {"t": 9}, "mesh": {"t": 3}}),
        ("trainer", "bad", {"trainer": TrainerView(state="broken")}),
        ("trainer", "warn", {"trainer": TrainerView(state="waiting")}),
        ("buffer", "warn", {"groups_received": 0}),
        ("disk", "bad", {"disk": DiskView(full=True, free_bytes=50 * 1024**3)}),
        (
            "trainer",
            "bad",
            {"trainer": TrainerView(state="paused", paused="no space left on the disk")},
        ),
        ("disk", "warn", {"disk": DiskView(free_bytes=1024**3)}),
        ("disk", "bad", {"disk": DiskView(free_bytes=1024**2)}),
        ("files", "warn", {"files_limit": 256}),
        ("files", "bad", {"files_limit": 4096, "files_open": 4090}),
    ],
)
def test_what_is_wrong_is_found_with_what_to_do(
    check: str, state: State, changes: dict[str, Any]
) -> None:
    found = only(changed(**changes), check)
    assert found.state == state
    assert found.do
    assert "\n" not in found.says + found.do


def test_the_key_is_advised_only_where_it_may_be_the_cause() -> None:
    key = KeyFile(file="swarm.key")
    alone = changed(bootstraps=(DEAD,), peers=0)
    assert "key" not in only(alone, "bootstrap").do
    assert "swarm.key" in only(changed(alone, key=key), "bootstrap").do
    assert "give the address" not in only(alone, "peers").do
    assert only(changed(bootstraps=(BARRED,)), "bootstrap").do == BARRED.mends
    assert only(changed(key=key), "swarm key").state == "ok"


def test_a_meeting_point_seeks_nobody_and_says_how_others_come() -> None:
    alone = changed(peers=0, bootstraps=(), role="bootstrap")
    assert "shoal invite" in only(alone, "peers").do
    assert "--bootstrap" in only(changed(alone, role=None), "peers").do


def test_who_has_loopback_only_is_not_told_to_listen_elsewhere() -> None:
    facts = changed(listens=("/ip4/127.0.0.1/tcp/4001",))
    advice = [f.do for f in diagnose(facts) if "loopback" in f.says]
    assert advice == ["--listen /ip4/0.0.0.0/tcp/4001, if they should"]
    (found,) = [f for f in diagnose(changed(facts, other_network=False)) if "loopback" in f.says]
    assert "this machine has no network but loopback" in found.says
    assert not found.do


def test_a_mesh_of_everybody_there_is_healthy() -> None:
    facts = changed(subscribed={"t": 2}, mesh={"t": 2})
    assert only(facts, "mesh").state == "ok"


def test_the_clock_says_which_way() -> None:
    assert "behind" in only(changed(**outside(clock_ahead_ms=9_000)), "clock").says
    assert "ahead of" in only(changed(**outside(clock_ahead_ms=-9_000)), "clock").says


def test_one_liar_does_not_set_the_clock() -> None:
    liar = replace(SEEN, clock_ahead_ms=10**12)
    facts = changed(outside=(SEEN, SEEN, liar))
    assert only(facts, "clock").state == "ok"


def test_address_translation_is_noticed() -> None:
    facts = changed(listens=("/ip4/10.0.0.5/tcp/4001",))
    found = only(facts, "observed")
    assert "198.51.100.7" in found.says
    assert "not one of its own" in found.says


def test_a_relay_makes_up_for_a_closed_port() -> None:
    found = only(changed(relays=("R",), **outside(reached=False)), "reachable")
    assert found.state == "ok"
    assert "relay" in found.says


def test_a_bootstrap_peer_has_no_trainer_and_no_buffer() -> None:
    facts = changed(trainer=None, buffer=None, groups_received=None)
    assert {"trainer", "buffer"} & {f.check for f in diagnose(facts)} == set()


def test_a_trainer_that_ended_is_named_with_its_cause() -> None:
    why = "exit code 1: ValueError: odd; next start in 3 s"
    ended = changed(trainer=TrainerView(state="waiting"), trainer_error=why)
    assert only(ended, "trainer").says == f"waiting: {why}"
    assert only(changed(trainer_error=why), "trainer").says == "training", "it is over"


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


def told(said: Any) -> Seen:
    return changed(trainer=read(TrainerView, {"state": "training", "learning": said}))


def test_the_doctor_says_what_the_trainer_says_of_its_learning() -> None:
    bad, warn = [one for one in diagnose(told(SAID)) if one.check == "learning"]
    assert (bad.state, bad.do) == ("bad", "a stronger model")
    assert bad.says == "own answers earn nothing, since round 30; asked “2+2?”, expected “4”"
    assert (warn.state, warn.says) == ("warn", "all are cut, since round 10")
    well = only(told({**SAID, "state": "ok", "findings": [], "says": "nothing wrong"}), "learning")
    assert (well.state, well.says, well.do) == ("ok", "nothing wrong", "")


@pytest.mark.parametrize("said", [None, {}, [], "x", {"findings": 3}, {"state": "worse"}])
def test_a_trainer_of_another_version_has_no_finding(said: object) -> None:
    assert not [one for one in diagnose(told(said)) if one.check == "learning"]


def test_one_network_that_gives_too_much_is_told_with_what_to_do() -> None:
    found = only(changed(one_network="most came by one"), "sources")
    assert (found.state, found.says) == ("warn", "most came by one")
    assert "shoal debug block" in found.do


def test_groups_that_are_too_old_for_the_trainer_are_learning_lost() -> None:
    def lost(drawn: int = 0, too_old: int = 9, state: Any = "ok") -> Seen:
        learning = replace(WELL, drawn=drawn, state=state)
        return changed(
            trainer=replace(TRAINER, learning=learning),
            buffer=replace(BUFFER, dropped={"expired": too_old - 1, "too_old": 1}),
            groups_received=10,
        )

    _, found = [one for one in diagnose(lost()) if one.check == "learning"]
    assert found.state == "warn"
    assert "9 of 10 became too old" in found.says
    for well in (lost(drawn=3), lost(state="early"), lost(too_old=3)):
        assert only(well, "learning").state == "ok"


def test_a_full_house_is_told_with_what_to_raise() -> None:
    full = FullSeen(slots=8, let_go=12, refused=3, ago_s=4.0)
    found = only(changed(full=full), "full")
    assert found.state == "warn"
    assert "12 peers were let go" in found.says
    assert "--max-connections" in found.do


@pytest.mark.parametrize(("peers", "state"), [(4, "ok"), (0, "warn")])
def test_a_full_bootstrap_is_no_dead_one(peers: int, state: State) -> None:
    full = replace(DEAD, full_s=42.0)
    found = only(changed(peers=peers, bootstraps=(full,)), "bootstrap")
    assert found.state == state
    assert "is full" in found.says
    assert "42 s" in found.says
    assert bool(found.do) is (peers == 0)


HIDDEN = changed(relays=("R",), **outside(reached=False))


@pytest.mark.parametrize(
    ("state", "says", "do", "serious"),
    [
        ("reached", "peers get in by it", "", "ok"),
        ("untried", "no peer has tried it yet", "", "ok"),
        ("shut", "peers do not get in", "another router above it", "warn"),
        (
            "none",
            "no router forwards a port when asked (no device)",
            "turn UPnP on",
            "ok",
        ),
    ],
)
def test_a_port_of_the_router(state: str, says: str, do: str, serious: State) -> None:
    mapping = MappingSeen(state=state, place="/ip4/198.51.100.7/tcp/4001", error="no device")
    found = only(changed(HIDDEN, reach=ReachSeen(mapping=mapping)), "port mapping")
    assert (found.state, says in found.says, do in found.do) == (serious, True, True), found
    assert bool(do) == bool(found.do)


def test_a_port_that_nobody_needs_is_no_advice() -> None:
    mapping = MappingSeen(state="none", place="", error="no device")
    assert not only(changed(reach=ReachSeen(mapping=mapping)), "port mapping").do


def test_how_many_of_those_met_through_a_relay_are_direct() -> None:
    reach = ReachSeen(direct=2, tried=3, relayed=1, many_doors=True)
    found = only(changed(HIDDEN, reach=reach), "direct")
    assert "2 of 3 peers" in found.says
    assert "1 go through one" in found.says
    assert "shows each place another port" in found.says
    assert "forwarded port" in found.do
    assert not only(changed(HIDDEN, reach=ReachSeen(direct=3, tried=3)), "direct").do
    assert not [f for f in diagnose(HIDDEN) if f.check == "direct"]


def test_what_the_user_announces_is_named() -> None:
    reach = ReachSeen(announced=("/dns4/host.example/tcp/4001",))
    assert "host.example" in only(changed(reach=reach), "reachable").says
