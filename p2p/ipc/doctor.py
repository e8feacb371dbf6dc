"""`shoal debug doctor`: from what was observed to findings, each with what to do. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from p2p.ipc.finding import Finding, State
from p2p.ipc.reach_checks import ReachSeen, direct, port_mapping
from p2p.peers.skew import skew_of
from shoal_wire.types import PeerId

SETTLE_SECONDS = 30.0
"""Before this, a node that has nobody or no mesh yet is only starting."""
DISK_WARN_BYTES = 2 * 1024**3
DISK_BAD_BYTES = 200 * 1024**2
FILES_WANTED = 1024
FILES_SPARE = 64
_SLOW_MS = 1000.0
_BROKEN_TRAINER = ("broken", "diverged", "misconfigured")
_WAITING_TRAINER = ("waiting", "stopped")


FULL_DO = (
    "wait; if it stays, give another address (--bootstrap), or have it started with more "
    "--max-connections"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapSeen:
    """One bootstrap address of the settings."""

    address: str
    latency_ms: float | None
    """One round trip; None if it is not connected or did not answer."""
    error: str = ""
    mends: str = ""
    """What mends it; empty where that is not known for certain."""
    full_s: float | None = None
    """It was full and let this node go, which leaves it alone for so long; None if not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullSeen:
    """This peer had no slot for all who came, lately."""

    slots: int
    let_go: int
    """Peers that made room, since the start."""
    refused: int
    """Newcomers that found no slot, since the start."""
    ago_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySeen:
    """The key of a private swarm."""

    file: str
    problem: str = ""
    """Why the file could not be used again; empty if it holds the key in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSeen:
    """One subscribed topic."""

    topic: str
    peers: int
    mesh: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideSeen:
    """What one peer said of this node."""

    peer_id: PeerId
    observed: str
    dialled: bool
    reached: bool
    """It opened a connection to one of our ports; only of meaning if it dialled."""
    clock_ahead_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSeen:
    """What the trainer says of its own learning: one finding, or that there is none."""

    state: State
    says: str
    do: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything a diagnosis is made of."""

    uptime_s: float
    listens: tuple[str, ...]
    """Transport addresses, interfaces spelled out."""
    transports: tuple[tuple[str, int], ...]
    """Kinds of transport listened on or connected over, and live connections over each."""
    peers: int
    relays: int
    """Relays through which this node can be reached."""
    bootstraps: tuple[BootstrapSeen, ...]
    outside: tuple[OutsideSeen, ...]
    topics: tuple[TopicSeen, ...]
    mesh_low: int
    """Mesh size below which gossip grafts."""
    clock_limit_ms: int
    """Most a batch may come from the future before others refuse it."""
    trainer: str | None
    """State of the trainer; None for a bootstrap peer."""
    trainer_error: str
    """What the last trainer that failed said of it; empty where none has, or it is over."""
    learning: tuple[LearningSeen, ...]
    """What stands, or one that is ok; none where no trainer has said anything."""
    groups_looked_at: int | None
    """Groups of others that the trainer has looked at lately; None where it wants none, and before
    it can tell."""
    one_network: str
    """That one network gives more than others beside it should; empty where none does."""
    groups_received: int | None
    buffered: tuple[int, int] | None
    """External groups in the buffer and their limit; None for a bootstrap peer."""
    groups_too_old: int
    """Groups of others that no trainer drew before they were too old."""
    disk_free_bytes: int
    disk_full: bool = False
    """A write was refused for lack of room."""
    paused: str = ""
    """Why the trainer is paused; empty while it is not."""
    files_open: int
    files_limit: int
    is_meeting_point: bool = False
    """A bootstrap peer: it seeks nobody, others come to it."""
    other_network: bool = True
    """The machine has an address beside loopback's."""
    reach: ReachSeen = field(default_factory=ReachSeen)
    """How routers are crossed."""
    full: FullSeen | None = None
    """None where there has been room for everybody lately."""
    key: KeySeen | None = None
    """None in a public swarm."""


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """Return every finding, in the order in which a person should read them."""
    return tuple(
        finding
        for check in (
            _peers,
            _bootstraps,
            _full,
            _swarm_key,
            _reachable,
            _routers,
            _observed,
            _transports,
            _clock,
            _mesh,
            _trainer,
            _learning,
            _sources,
            _buffer,
            _disk,
            _files,
        )
        for finding in check(facts)
    )


def _peers(facts: Facts) -> Iterator[Finding]:
    if facts.peers:
        yield Finding(check="peers", state=State.OK, says=f"{facts.peers} connected")
        return
    settled = facts.uptime_s >= SETTLE_SECONDS
    yield Finding(
        check="peers",
        state=State.BAD if settled and facts.bootstraps else State.WARN,
        says="nobody is connected" if settled else "nobody is connected yet",
        do=_meet(facts),
    )


def _meet(facts: Facts) -> str:
    if facts.bootstraps:
        return "see what each bootstrap says"
    if facts.is_meeting_point:
        return "others have to come: shoal invite prints the line with which they do"
    return "give the address of a peer that is up: --bootstrap /ip4/…/tcp/…/p2p/…"


def _bootstraps(facts: Facts) -> Iterator[Finding]:
    num_answering = sum(seen.latency_ms is not None for seen in facts.bootstraps)
    for seen in facts.bootstraps:
        if seen.full_s is not None:
            yield _full_bootstrap(seen, facts)
            continue
        if seen.latency_ms is None:
            yield Finding(
                check="bootstrap",
                # One that answers is enough, and those that have met stay together without any.
                state=State.WARN if num_answering or facts.peers else State.BAD,
                says=f"{seen.address} {'cannot be joined' if seen.mends else 'does not answer'}: "
                f"{seen.error or 'not connected'}",
                do=seen.mends or _check_bootstrap(facts),
            )
            continue
        slow = seen.latency_ms > _SLOW_MS
        yield Finding(
            check="bootstrap",
            state=State.WARN if slow else State.OK,
            says=f"{seen.address} answers in {seen.latency_ms:.1f} ms",
            do="the link is slow or that machine is overloaded" if slow else "",
        )


def _full_bootstrap(seen: BootstrapSeen, facts: Facts) -> Finding:
    others = facts.peers > 0
    return Finding(
        check="bootstrap",
        state=State.OK if others else State.WARN,
        says=f"{seen.address} is full: it let this node go, which is back in {seen.full_s:.0f} s",
        do="" if others else FULL_DO,
    )


def _full(facts: Facts) -> Iterator[Finding]:
    seen = facts.full
    if seen is None:
        return
    yield Finding(
        check="full",
        state=State.WARN,
        says=f"full {seen.ago_s:.0f} s ago, with {seen.slots} slots: {seen.let_go} peers were let "
        f"go to make room and {seen.refused} newcomers refused for now, since the start",
        do="nobody is locked out, newcomers wait longer; raise --max-connections (with it "
        "--prefix-connections, if they come from one network, and ulimit -n), or start another "
        "bootstrap",
    )


def _check_bootstrap(facts: Facts) -> str:
    """Say what to look at where it is not known what is wrong."""
    both = f", and that it has the same swarm key ({facts.key.file})" if facts.key else ""
    return f"check that it runs and that the address is right{both}; it is tried for ever"


def _swarm_key(facts: Facts) -> Iterator[Finding]:
    if facts.key is None:
        return
    changed = bool(facts.key.problem)
    yield Finding(
        check="swarm key",
        state=State.WARN if changed else State.OK,
        says=facts.key.problem or f"a private swarm, of the key in {facts.key.file}",
        do="it still uses the key that it started with: start it again" if changed else "",
    )


def _reachable(facts: Facts) -> Iterator[Finding]:
    tried = [seen for seen in facts.outside if seen.dialled]
    num_reached = sum(seen.reached for seen in tried)
    if not tried:
        why = "no connected peer could be asked" if facts.outside else "nobody is there to ask"
        yield Finding(
            check="reachable", state=State.WARN, says=f"not known: {why}", do="ask again later"
        )
    elif num_reached:
        yield Finding(
            check="reachable",
            state=State.OK,
            says=f"{num_reached} of {len(tried)} peers that tried could connect to this node"
            + (
                f", told to others as {', '.join(facts.reach.announced)}"
                if facts.reach.announced
                else ""
            ),
        )
    elif facts.relays:
        yield Finding(
            check="reachable",
            state=State.OK,
            says=f"through {facts.relays} relay(s); directly by none of {len(tried)} that tried",
        )
    else:
        yield Finding(
            check="reachable",
            state=State.WARN,
            says=f"none of {len(tried)} peers that tried could connect to this node",
            do="it works by the connections that it opens itself; to be found by others too, "
            "forward its TCP port, fix the port with --listen, and open the firewall; or have the "
            "bootstrap started with --relay (docs/reach.md)",
        )


def _routers(facts: Facts) -> Iterator[Finding]:
    yield from port_mapping(facts.reach, is_reached=any(seen.reached for seen in facts.outside))
    yield from direct(facts.reach)


def _observed(facts: Facts) -> Iterator[Finding]:
    hosts = sorted({_host(seen.observed) for seen in facts.outside if seen.observed})
    if not hosts:
        return
    own = {_host(address) for address in facts.listens}
    foreign = [host for host in hosts if host not in own]
    if foreign:
        says = (
            f"others see this node at {', '.join(foreign)}, which is not one of its own addresses"
        )
        yield Finding(
            check="observed",
            state=State.OK,
            says=says,
            do="it is behind address translation: see reachable",
        )
    else:
        yield Finding(
            check="observed", state=State.OK, says=f"others see this node at {', '.join(hosts)}"
        )


def _transports(facts: Facts) -> Iterator[Finding]:
    shown = ", ".join(f"{name} ({count} connections)" for name, count in facts.transports)
    yield Finding(
        check="transports",
        state=State.OK if facts.listens else State.BAD,
        says=shown or "listens nowhere",
        do="" if facts.listens else "give an address with --listen",
    )
    if facts.listens and all(_is_loopback(_host(address)) for address in facts.listens):
        yield Finding(
            check="transports",
            state=State.OK,
            says="listens on loopback only: peers on other machines cannot connect to this node"
            if facts.other_network
            else "this machine has no network but loopback: no peer on another machine is reached",
            do="--listen /ip4/0.0.0.0/tcp/4001, if they should" if facts.other_network else "",
        )


def _clock(facts: Facts) -> Iterator[Finding]:
    skew = skew_of([seen.clock_ahead_ms for seen in facts.outside])
    if skew is None:
        return
    state = State.WARN if skew.is_wrong else State.OK
    if abs(skew.ahead_ms) > facts.clock_limit_ms:
        state = State.BAD
    yield Finding(
        check="clock",
        state=state,
        says=skew.says(),
        do=""
        if state is State.OK
        else f"{skew.advice()}: batches that are far off in time are refused",
    )


def _mesh(facts: Facts) -> Iterator[Finding]:
    settled = facts.uptime_s >= SETTLE_SECONDS
    for seen in facts.topics:
        says = f"{_short(seen.topic)}: {seen.mesh} in the mesh of {seen.peers} subscribed"
        if not seen.peers:
            state, do = State.WARN, "nobody else is subscribed: batches wait in the outbox"
        elif not seen.mesh:
            state = State.BAD if settled else State.WARN
            do = "wait a few seconds; if it stays, see the scores in `shoal debug peers`"
        elif seen.mesh < min(seen.peers, facts.mesh_low):
            state, do = State.WARN, "wait a few seconds; peers may have full meshes"
        else:
            state, do = State.OK, ""
        yield Finding(check="mesh", state=state, says=says, do=do)


def _trainer(facts: Facts) -> Iterator[Finding]:
    if facts.trainer is None:
        return
    state, do = State.OK, ""
    if facts.paused:
        state, do = State.BAD, "make room: it goes on by itself, and nothing is lost"
    elif facts.trainer in _BROKEN_TRAINER:
        state, do = State.BAD, "mend that; the node's log has more; then start the node again"
    elif facts.trainer in _WAITING_TRAINER:
        state, do = State.WARN, "it ended and will be started again: the node's log has more"
    why = facts.paused or (facts.trainer_error if state is not State.OK else "")
    says = f"{facts.trainer}: {why}" if why else facts.trainer
    yield Finding(check="trainer", state=state, says=says, do=do)


def _learning(facts: Facts) -> Iterator[Finding]:
    for seen in facts.learning:
        yield Finding(check="learning", state=seen.state, says=seen.says, do=seen.do)
    received = facts.groups_received or 0
    # Of peers that have gone, the last groups grow too old as well.
    if facts.groups_looked_at == 0 and facts.peers and 2 * facts.groups_too_old > received:
        yield Finding(
            check="learning",
            state=State.WARN,
            says=f"others' groups are passed over: {facts.groups_too_old} of {received} became too "
            "old, and the trainer was given none lately",
            do="keep them longer (--buffer-seconds); see the clock above, and buffer below",
        )


def _sources(facts: Facts) -> Iterator[Finding]:
    if facts.one_network:
        yield Finding(
            check="sources",
            state=State.WARN,
            says=facts.one_network,
            do="what one network gives stays limited; if you do not know that peer, end it with "
            "`shoal debug block PEER`, and find more peers",
        )


def learning_of(said: object) -> tuple[LearningSeen, ...]:
    """Return what a trainer's word on its learning says; nothing of one that cannot be read."""
    try:
        return tuple(_learning_of(said))
    except (LookupError, TypeError, ValueError):
        return ()


def _learning_of(said: Any) -> Iterator[LearningSeen]:
    if not said["findings"]:
        yield LearningSeen(state=State.OK, says=str(said["says"]), do="")
    for one in said["findings"]:
        shown = f"; {one['example']}" if one["example"] else ""
        says = f"{one['says']}, since round {one['since']}{shown}"
        yield LearningSeen(state=State(one["state"]), says=says, do=str(one["do"]))


def _buffer(facts: Facts) -> Iterator[Finding]:
    if facts.buffered is None or facts.groups_received is None:
        return
    groups, capacity = facts.buffered
    says = f"{groups} of {capacity} groups of others, {facts.groups_received} received"
    empty = not facts.groups_received and facts.peers > 0 and facts.uptime_s >= SETTLE_SECONDS
    yield Finding(
        check="buffer",
        state=State.WARN if empty else State.OK,
        says=says,
        do="peers are connected and share nothing: see verdicts in `shoal debug status`, and mesh"
        if empty
        else "",
    )


def _disk(facts: Facts) -> Iterator[Finding]:
    free = facts.disk_free_bytes
    state = State.OK
    if free < DISK_WARN_BYTES:
        state = State.BAD if free < DISK_BAD_BYTES else State.WARN
    do = "" if state is State.OK else "make room: checkpoints and the outbox are written there"
    says = f"{free / 1024**3:.1f} GiB free in the data directory"
    if facts.disk_full:
        state, says = State.BAD, f"full: {says}"
        do = "make room: what is not written waits in memory, and is written by itself then"
    yield Finding(check="disk", state=state, says=says, do=do)


def _files(facts: Facts) -> Iterator[Finding]:
    spare = facts.files_limit - facts.files_open
    state = State.OK
    if facts.files_limit < FILES_WANTED:
        state = State.WARN
    if spare < FILES_SPARE:
        state = State.BAD
    yield Finding(
        check="files",
        state=state,
        says=f"{facts.files_open} of {facts.files_limit} file descriptors in use",
        do="" if state is State.OK else "raise the limit (ulimit -n 4096) or lower max_connections",
    )


def _host(address: str) -> str:
    parts = address.split("/")
    return parts[2] if len(parts) > 2 else ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _short(topic: str) -> str:
    return "/".join(part[:12] if len(part) == 64 else part for part in topic.split("/"))
