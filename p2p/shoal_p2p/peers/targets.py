"""The peers that discovery knows of: whom to dial next, when, and whom to forget.

No I/O of its own.

Also what discovery is told, what it asks of the host, and what it shows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, zip_longest

from shoal_ipc.answers.peer import Target
from shoal_p2p.net.address import PeerAddress, dialable, parse_peer_address
from shoal_p2p.net.interface import DIALS_AT_ONCE
from shoal_p2p.peers.address_policy import AddressSource
from shoal_wire.limits import MAX_ADDRS_PER_PEER
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId

FetchPeers = Callable[[PeerId], Awaitable[list[PeerAddresses]]]
"""Ask a connected peer whom it knows. May raise; has a deadline of its own."""


class TargetKind(StrEnum):
    """The way in which we came to know a peer; the first is kept longest."""

    BOOTSTRAP = "bootstrap"
    SAVED = "saved"
    MDNS = "mdns"
    EXCHANGE = "exchange"
    INBOUND = "inbound"


EXPENDABLE_KINDS = frozenset(TargetKind) - {TargetKind.BOOTSTRAP, TargetKind.SAVED}
"""Kinds that are forgotten after some failures: somebody will name them again."""

SELF_REPORTED_KINDS = frozenset({TargetKind.SAVED, TargetKind.INBOUND})
"""Kinds whose addresses the peer told itself, over a connection of its own, or answered at."""

MAX_DIALLED = 3
"""Addresses kept at which a peer has answered: one at home, one outside, one before a move."""
_MAX_KNOWN = MAX_ADDRS_PER_PEER - 2
"""Addresses kept that are more than hearsay; the others are for hearsay."""
_MAX_SPEAKERS = MAX_ADDRS_PER_PEER


class TargetState(StrEnum):
    """State of the connection to a peer."""

    IDLE = "idle"
    DIALING = "dialing"
    CONNECTED = "connected"


class DisconnectReason(StrEnum):
    """The way in which a connection ended."""

    LOST = "lost"
    FULL = "full"
    """One of the two was full and let the other go."""
    ENOUGH = "enough"
    """This node has enough peers without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverySettings:
    """Intervals and numbers for dialling."""

    target_peers: int = 8
    """Peers to stay connected to; bootstraps come on top."""
    backoff_first_s: float = 0.5
    backoff_max_s: float = 30.0
    bootstrap_backoff_max_s: float = 8.0
    dial_timeout_s: float = 8.0
    next_address_s: float = 0.5
    """A peer's next address is tried beside the last after this long."""
    settled_s: float = 60.0
    """Mean time for which a peer is left alone that was full, or that this node let go. With enough
    peers, the time after which bootstraps that were dialled are let go, and the pause between two
    questions whom a peer knows."""
    alone_s: float = 4.0
    """The same for a full peer while nobody else is connected; also the pause between two questions
    whom a bootstrap knows."""
    visit_s: float = 600.0
    """Mean time until they are visited again. So they know who is there, and parts of a swarm that
    lost each other meet."""
    stay_s: float = 10.0
    """Shortest stay at a bootstrap: it looks twice in that time at who is on which shard. Of its
    members, `stay_s / visit_s` are there at any time, and that is how many slots it needs."""
    next_visit_s: float = 2.5
    """With enough peers, the mean pause before a peer that was never met is visited, and how long
    this node stays. So some twelve a minute are met, and as many visit this node."""
    max_dials: int = DIALS_AT_ONCE
    max_targets: int = 512
    give_up_after: int = 8
    """Failed dials after which a peer that is only hearsay is forgotten."""
    exchange_interval_s: float = 15.0
    """Pause between two questions whom a peer knows, while peers are missing."""
    invited: frozenset[str] = frozenset()
    """The bootstraps' addresses that an invitation names, and nobody typed."""


def parse_bootstrap(addresses: tuple[str, ...]) -> tuple[PeerAddress, ...]:
    """Parse the bootstrap addresses of the settings. Raises ValueError, one line."""
    return tuple(parse_peer_address(address) for address in addresses)


@dataclass(slots=True, kw_only=True)
class DialTarget:
    """One peer."""

    peer_id: PeerId
    kind: TargetKind
    due: float
    """Time of the next dial."""
    given: tuple[str, ...] = ()
    """A bootstrap's, by the user."""
    dialled: tuple[str, ...] = ()
    """Addresses at which it has answered this node; the latest first, at most three."""
    told: tuple[str, ...] = ()
    """Addresses at which it said itself that it listens."""
    told_by: str | None = None
    """The source of that (`AddressSource.source`); None for what was saved."""
    heard: dict[str | None, tuple[str, ...]] = field(default_factory=dict)
    """Addresses that others say it has, by source."""
    state: TargetState = TargetState.IDLE
    attempts: int = 0
    last_error: str = ""
    visit_due: float = 0.0
    """Time of the next dial of a bootstrap while no peers are missing."""
    connected_at: float = 0.0
    """Time of its latest connection; 0 without any so far."""
    reached_at: str = ""
    """The place at which a bootstrap was reached last, until it has said that it is of shoal."""
    is_dialled: bool = False
    """True while connected by a dial of this node."""
    parting: DisconnectReason = DisconnectReason.LOST
    """The way in which the connection ends, or has ended."""

    @property
    def known(self) -> tuple[str, ...]:
        """Addresses that are more than hearsay, the surest first."""
        return self.given or tuple(dict.fromkeys((*self.dialled, *self.told)))[:_MAX_KNOWN]

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses to dial: known ones first, then one by each peer that named some, in turn."""
        if self.given:
            return self.given
        in_turn = chain.from_iterable(zip_longest(*self.heard.values()))
        hearsay = (address for address in in_turn if address is not None)
        return tuple(dict.fromkeys((*self.known, *hearsay)))[:MAX_ADDRS_PER_PEER]

    def is_proven(self, place: str) -> bool:
        """Return whether the peer has answered at `place`."""
        return place in self.dialled

    def source_of(self, address: str) -> str | None:
        """Return who answers for dialling `address`; None for this node itself, or its user."""
        if address in self.told:
            return self.told_by
        return next((source for source, said in self.heard.items() if address in said), None)

    def prove(self, address: str) -> None:
        """The peer has answered at `address`."""
        if address not in self.dialled[:1]:
            self.dialled = tuple(dict.fromkeys((address, *self.dialled)))[:MAX_DIALLED]

    def hear(self, addresses: tuple[str, ...], source: str | None) -> None:
        """Take hearsay."""
        old = self.heard.get(source, ())
        if old != addresses and (old or len(self.heard) < _MAX_SPEAKERS):
            self.heard[source] = tuple(dict.fromkeys((*addresses, *old)))[:MAX_ADDRS_PER_PEER]


class Targets:
    """Bounded: idle peers that fail most make room for new ones."""

    def __init__(
        self,
        settings: DiscoverySettings,
        rng: random.Random,
        rank: Callable[[PeerId], float] = lambda _peer: 0.0,
    ) -> None:
        """Peers of higher `rank` are dialled first."""
        self._settings = settings
        self._rng = rng
        self._rank = rank
        self._targets: dict[PeerId, DialTarget] = {}
        self._bootstraps: dict[PeerId, DialTarget] = {}
        """Peers that the user has named. They are dialled also where no peers are missing."""

    def get(self, peer_id: PeerId) -> DialTarget | None:
        """Return what is known of `peer_id`."""
        return self._targets.get(peer_id)

    def __contains__(self, peer_id: PeerId) -> bool:
        return peer_id in self._targets

    def drop(self, peer_id: PeerId) -> None:
        """Forget `peer_id`."""
        self._targets.pop(peer_id, None)
        self._bootstraps.pop(peer_id, None)

    def put_bootstrap(self, peer_id: PeerId, transport: str, *, now: float) -> None:
        """Add a bootstrap, or one more address of it; it is due at once and never forgotten."""
        known = self._targets.get(peer_id)
        self._targets[peer_id] = self._bootstraps[peer_id] = DialTarget(
            peer_id=peer_id,
            given=(*(known.given if known else ()), transport),
            kind=TargetKind.BOOTSTRAP,
            due=now,
        )

    def add(
        self,
        peer: PeerAddresses,
        kind: TargetKind,
        *,
        connected: bool,
        now: float,
        said_by: AddressSource | None = None,
    ) -> None:
        """Learn of a peer; what others say comes after what is known, and not while connected.

        `said_by` is None where this node knows it by itself.
        """
        is_own_word = kind in SELF_REPORTED_KINDS
        if connected and not is_own_word:
            return
        if said_by is None:
            source, addresses = None, dialable(peer.addresses)
        else:
            source, addresses = said_by.source, dialable(peer.addresses, said_by.may_tell)
        if not addresses:
            return
        target = self._targets.get(peer.peer_id)
        if target is None:
            if not self._make_room(source, is_own_word=is_own_word):
                return
            state = TargetState.CONNECTED if connected else TargetState.IDLE
            target = DialTarget(peer_id=peer.peer_id, kind=kind, due=now, state=state)
            self._targets[peer.peer_id] = target
        if is_own_word:
            target.told, target.told_by = addresses, source
            return
        if kind is TargetKind.MDNS and not set(addresses) <= set(target.addresses):
            target.due = now
        target.hear(addresses, source)

    def due(self, *, now: float, num_missing: int) -> list[DialTarget]:
        """Return whom to dial now: bootstraps always, others while peers are missing."""
        found = [t for t in self._idle(num_missing) if _due(t, num_missing) <= now]
        always = [t for t in found if t.kind is TargetKind.BOOTSTRAP]
        others = [t for t in found if t.kind is not TargetKind.BOOTSTRAP]
        if not others:
            return always
        dialing = sum(
            t.state is TargetState.DIALING and t.kind is not TargetKind.BOOTSTRAP
            for t in self._targets.values()
        )
        others.sort(key=lambda t: (-self._rank(t.peer_id), not t.known, t.due))
        room = min(num_missing, self._settings.max_dials) - dialing
        return always + others[: max(0, room)]

    def _idle(self, num_missing: int) -> list[DialTarget]:
        """Return who is neither dialled nor connected: where no peers are missing, bootstraps."""
        some: Mapping[PeerId, DialTarget] = self._targets if num_missing > 0 else self._bootstraps
        return [target for target in some.values() if target.state is TargetState.IDLE]

    def seconds_to_next(self, *, now: float, num_missing: int) -> float:
        """Return how long nothing is due."""
        waits = [_due(t, num_missing) - now for t in self._idle(num_missing)]
        # Targets that are due but beyond the number of dials allowed wait for a wake-up.
        return min((wait for wait in waits if wait > 0), default=self._settings.backoff_max_s)

    def note_failure(
        self, target: DialTarget, error: str, *, now: float, is_alone: bool = True
    ) -> None:
        """A dial failed: the next comes later, and hearsay is forgotten after some."""
        target.attempts += 1
        target.state = TargetState.IDLE
        target.last_error = error
        target.due = now + self._backoff_s(target, is_alone=is_alone)
        if target.kind in EXPENDABLE_KINDS and target.attempts >= self._settings.give_up_after:
            self.drop(target.peer_id)

    def put_off(self, target: DialTarget, wait_s: float, *, now: float) -> None:
        """Put the peer off: no address of it may be dialled yet."""
        target.state = TargetState.IDLE
        first_s = self._settings.backoff_first_s
        # Some later than they could, or nodes that began together would stay in step.
        target.due = now + max(first_s, wait_s) + self._rng.uniform(0, 4 * first_s)

    def note_lost(self, target: DialTarget, *, now: float, is_alone: bool = False) -> None:
        """A connection ended: dial again at once, or later where one let the other go."""
        target.state = TargetState.IDLE
        target.attempts = 0
        target.is_dialled = False
        if target.parting is DisconnectReason.LOST:
            target.due = now + self._rng.uniform(0, self._settings.backoff_first_s)
            return
        hurry = is_alone and target.parting is DisconnectReason.FULL
        wait_s = self._settings.alone_s if hurry else self._settings.settled_s
        target.due = now + wait_s * self._rng.uniform(0.5, 1.5)
        target.visit_due = now + self._settings.visit_s * self._rng.uniform(0.5, 1.5)
        if target.parting is DisconnectReason.FULL:
            target.last_error = "it was full, and let this node go"

    def never_met(self, *, now: float) -> DialTarget | None:
        """Return a peer to visit that has never been connected; those that failed least first."""
        found = [
            target
            for target in self._targets.values()
            if target.state is TargetState.IDLE
            and target.kind is not TargetKind.BOOTSTRAP
            and not target.connected_at
            and target.attempts < self._settings.give_up_after
            and target.due <= now
        ]
        return min(found, key=lambda target: target.attempts, default=None)

    def needless(self, *, now: float, enough_since: float) -> list[DialTarget]:
        """Return the bootstraps, dialled by this node, that it has had enough peers beside."""
        return [
            target
            for target in self._targets.values()
            if target.kind is TargetKind.BOOTSTRAP
            and target.state is TargetState.CONNECTED
            and target.is_dialled
            and now - enough_since >= self._settings.settled_s
            and now - target.connected_at >= self._settings.stay_s
        ]

    def snapshot(self, *, now: float, num_missing: int) -> tuple[Target, ...]:
        """Return every target as the debug view `peers` has it, bootstraps first."""
        order = list(TargetKind)
        return tuple(
            Target(
                peer_id=target.peer_id,
                address=target.addresses[0] if target.addresses else "",
                kind=target.kind.value,
                state=target.state.value,
                attempts=target.attempts,
                next_try_s=max(0.0, _due(target, num_missing) - now)
                if _wanted(target, num_missing)
                else None,
                last_error=target.last_error,
            )
            for target in sorted(self._targets.values(), key=lambda t: order.index(t.kind))
        )

    def full_s(self, peer_id: PeerId, *, now: float, num_missing: int) -> float | None:
        """Return for how long a peer is left alone that was full; None for any other."""
        target = self._targets.get(peer_id)
        was_full = (
            target is not None and target.parting is DisconnectReason.FULL and not target.attempts
        )
        if target is None or not was_full or target.state is not TargetState.IDLE:
            return None
        return max(0.0, _due(target, num_missing) - now)

    def _backoff_s(self, target: DialTarget, *, is_alone: bool) -> float:
        """Full jitter: uniform up to a bound that doubles with each failure."""
        bootstrap = target.kind is TargetKind.BOOTSTRAP
        settings = self._settings
        ceiling = settings.bootstrap_backoff_max_s if bootstrap else settings.backoff_max_s
        if bootstrap and target.parting is not DisconnectReason.LOST and not is_alone:
            ceiling = settings.settled_s  # most likely it is still full
        bound = settings.backoff_first_s * 2 ** min(target.attempts, 16)
        return self._rng.uniform(0, min(ceiling, bound))

    def _make_room(self, source: str | None, *, is_own_word: bool) -> bool:
        """Hearsay makes room, of who has said most; for a peer's own word also who only came by."""
        if len(self._targets) < self._settings.max_targets:
            return True
        idle = [
            target
            for target in self._targets.values()
            if target.state is TargetState.IDLE and target.kind is not TargetKind.BOOTSTRAP
        ]
        hearsay = [target for target in idle if not target.known]
        said = Counter(next(iter(target.heard), None) for target in hearsay)
        if hearsay and not is_own_word and max(said.values()) < said[source]:
            return False
        strangers = [t for t in idle if t.kind is TargetKind.INBOUND and not t.dialled]
        pool = hearsay or (strangers if is_own_word else [])
        if not pool:
            return False
        victim = max(pool, key=lambda t: (said[next(iter(t.heard), None)], t.attempts))
        self.drop(victim.peer_id)
        return True


def _wanted(target: DialTarget, num_missing: int) -> bool:
    if target.state is not TargetState.IDLE:
        return False
    return target.kind is TargetKind.BOOTSTRAP or num_missing > 0


def _due(target: DialTarget, num_missing: int) -> float:
    """Return when to dial: who was let go by a node with enough peers only for a visit."""
    return target.due if num_missing > 0 else max(target.due, target.visit_due)
