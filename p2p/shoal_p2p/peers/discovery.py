"""Keeps the node connected.

    bootstrap addresses ─┐
    saved peers ─────────┤                  full-jitter backoff
    mDNS ────────────────┼─► targets ─► dial ──────────────► idle ─► dial …
    peer exchange ───────┘                └─► connected ─► lost ─► dial at once

Bootstraps are dialled until they have been connected once; other peers while fewer than
`target_peers` are connected. A lost peer is redialled within half a second, then at random delays
with a bound that doubles up to 30 s (8 s for bootstraps, so that one that returns is found within
10 s; 17 s for an address at which no shoal peer has answered yet). A peer that was full and
disconnected this node is not dialled for about a minute. A bootstrap is disconnected after a minute
with enough other peers, and visited about every ten minutes. With enough peers, each known peer
that was never connected is visited once; from then on its groups count for its own network
(`shoal_p2p.peers.met_networks`).
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import trio

from shoal_base.waits import REPLY_S
from shoal_ipc.answers.peer import Target
from shoal_p2p.disk import KeptState
from shoal_p2p.events import Event, PeerDropped
from shoal_p2p.net.host import DialError
from shoal_p2p.net.interface import Host
from shoal_p2p.peers.address_policy import AddressPolicy, AddressSource
from shoal_p2p.peers.dialling import Dialler
from shoal_p2p.peers.exchange_schedule import ExchangeSchedule
from shoal_p2p.peers.news import BootstrapLog, DenialLog
from shoal_p2p.peers.outside import wall_ms
from shoal_p2p.peers.peer_book import PeerBook
from shoal_p2p.peers.targets import (
    DialTarget,
    DisconnectReason,
    DiscoverySettings,
    FetchPeers,
    TargetKind,
    Targets,
    TargetState,
    parse_bootstrap,
)
from shoal_wire.limits import MAX_PEERS_IN_LIST
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

__all__ = [
    "Discovery",
    "DiscoverySettings",
    "FetchPeers",
    "TargetKind",
    "TargetState",
    "parse_bootstrap",
]

logger = logging.getLogger(__name__)

_SAVED_S = 0.25
"""Longest delay until a new peer's address is on disk."""
_IDENTIFY_S = 2 * REPLY_S
"""Most peers have finished identify and named their swarm by then; later checks are less
frequent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """Callbacks by which discovery prefers peers."""

    rank: Callable[[PeerId], float] = lambda _peer: 0.0
    """Peers of higher rank are dialled first."""
    counts: Callable[[PeerId], bool] = lambda _peer: True
    """Return whether a connected peer is in the swarm. Others, such as a relay's clients, do not
    count towards `target_peers`."""
    is_needed: Callable[[PeerId], bool] = lambda _peer: False
    """Return whether a bootstrap must stay connected: a relay through which this node is
    reached."""


class Discovery:
    """Finds and dials peers. Start with ``await nursery.start(discovery.run)``, after the host."""

    def __init__(
        self,
        *,
        host: Host,
        address_policy: AddressPolicy,
        bootstrap: tuple[str, ...] = (),
        file: KeptState | None = None,
        fetch_peers: FetchPeers | None = None,
        settings: DiscoverySettings | None = None,
        preferences: Preferences | None = None,
        rng: random.Random | None = None,
        wall_ms: Callable[[], int] = wall_ms,
    ) -> None:
        """`file` keeps peers across restarts. `fetch_peers` asks a connected peer for its peers."""
        self._settings = settings or DiscoverySettings()
        self._host = host
        self._address_policy = address_policy
        self._dialler = Dialler(host, address_policy, self._settings)
        self._bootstrap = parse_bootstrap(bootstrap)
        self._bootstrap_ids = frozenset(address.peer_id for address in self._bootstrap)
        self._file = file
        self._book = PeerBook()
        self._fetch_peers = fetch_peers
        self._prefers = preferences or Preferences()
        self._rng = rng or random.Random()
        self._announced_addresses: dict[PeerId, tuple[str, ...]] = {}
        """Addresses announced by each connected peer, as last checked."""
        self._wall_ms = wall_ms
        self._targets = Targets(self._settings, self._rng, self._prefers.rank)
        self._denial_log = DenialLog()
        self._wake = trio.Event()
        self._peers_changed = trio.Event()
        """Set when a peer has connected, or too few are left."""
        self._last_connected_at = -math.inf
        self._dials = trio.CapacityLimiter(self._settings.max_dials)
        host.add_peer_callbacks(connected=self._on_connected, disconnected=self._on_disconnected)

    @property
    def book(self) -> PeerBook:
        """The saved peers."""
        return self._book

    @property
    def solo(self) -> bool:
        """True while no peer is connected."""
        return not self._host.connected_peers()

    @property
    def is_alone(self) -> bool:
        """True while no peer of the swarm is connected, apart from bootstraps."""
        return self.num_missing >= self._settings.target_peers

    @property
    def num_missing(self) -> int:
        """Number of peers of the swarm, apart from bootstraps, missing from `target_peers`; at
        least 0."""
        most, bootstraps = self._settings.target_peers, self._bootstrap_ids
        others = (peer for peer in self._host.connected_peers() if peer not in bootstraps)
        return most - sum(1 for _ in islice(filter(self._prefers.counts, others), most))

    def snapshot(self) -> tuple[Target, ...]:
        """Return every target, bootstraps first."""
        return self._targets.snapshot(now=trio.current_time(), num_missing=self.num_missing)

    def add_peer(
        self, peer: PeerAddresses, kind: TargetKind, source: AddressSource | None = None
    ) -> None:
        """Add a peer. Its addresses are checked, and third-party ones are dialled last.

        `source` is None for addresses from the user, or known to this node itself.
        """
        if peer.peer_id == self._host.peer_id:
            return
        now = trio.current_time()
        if peer.peer_id not in self._targets and (saved := self._book.get(peer.peer_id)):
            known = PeerAddresses(peer_id=peer.peer_id, addresses=saved.addresses)
            connected = peer.peer_id in self._host.connected_peers()
            self._targets.add(known, TargetKind.SAVED, connected=connected, now=now)
        connected = peer.peer_id in self._host.connected_peers()
        self._targets.add(peer, kind, connected=connected, now=now, source=source)
        self._wake.set()

    def add_announced(self, peer: PeerAddresses) -> None:
        """Add a peer found by mDNS, where any machine may announce anything."""
        self.add_peer(peer, TargetKind.MDNS, AddressSource(source="mdns", networks=None))

    def full_s(self, peer_id: PeerId) -> float | None:
        """Return the remaining back-off of a peer that was full, in seconds; None for any other."""
        now = trio.current_time()
        return self._targets.full_s(peer_id, now=now, num_missing=self.num_missing)

    def on_event(self, event: Event) -> None:
        """Record that a peer is about to be disconnected because this node is full."""
        if isinstance(event, PeerDropped):
            self.expect_full(event.peer_id)

    def expect_full(self, peer_id: PeerId) -> None:
        """Record that `peer_id` and this node are about to disconnect because one of them is
        full."""
        target = self._targets.get(peer_id)
        if target is not None and target.state is TargetState.CONNECTED:
            target.disconnect_reason = DisconnectReason.FULL

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        await self._load()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._dial_loop)
            nursery.start_soon(self._exchange_loop)
            if self._file is not None:
                nursery.start_soon(self._keep_book, self._file)
            nursery.start_soon(self._news_loop)
            nursery.start_soon(self._leave_loop)
            nursery.start_soon(self._visit_loop)
            task_status.started()

    async def _load(self) -> None:
        now = trio.current_time()
        for address in self._bootstrap:
            self._targets.put_bootstrap(address.peer_id, address.transport, now=now)
        self._targets.drop(self._host.peer_id)
        if self._file is not None:
            self._book = await self._file.load(PeerBook.from_json) or PeerBook()
        for entry in self._book.ranked():
            peer = PeerAddresses(peer_id=entry.peer_id, addresses=entry.addresses)
            self.add_peer(peer, TargetKind.SAVED)
        for peer_id in self._host.connected_peers():
            self._on_connected(peer_id)

    async def _keep_book(self, file: KeptState) -> None:
        """Save new peers at once, since the node may stop within its first minute."""
        book = self._book
        await file.keep(book.to_json, urgent=lambda: book.num_urgent, within_s=_SAVED_S)

    # Dialling

    async def _dial_loop(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                self._wake = trio.Event()
                missing = self.num_missing
                for target in self._targets.due(now=trio.current_time(), num_missing=missing):
                    target.state = TargetState.DIALING
                    nursery.start_soon(self._dial_target, target)
                wait_s = self._targets.seconds_to_next(now=trio.current_time(), num_missing=missing)
                with trio.move_on_after(wait_s):
                    await self._wake.wait()

    async def _dial_target(self, target: DialTarget) -> None:
        async with self._dials:
            result = await self._dialler.dial(target, self._on_answer)
        if target.peer_id in self._host.connected_peers():
            target.is_dialled = True
            self._on_connected(target.peer_id)
        elif result.wait_s is not None:
            self._targets.postpone(target, result.wait_s, now=trio.current_time())
        else:
            self._note_failure(target, result.errors)
        self._wake.set()

    def _note_failure(self, target: DialTarget, errors: list[DialError]) -> None:
        denied = next((error for error in errors if error.denial), None)
        cause = denied or (errors[0] if errors else "the connection was lost at once")
        self._book.note_failed(target.peer_id)
        if target.kind is TargetKind.BOOTSTRAP:
            closed_early = any(error.is_closed_early for error in errors)
            target.disconnect_reason = (
                DisconnectReason.FULL if closed_early else DisconnectReason.LOST
            )
        now = trio.current_time()
        self._targets.note_failure(target, str(cause), now=now, is_alone=self.is_alone)
        if target.kind is TargetKind.BOOTSTRAP and denied is not None and denied.denial is not None:
            address = f"{target.addresses[0]}/p2p/{target.peer_id}"
            line = self._denial_log.look(target.peer_id, address, denied.denial)
            if line is not None:
                logger.warning("%s", line)

    def _on_answer(self, target: DialTarget, address: str, place: str) -> None:
        """Record that the peer answered at an address, which third-party addresses cannot
        displace."""
        if target.given:
            target.reached_at = place
        else:
            target.prove(place)
        peer = PeerAddresses(peer_id=target.peer_id, addresses=(address,))
        self._book.note_connected(peer, now_ms=self._wall_ms())

    async def _news_loop(self) -> None:
        """Log that no bootstrap answers, at a rate suited to people."""
        if not self._bootstrap:
            return
        bootstraps = self._bootstrap_ids
        news = BootstrapLog(trio.current_time())
        while True:
            await trio.sleep(self._settings.exchange_interval_s)
            connected = self._host.connected_peers()
            known = (self._targets.get(peer_id) for peer_id in bootstraps)
            line = news.look(
                answering=bool(bootstraps & connected) or self._has_disconnected_us(),
                now=trio.current_time(),
                num_peers=len(connected),
                last_error=next((t.last_error for t in known if t and t.last_error), ""),
            )
            if line is not None:
                logger.warning("%s", line)

    def _has_disconnected_us(self) -> bool:
        """Return whether a bootstrap has answered and disconnected only because of enough or too
        many peers.

        For a node without other peers, a bootstrap that is full at each dial has not answered.
        """
        targets = (self._targets.get(peer_id) for peer_id in self._bootstrap_ids)
        return any(
            t.disconnect_reason is not DisconnectReason.LOST
            and (t.attempts == 0 or not self.is_alone)
            for t in targets
            if t is not None
        )

    async def _leave_loop(self) -> None:
        """Disconnect bootstraps once this node has had enough other peers for a while."""
        if not self._bootstrap:
            return
        enough_since: float | None = None
        while True:
            await trio.sleep(self._settings.exchange_interval_s)
            now = trio.current_time()
            if self.num_missing > 0:
                enough_since = None
                continue
            enough_since = now if enough_since is None else enough_since
            for target in self._targets.surplus_bootstraps(now=now, enough_since=enough_since):
                if not self._prefers.is_needed(target.peer_id):
                    target.disconnect_reason = DisconnectReason.ENOUGH
                    await self._host.disconnect(target.peer_id)

    async def _visit_loop(self) -> None:
        """Connect once to each known peer never connected before, one at a time, while no peers are
        missing."""
        settings = self._settings
        while True:
            await trio.sleep(settings.next_visit_s * self._rng.uniform(0.5, 1.5))
            target = self._targets.never_connected(now=trio.current_time())
            if target is None or self.num_missing > 0:
                continue
            target.state = TargetState.DIALING
            await self._dial_target(target)
            await trio.sleep(settings.next_visit_s)
            if target.is_dialled and self.num_missing == 0:
                target.disconnect_reason = DisconnectReason.ENOUGH
                await self._host.disconnect(target.peer_id)

    # Events of the host

    def _on_connected(self, peer_id: PeerId) -> None:
        target = self._targets.get(peer_id)
        if target is not None and target.state is not TargetState.CONNECTED:
            target.state = TargetState.CONNECTED
            target.disconnect_reason = DisconnectReason.LOST
            target.connected_at = trio.current_time()
            target.attempts = 0
            target.last_error = ""
            peer = PeerAddresses(peer_id=peer_id, addresses=target.known)
            self._book.note_connected(peer, now_ms=self._wall_ms(), by_dial=False)
        self._denial_log.answered(peer_id)
        self._wake.set()
        self._last_connected_at = trio.current_time()
        self._peers_changed.set()

    def _on_disconnected(self, peer_id: PeerId) -> None:
        target = self._targets.get(peer_id)
        self._announced_addresses.pop(peer_id, None)
        if target is not None and target.state is TargetState.CONNECTED:
            self._targets.note_lost(target, now=trio.current_time(), is_alone=self.is_alone)
        self._wake.set()
        if self.num_missing > 0:
            self._peers_changed.set()

    def _learn_connected(self) -> None:
        """Record the announced addresses of connected peers for redialling."""
        for peer_id in self._host.connected_peers():
            self._prove_bootstrap(peer_id)
            announced = self._host.peer_addresses(peer_id)
            if (
                not announced
                or self._announced_addresses.get(peer_id) == announced
                or not self._prefers.counts(peer_id)
            ):
                continue
            self._announced_addresses[peer_id] = announced
            peer = PeerAddresses(peer_id=peer_id, addresses=announced)
            self.add_peer(peer, TargetKind.INBOUND, self._address_policy.speaker(peer_id))
            target = self._targets.get(peer_id)
            if target is not None and target.kind is not TargetKind.BOOTSTRAP:
                peer = PeerAddresses(peer_id=peer_id, addresses=target.known)
                self._book.note_connected(peer, now_ms=self._wall_ms(), by_dial=False)

    def _prove_bootstrap(self, peer_id: PeerId) -> None:
        """Mark an address as proven, and so unlimited, once a shoal peer has answered there."""
        target = self._targets.get(peer_id)
        if target is not None and target.reached_at and self._host.is_shoal_peer(peer_id):
            target.prove(target.reached_at)
            target.reached_at = ""

    # Peer exchange and saving

    async def _exchange_loop(self) -> None:
        """Ask connected peers for their peers."""
        schedule = ExchangeSchedule(self._settings, self._bootstrap_ids, self._rng)
        while True:
            connected = frozenset(filter(self._prefers.counts, self._host.connected_peers()))
            self._learn_connected()
            for peer_id in schedule.choose(connected, trio.current_time()):
                await self._exchange(peer_id)
            await self._wait_for_peers(connected, schedule.pause_s(connected))

    async def _wait_for_peers(self, known: frozenset[PeerId], pause_s: float) -> None:
        """Wait until other peers may be connected, or one of these may be asked again.

        Some peers finish identify late, so their swarm and addresses are checked for a while.
        """
        settings = self._settings
        is_quiet = trio.current_time() - self._last_connected_at >= _IDENTIFY_S
        all_say_so = len(known) == len(self._host.connected_peers())
        if is_quiet or (all_say_so and not self.num_missing):
            most_s = min(pause_s, settings.exchange_interval_s)
            with trio.move_on_after(max(0.0, most_s - settings.backoff_first_s)):
                await self._peers_changed.wait()
        self._peers_changed = trio.Event()
        await trio.sleep(settings.backoff_first_s)

    async def _exchange(self, peer_id: PeerId) -> None:
        if self._fetch_peers is None:
            return
        speaker = self._address_policy.speaker(peer_id)
        try:
            peers = await self._fetch_peers(peer_id)
        except Exception as error:  # noqa: BLE001 - injected code over a peer's bytes
            logger.debug("no peers from %s: %r", peer_id, error)
            return
        for peer in peers[:MAX_PEERS_IN_LIST]:
            self.add_peer(peer, TargetKind.EXCHANGE, speaker)
