"""The peers known to discovery: which to dial next, when, and which to forget.

No I/O of its own.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, zip_longest
from typing import Annotated

from shoal_base.ranges import Range, Ranged, Seconds
from shoal_ipc.answers.peer import Target
from shoal_p2p.net.address import PeerAddress, dialable, parse_peer_address
from shoal_p2p.net.interface import DIALS_AT_ONCE
from shoal_p2p.peers.address_policy import AddressSource
from shoal_wire.limits import MAX_ADDRS_PER_PEER
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId

FetchPeers = Callable[[PeerId], Awaitable[list[PeerAddresses]]]
"""Ask a connected peer for its peers. May raise; has its own deadline."""


class TargetKind(StrEnum):
    """Source from which a peer became known; kinds listed first are kept longest."""

    BOOTSTRAP = "bootstrap"
    SAVED = "saved"
    MDNS = "mdns"
    EXCHANGE = "exchange"
    INBOUND = "inbound"


EXPENDABLE_KINDS = frozenset(TargetKind) - {TargetKind.BOOTSTRAP, TargetKind.SAVED}
"""Kinds that are forgotten after some failures, since another peer will name them again."""

SELF_REPORTED_KINDS = frozenset({TargetKind.SAVED, TargetKind.INBOUND})
"""Kinds whose addresses the peer reported itself, over its own connection, or answered at."""

MAX_DIALLED = 3
"""Addresses kept at which a peer has answered: one private, one public, one before a move."""
_MAX_KNOWN = MAX_ADDRS_PER_PEER - 2
"""Addresses kept that are proven or self-reported; the rest is for third-party ones."""
_MAX_SOURCES = MAX_ADDRS_PER_PEER


class TargetState(StrEnum):
    """State of the connection to a peer."""

    IDLE = "idle"
    DIALING = "dialing"
    CONNECTED = "connected"


class DisconnectReason(StrEnum):
    """Reason for which a connection ended."""

    LOST = "lost"
    FULL = "full"
    """One of the two was full and disconnected the other."""
    ENOUGH = "enough"
    """This node has enough peers without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverySettings(Ranged):
    """Intervals and limits for dialling."""

    target_peers: Annotated[int, Range("peers", 0, 1000)] = 8
    """Peers to stay connected to, in addition to bootstraps."""
    backoff_first_s: Seconds = 0.5
    backoff_max_s: Seconds = 30.0
    bootstrap_backoff_max_s: Seconds = 8.0
    dial_timeout_s: Seconds = 8.0
    next_address_s: Seconds = 0.5
    """Delay before a peer's next address is dialled concurrently."""
    backoff_s: Seconds = 60.0
    """Mean back-off for a peer that was full or that this node disconnected. With enough peers,
    also the time after which bootstraps are disconnected, and the pause between two exchanges with
    a peer."""
    min_backoff_s: Seconds = 4.0
    """The same for a full peer while no other peer is connected; also the pause between two
    exchanges with a bootstrap."""
    revisit_s: Seconds = 600.0
    """Mean interval between visits to a bootstrap, so that it knows its members and parts of a
    swarm that lost each other reconnect."""
    visit_stay_s: Seconds = 10.0
    """Shortest stay at a bootstrap, which checks the members' shards twice in that time. A share
    `visit_stay_s / revisit_s` of its members is connected at any time, which is the number of slots
    that it needs."""
    next_visit_s: Seconds = 2.5
    """With enough peers, the mean pause before a peer never connected is visited, and the length of
    the visit: about twelve visits a minute."""
    max_dials: Annotated[int, Range("dials", 1, 1000)] = DIALS_AT_ONCE
    max_targets: Annotated[int, Range("peers", 1, 100_000)] = 512
    give_up_after: Annotated[int, Range("dials", 1, 1000)] = 8
    """Failed dials after which a third-party peer is forgotten."""
    exchange_interval_s: Seconds = 15.0
    """Pause between two exchanges with a peer while peers are missing."""
    invited: Annotated[frozenset[str], Range("addresses", 0, 1000)] = frozenset()
    """Bootstrap addresses from an invitation, not typed by the user."""


def parse_bootstrap(addresses: tuple[str, ...]) -> tuple[PeerAddress, ...]:
    """Parse the bootstrap addresses of the settings. Raises ValueError, one line."""
    return tuple(parse_peer_address(address) for address in addresses)


@dataclass(slots=True, kw_only=True)
class DialTarget:
    """One peer to dial."""

    peer_id: PeerId
    kind: TargetKind
    due: float
    """Time of the next dial."""
    given: tuple[str, ...] = ()
    """Addresses of a bootstrap, from the user."""
    dialled: tuple[str, ...] = ()
    """Addresses at which it has answered this node, the latest first, at most three."""
    self_reported: tuple[str, ...] = ()
    """Addresses at which it reported itself to listen."""
    self_reported_by: str | None = None
    """The source of that report (`AddressSource.source`); None for a saved one."""
    third_party: dict[str | None, tuple[str, ...]] = field(default_factory=dict)
    """Addresses reported by other peers, by source."""
    state: TargetState = TargetState.IDLE
    attempts: int = 0
    last_error: str = ""
    visit_due: float = 0.0
    """Time of the next dial of a bootstrap while no peers are missing."""
    connected_at: float = 0.0
    """Time of its latest connection; 0 if there was none."""
    reached_at: str = ""
    """The address at which a bootstrap was last reached, until it is identified as a shoal peer."""
    is_dialled: bool = False
    """True while connected by this node's dial."""
    disconnect_reason: DisconnectReason = DisconnectReason.LOST
    """Reason for which the connection will end, or has ended."""

    @property
    def known(self) -> tuple[str, ...]:
        """Proven and self-reported addresses, the most reliable first."""
        return self.given or tuple(dict.fromkeys((*self.dialled, *self.self_reported)))[:_MAX_KNOWN]

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses to dial: known ones first, then third-party ones, one by each source in
        turn."""
        if self.given:
            return self.given
        in_turn = chain.from_iterable(zip_longest(*self.third_party.values()))
        third_party = (address for address in in_turn if address is not None)
        return tuple(dict.fromkeys((*self.known, *third_party)))[:MAX_ADDRS_PER_PEER]

    def is_proven(self, place: str) -> bool:
        """Return whether the peer has answered at `place`."""
        return place in self.dialled

    def source_of(self, address: str) -> str | None:
        """Return the source that is charged for dialling `address`; None for this node or its
        user."""
        if address in self.self_reported:
            return self.self_reported_by
        return next(
            (source for source, addresses in self.third_party.items() if address in addresses), None
        )

    def prove(self, address: str) -> None:
        """Record that the peer has answered at `address`."""
        if address not in self.dialled[:1]:
            self.dialled = tuple(dict.fromkeys((address, *self.dialled)))[:MAX_DIALLED]

    def add_third_party(self, addresses: tuple[str, ...], source: str | None) -> None:
        """Add third-party addresses."""
        old = self.third_party.get(source, ())
        if old != addresses and (old or len(self.third_party) < _MAX_SOURCES):
            self.third_party[source] = tuple(dict.fromkeys((*addresses, *old)))[:MAX_ADDRS_PER_PEER]


class Targets:
    """A bounded set of targets: idle peers with the most failures are evicted."""

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
        """Peers named by the user. They are dialled even if no peers are missing."""

    def get(self, peer_id: PeerId) -> DialTarget | None:
        """Return the target for `peer_id`."""
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
        source: AddressSource | None = None,
    ) -> None:
        """Add a peer. Third-party addresses come after known ones, and are ignored while it is
        connected.

        `source` is None for addresses that this node knows itself.
        """
        is_self_reported = kind in SELF_REPORTED_KINDS
        if connected and not is_self_reported:
            return
        if source is None:
            source_key, addresses = None, dialable(peer.addresses)
        else:
            source_key = source.source
            addresses = dialable(peer.addresses, source.is_allowed)
        if not addresses:
            return
        target = self._targets.get(peer.peer_id)
        if target is None:
            if not self._make_room(source_key, is_self_reported=is_self_reported):
                return
            state = TargetState.CONNECTED if connected else TargetState.IDLE
            target = DialTarget(peer_id=peer.peer_id, kind=kind, due=now, state=state)
            self._targets[peer.peer_id] = target
        if is_self_reported:
            target.self_reported, target.self_reported_by = addresses, source_key
            return
        if kind is TargetKind.MDNS and not set(addresses) <= set(target.addresses):
            target.due = now
        target.add_third_party(addresses, source_key)

    def due(self, *, now: float, num_missing: int) -> list[DialTarget]:
        """Return the targets to dial now: bootstraps always, others while peers are missing."""
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
        """Return the targets neither dialled nor connected; only bootstraps if no peers are
        missing."""
        some: Mapping[PeerId, DialTarget] = self._targets if num_missing > 0 else self._bootstraps
        return [target for target in some.values() if target.state is TargetState.IDLE]

    def seconds_to_next(self, *, now: float, num_missing: int) -> float:
        """Return the seconds until the next target is due."""
        waits = [_due(t, num_missing) - now for t in self._idle(num_missing)]
        # Targets that are due but beyond the number of dials allowed wait for a wake-up.
        return min((wait for wait in waits if wait > 0), default=self._settings.backoff_max_s)

    def note_failure(
        self, target: DialTarget, error: str, *, now: float, is_alone: bool = True
    ) -> None:
        """Record a failed dial: back off, and forget third-party peers after some failures."""
        target.attempts += 1
        target.state = TargetState.IDLE
        target.last_error = error
        target.due = now + self._backoff_s(target, is_alone=is_alone)
        if target.kind in EXPENDABLE_KINDS and target.attempts >= self._settings.give_up_after:
            self.drop(target.peer_id)

    def postpone(self, target: DialTarget, wait_s: float, *, now: float) -> None:
        """Postpone a peer with no address that may be dialled yet."""
        target.state = TargetState.IDLE
        first_s = self._settings.backoff_first_s
        # With jitter, or nodes that started together would stay synchronised.
        target.due = now + max(first_s, wait_s) + self._rng.uniform(0, 4 * first_s)

    def note_lost(self, target: DialTarget, *, now: float, is_alone: bool = False) -> None:
        """Record a lost connection: redial at once, or back off if one side disconnected the
        other."""
        target.state = TargetState.IDLE
        target.attempts = 0
        target.is_dialled = False
        if target.disconnect_reason is DisconnectReason.LOST:
            target.due = now + self._rng.uniform(0, self._settings.backoff_first_s)
            return
        hurry = is_alone and target.disconnect_reason is DisconnectReason.FULL
        wait_s = self._settings.min_backoff_s if hurry else self._settings.backoff_s
        target.due = now + wait_s * self._rng.uniform(0.5, 1.5)
        target.visit_due = now + self._settings.revisit_s * self._rng.uniform(0.5, 1.5)
        if target.disconnect_reason is DisconnectReason.FULL:
            target.last_error = "it was full, and disconnected this node"

    def never_connected(self, *, now: float) -> DialTarget | None:
        """Return a peer to visit that was never connected, with the fewest failures."""
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

    def surplus_bootstraps(self, *, now: float, enough_since: float) -> list[DialTarget]:
        """Return connected bootstraps, dialled by this node, that are no longer needed."""
        return [
            target
            for target in self._targets.values()
            if target.kind is TargetKind.BOOTSTRAP
            and target.state is TargetState.CONNECTED
            and target.is_dialled
            and now - enough_since >= self._settings.backoff_s
            and now - target.connected_at >= self._settings.visit_stay_s
        ]

    def snapshot(self, *, now: float, num_missing: int) -> tuple[Target, ...]:
        """Return all targets for the debug view `peers`, bootstraps first."""
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
        """Return the remaining back-off of a peer that was full, in seconds; None for any other."""
        target = self._targets.get(peer_id)
        was_full = (
            target is not None
            and target.disconnect_reason is DisconnectReason.FULL
            and not target.attempts
        )
        if target is None or not was_full or target.state is not TargetState.IDLE:
            return None
        return max(0.0, _due(target, num_missing) - now)

    def _backoff_s(self, target: DialTarget, *, is_alone: bool) -> float:
        """Full jitter: uniform up to a bound that doubles with each failure."""
        bootstrap = target.kind is TargetKind.BOOTSTRAP
        settings = self._settings
        ceiling = settings.bootstrap_backoff_max_s if bootstrap else settings.backoff_max_s
        if bootstrap and target.disconnect_reason is not DisconnectReason.LOST and not is_alone:
            ceiling = settings.backoff_s  # most likely it is still full
        bound = settings.backoff_first_s * 2 ** min(target.attempts, 16)
        return self._rng.uniform(0, min(ceiling, bound))

    def _make_room(self, source: str | None, *, is_self_reported: bool) -> bool:
        """Evict a third-party target, of the source with the most; for a self-reported one also an
        inbound peer."""
        if len(self._targets) < self._settings.max_targets:
            return True
        idle = [
            target
            for target in self._targets.values()
            if target.state is TargetState.IDLE and target.kind is not TargetKind.BOOTSTRAP
        ]
        third_party = [target for target in idle if not target.known]
        num_by_source = Counter(next(iter(target.third_party), None) for target in third_party)
        if (
            third_party
            and not is_self_reported
            and max(num_by_source.values()) < num_by_source[source]
        ):
            return False
        unproven = [t for t in idle if t.kind is TargetKind.INBOUND and not t.dialled]
        pool = third_party or (unproven if is_self_reported else [])
        if not pool:
            return False
        victim = max(
            pool, key=lambda t: (num_by_source[next(iter(t.third_party), None)], t.attempts)
        )
        self.drop(victim.peer_id)
        return True


def _wanted(target: DialTarget, num_missing: int) -> bool:
    if target.state is not TargetState.IDLE:
        return False
    return target.kind is TargetKind.BOOTSTRAP or num_missing > 0


def _due(target: DialTarget, num_missing: int) -> float:
    """Return when to dial; a bootstrap that this node disconnected only for its next visit."""
    return target.due if num_missing > 0 else max(target.due, target.visit_due)
