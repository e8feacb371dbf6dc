"""The doctor's findings: pure, one case a rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

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
BARRED = replace(DEAD, error="the peer has another swarm key", remedy="--swarm-key FILE")
SEEN = OutsideSeen(
    peer_id="P",
    observed="/ip4/198.51.100.7/tcp/50000",
    dialled=True,
    reached=True,
    clock_ahead_ms=40,
)
TOPIC = "/shoal/1/" + 64 * "a" + "/rollouts/0"
WELL = Learning(state="ok", message="nothing wrong", external_sampled=9)
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
        listen_addresses=("/ip4/198.51.100.7/tcp/4001",),
        bootstraps=(BOOT,),
        reachability=(SEEN,),
        subscribers={TOPIC: 4},
        mesh_low=4,
        clock_limit_ms=120_000,
        uses_external_groups=True,
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
    assert not any(f.remedy for f in findings)
    looked_at = "peers bootstrap reachable observed transports clock mesh trainer learning buffer"
    assert [f.check for f in findings] == [*looked_at.split(), "disk", "files"]


def outside(**changes: Any) -> dict[str, Any]:
    return {"reachability": (replace(SEEN, **changes),)}


class Case(NamedTuple):
    """One finding, where the fields of the status or the facts that `changes` names differ."""

    check: str
    state: State
    changes: dict[str, Any]
    says: str = ""
    do: str | None = None
    """Part of the advice; empty where there is none. None: there is some exactly where it is not
    ok."""


def mapped(state: str, **changes: Any) -> dict[str, Any]:
    """Return the state of a node with a port mapping whose only join address is a relay's."""
    place = "/ip4/198.51.100.7/tcp/4001"
    mapping = MappingSeen(state=state, address=place, error="no device")
    hidden = {"relays": ("R",), **outside(reached=False)}
    return {**hidden, "reach": ReachSeen(mapping=mapping), **changes}


WHY = "exit code 1: ValueError: odd; next start in 3 s"
FULL = FullSeen(slots=8, disconnected=12, refused=3, ago_s=4.0)
FULL_BOOTSTRAP = (replace(DEAD, full_backoff_s=42.0),)
ANNOUNCED = ReachSeen(announced=("/dns4/host.example/tcp/4001",))


@pytest.mark.parametrize(
    "case",
    [
        Case("peers", "bad", {"peers": 0}),
        Case("peers", "ok", {"peers": 0, "uptime_s": 3.0}, do="see `bootstrap` below"),
        Case("peers", "ok", {"peers": 0, "bootstraps": ()}, do="shoal invite"),
        Case("bootstrap", "bad", {"bootstraps": (DEAD,), "peers": 0}),
        Case("bootstrap", "warn", {"bootstraps": (DEAD,)}),
        Case("bootstrap", "warn", {"bootstraps": (replace(BOOT, latency_ms=1500.0),)}),
        Case("bootstrap", "warn", {"bootstraps": (BARRED,)}, do=BARRED.remedy),
        # One that is full is not dead.
        Case(
            "bootstrap", "ok", {"bootstraps": FULL_BOOTSTRAP}, "is full: it disconnected this node"
        ),
        Case("bootstrap", "warn", {"bootstraps": FULL_BOOTSTRAP, "peers": 0}, "again in 42 s"),
        Case("full", "warn", {"full": FULL}, "12 peers were disconnected", "--max-connections"),
        Case("swarm key", "warn", {"key": KeyFile(file="swarm.key", problem="has another key")}),
        Case("swarm key", "ok", {"key": KeyFile(file="swarm.key")}),
        Case("identity", "bad", {"duplicate_identity": True}, "another node", "identity.key"),
        Case("reachable", "ok", {"reachability": ()}, "not known yet"),
        Case("reachable", "ok", outside(dialled=False), "not known yet"),
        Case("reachable", "warn", outside(reached=False)),
        Case("reachable", "ok", {"relays": ("R",), **outside(reached=False)}, "through relays"),
        Case("reachable", "ok", {"reach": ANNOUNCED}, "host.example"),
        Case("port mapping", "ok", mapped("reached"), "peers can connect through it"),
        Case("port mapping", "ok", mapped("untried"), "no peer has tried it yet"),
        Case("port mapping", "warn", mapped("shut"), "cannot connect through it", "another router"),
        Case("port mapping", "ok", mapped("none"), "when asked (no device)", "turn UPnP on"),
        # No peer needs the port.
        Case("port mapping", "ok", mapped("none", **outside()), do=""),
        Case(
            "observed",
            "ok",
            {"listen_addresses": ("/ip4/10.0.0.5/tcp/4001",)},
            "as 198.51.100.7, which is not one of its own",
            "address translation",
        ),
        Case("transports", "bad", {"listen_addresses": ()}),
        Case("clock", "warn", outside(clock_ahead_ms=-9_000), "ahead of"),
        Case("clock", "warn", outside(clock_ahead_ms=9_000), "behind"),
        Case("clock", "bad", outside(clock_ahead_ms=3_600_000)),
        # One liar does not set it.
        Case("clock", "ok", {"reachability": (SEEN, SEEN, replace(SEEN, clock_ahead_ms=10**12))}),
        Case("mesh", "warn", {"subscribers": {"t": 0}}),
        Case("mesh", "bad", {"subscribers": {"t": 3}}),
        Case("mesh", "warn", {"subscribers": {"t": 9}, "mesh": {"t": 3}}),
        # Of every connected peer.
        Case("mesh", "ok", {"subscribers": {"t": 2}, "mesh": {"t": 2}}),
        Case("trainer", "bad", {"trainer": TrainerView(state="broken")}),
        Case(
            "trainer",
            "warn",
            {"trainer": TrainerView(state="waiting"), "trainer_error": WHY},
            f"waiting: {WHY}",
        ),
        # It is over.
        Case("trainer", "ok", {"trainer_error": WHY}, "training"),
        Case("trainer", "bad", {"trainer": TrainerView(state="paused", paused="no space left")}),
        Case("buffer", "warn", {"groups_received": 0, "uptime_s": 300.0}),
        Case("buffer", "ok", {"groups_received": 0, "uptime_s": 299.0}),
        Case(
            "sources", "warn", {"dominant_network": "most came by one"}, "most", "shoal debug block"
        ),
        Case("disk", "bad", {"disk": DiskView(full=True, free_bytes=50 * 1024**3)}),
        Case("disk", "warn", {"disk": DiskView(free_bytes=1024**3)}),
        Case("disk", "bad", {"disk": DiskView(free_bytes=1024**2)}),
        Case("files", "warn", {"files_limit": 256}),
        Case("files", "bad", {"files_limit": 4096, "files_open": 4090}),
    ],
    ids=lambda case: f"{case.check} {case.state} {case.says}",
)
def test_what_is_wrong_is_found_with_what_to_do(case: Case) -> None:
    found = only(changed(**case.changes), case.check)
    assert (found.state, case.says in found.message) == (case.state, True), found
    if case.do is None:
        assert bool(found.remedy) == (case.state != "ok"), found
    else:
        assert case.do in found.remedy and bool(case.do) == bool(found.remedy), found
    assert "\n" not in found.message + found.remedy


def test_the_key_is_advised_only_where_it_may_be_the_cause() -> None:
    key = KeyFile(file="swarm.key")
    alone = changed(bootstraps=(DEAD,), peers=0)
    assert "key" not in only(alone, "bootstrap").remedy
    assert "swarm.key" in only(changed(alone, key=key), "bootstrap").remedy
    assert "give the address" not in only(alone, "peers").remedy


def test_a_bootstrap_seeks_no_peers_and_shows_its_join_addresses() -> None:
    alone = changed(peers=0, bootstraps=(), role="bootstrap")
    assert "shoal invite" in only(alone, "peers").remedy
    assert "--bootstrap" in only(changed(alone, role=None), "peers").remedy


def test_a_loopback_node_is_not_advised_to_listen_elsewhere() -> None:
    facts = changed(listen_addresses=("/ip4/127.0.0.1/tcp/4001",))
    advice = [f.remedy for f in diagnose(facts) if "loopback" in f.message]
    (do,) = advice
    assert "--listen /ip4/0.0.0.0/tcp/4001 (without IPv4: /ip6/::/tcp/4001)" in do
    (found,) = [f for f in diagnose(changed(facts, has_network=False)) if "loopback" in f.message]
    assert "this machine has only a loopback network" in found.message
    assert not found.remedy


def test_a_bootstrap_peer_has_no_trainer_and_no_buffer() -> None:
    facts = changed(trainer=None, buffer=None, groups_received=None)
    assert {"trainer", "buffer"} & {f.check for f in diagnose(facts)} == set()


SAID: dict[str, Any] = {
    "state": "bad",
    "message": "own answers earn nothing (and 1 more)",
    "rounds": 30,
    "external_sampled": 0,
    "findings": [
        {"check": "nothing-earned", "state": "bad", "since_round": 30,
         "message": "own answers earn nothing", "remedy": "a stronger model",
         "example": "asked “2+2?”, expected “4”"},
        {"check": "all-cut", "state": "warn", "since_round": 10, "message": "all are cut",
         "remedy": "--max-new-tokens", "example": ""},
    ],
}  # fmt: skip


def with_learning(view: Any) -> Seen:
    return changed(trainer=read(TrainerView, {"state": "training", "learning": view}))


def test_the_doctor_says_what_the_trainer_says_of_its_learning() -> None:
    bad, warn = [one for one in diagnose(with_learning(SAID)) if one.check == "learning"]
    assert (bad.state, bad.remedy) == ("bad", "a stronger model")
    assert bad.message == "own answers earn nothing, since round 30; asked “2+2?”, expected “4”"
    assert (warn.state, warn.message) == ("warn", "all are cut, since round 10")
    well = only(
        with_learning({**SAID, "state": "ok", "findings": [], "message": "nothing wrong"}),
        "learning",
    )
    assert (well.state, well.message, well.remedy) == ("ok", "nothing wrong", "")


@pytest.mark.parametrize("view", [None, {}, [], "x", {"findings": 3}, {"state": "worse"}])
def test_a_trainer_of_another_version_has_no_finding(view: object) -> None:
    assert not [one for one in diagnose(with_learning(view)) if one.check == "learning"]


def test_groups_that_are_too_old_for_the_trainer_are_learning_lost() -> None:
    def lost(drawn: int = 0, too_old: int = 9, state: Any = "ok") -> Seen:
        learning = replace(WELL, external_sampled=drawn, state=state)
        return changed(
            trainer=replace(TRAINER, learning=learning),
            buffer=replace(BUFFER, dropped={"expired": too_old - 1, "too_old": 1}),
            groups_received=10,
        )

    _, found = [one for one in diagnose(lost()) if one.check == "learning"]
    assert found.state == "warn"
    assert "9 of 10 became too old" in found.message
    for well in (lost(drawn=3), lost(state="early"), lost(too_old=3)):
        assert only(well, "learning").state == "ok"


def test_relayed_peers_with_a_direct_connection_are_counted() -> None:
    reach = ReachSeen(direct_successes=2, direct_attempts=3, relayed=1, is_symmetric_nat=True)
    hidden = changed(relays=("R",), **outside(reached=False))
    found = only(changed(hidden, reach=reach), "direct")
    assert "2 of 3 peers" in found.message
    assert "1 go through one" in found.message
    assert "shows each peer another port" in found.message
    assert "forward a port" in found.remedy
    assert not only(
        changed(hidden, reach=ReachSeen(direct_successes=3, direct_attempts=3)), "direct"
    ).remedy
    assert not [f for f in diagnose(hidden) if f.check == "direct"]
