"""Keeps the node connected, for ever.

    bootstrap addresses ─┐
    saved peers ─────────┤                  full-jitter backoff
    mDNS finds ──────────┼─► targets ─► dial ──────────────► idle ─► dial …
    peer exchange ───────┘                └─► connected ─► lost ─► dial at once

Bootstraps are always wanted until they have been met; the others while fewer than `target_peers`
are connected.  A lost peer is redialled within half a second, then at random delays whose bound
doubles up to 30 s (8 s for bootstraps, so that one that returns is found within 10 s however long
it was away; 17 s for an address at which no peer of shoal has answered yet).  A peer that was full,
and let this one go, is left alone for about a minute; a bootstrap is let go once there have been
enough others for a minute, and visited every ten or so.
With enough peers, each known peer that this node has never been connected to is visited once: from
then on its groups count for its own network (`shoal_p2p.peers.met_networks`).
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
from shoal_p2p.disk import KeptFile
from shoal_p2p.net.host import DialError
from shoal_p2p.net.interface import Host
from shoal_p2p.peers.address_policy import AddressPolicy, AddressSource
from shoal_p2p.peers.dialling import Dialler
from shoal_p2p.peers.exchange_schedule import ExchangeSchedule
from shoal_p2p.peers.news import BarNews, BootstrapNews
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
"""Longest time until a peer is on the disk of which this node has learnt where it listens."""
_SAID_S = 2 * REPLY_S
"""Most have said by then who they are, and of which swarm; others are looked at less often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """The peers that discovery prefers."""

    rank: Callable[[PeerId], float] = lambda _peer: 0.0
    """Peers of higher rank are dialled first."""
    counts: Callable[[PeerId], bool] = lambda _peer: True
    """True if a connected peer is of the swarm. Strangers to it, met as a relay's guests, do not
    end the search for peers."""
    is_needed: Callable[[PeerId], bool] = lambda _peer: False
    """True for a bootstrap that stays connected: a relay through which this node is reached."""


class Discovery:
    """Start with ``await nursery.start(discovery.run)``, after the host."""

    def __init__(
        self,
        *,
        host: Host,
        hearsay: AddressPolicy,
        bootstrap: tuple[str, ...] = (),
        file: KeptFile | None = None,
        fetch_peers: FetchPeers | None = None,
        settings: DiscoverySettings | None = None,
        preferences: Preferences | None = None,
        rng: random.Random | None = None,
        wall_ms: Callable[[], int] = wall_ms,
    ) -> None:
        """`file` keeps peers across restarts; `fetch_peers` asks a connected one whom it knows."""
        self._settings = settings or DiscoverySettings()
        self._host = host
        self._hearsay = hearsay
        self._dialler = Dialler(host, hearsay, self._settings)
        self._bootstrap = parse_bootstrap(bootstrap)
        self._bootstrap_ids = frozenset(address.peer_id for address in self._bootstrap)
        self._file = file
        self._book = PeerBook()
        self._fetch_peers = fetch_peers
        self._prefers = preferences or Preferences()
        self._rng = rng or random.Random()
        self._told: dict[PeerId, tuple[str, ...]] = {}
        """Addresses that each connected peer says it listens at, as last looked at."""
        self._wall_ms = wall_ms
        self._targets = Targets(self._settings, self._rng, self._prefers.rank)
        self._bar_news = BarNews()
        self._wake = trio.Event()
        self._met = trio.Event()
        """Set when a peer has connected, or too few are left."""
        self._met_at = -math.inf
        self._dials = trio.CapacityLimiter(self._settings.max_dials)
        host.add_peer_callbacks(connected=self._on_connected, disconnected=self._on_disconnected)

    @property
    def book(self) -> PeerBook:
        """The saved peers."""
        return self._book

    @property
    def solo(self) -> bool:
        """True while nobody is connected."""
        return not self._host.connected_peers()

    @property
    def is_alone(self) -> bool:
        """True while nobody of the swarm is connected but for bootstraps."""
        return self.num_missing >= self._settings.target_peers

    @property
    def num_missing(self) -> int:
        """Peers of the swarm, bootstraps apart, that are connected too few; 0 with enough."""
        most, bootstraps = self._settings.target_peers, self._bootstrap_ids
        others = (peer for peer in self._host.connected_peers() if peer not in bootstraps)
        return most - sum(1 for _ in islice(filter(self._prefers.counts, others), most))

    def snapshot(self) -> tuple[Target, ...]:
        """Return every target, bootstraps first."""
        return self._targets.snapshot(now=trio.current_time(), num_missing=self.num_missing)

    def add_peer(
        self, peer: PeerAddresses, kind: TargetKind, said_by: AddressSource | None = None
    ) -> None:
        """Learn of a peer; its addresses are checked, and what others say is tried last.

        `said_by` is None for what the user has said, or this node knows by itself.
        """
        if peer.peer_id == self._host.peer_id:
            return
        now = trio.current_time()
        if peer.peer_id not in self._targets and (saved := self._book.get(peer.peer_id)):
            known = PeerAddresses(peer_id=peer.peer_id, addresses=saved.addresses)
            connected = peer.peer_id in self._host.connected_peers()
            self._targets.add(known, TargetKind.SAVED, connected=connected, now=now)
        connected = peer.peer_id in self._host.connected_peers()
        self._targets.add(peer, kind, connected=connected, now=now, said_by=said_by)
        self._wake.set()

    def add_announced(self, peer: PeerAddresses) -> None:
        """Learn of a peer that mDNS found, where any machine may announce anything."""
        self.add_peer(peer, TargetKind.MDNS, AddressSource(source="mdns", homes=None))

    def full_s(self, peer_id: PeerId) -> float | None:
        """Return for how long a peer is left alone that was full; None for any other."""
        now = trio.current_time()
        return self._targets.full_s(peer_id, now=now, num_missing=self.num_missing)

    def note_full(self, peer_id: PeerId) -> None:
        """`peer_id` is about to let this node go, or this node it, because one of them is full."""
        target = self._targets.get(peer_id)
        if target is not None and target.state is TargetState.CONNECTED:
            target.parting = DisconnectReason.FULL

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run for ever."""
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

    async def _keep_book(self, file: KeptFile) -> None:
        """Save whom this node meets at once: it may go down in its first minute."""
        book = self._book
        await file.keep(book.to_json, urgent=lambda: book.num_met, within_s=_SAVED_S)

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
            self._targets.put_off(target, result.wait_s, now=trio.current_time())
        else:
            self._note_failure(target, result.errors)
        self._wake.set()

    def _note_failure(self, target: DialTarget, errors: list[DialError]) -> None:
        barred = next((error for error in errors if error.denial), None)
        told = barred or (errors[0] if errors else "the connection was lost at once")
        self._book.note_failed(target.peer_id)
        if target.kind is TargetKind.BOOTSTRAP:
            cut_off = any(error.is_closed_early for error in errors)
            target.parting = DisconnectReason.FULL if cut_off else DisconnectReason.LOST
        now = trio.current_time()
        self._targets.note_failure(target, str(told), now=now, is_alone=self.is_alone)
        if target.kind is TargetKind.BOOTSTRAP and barred is not None and barred.denial is not None:
            address = f"{target.addresses[0]}/p2p/{target.peer_id}"
            line = self._bar_news.look(target.peer_id, address, barred.denial)
            if line is not None:
                logger.warning("%s", line)

    def _on_answer(self, target: DialTarget, address: str, place: str) -> None:
        """The peer has answered at an address: nobody's word displaces that."""
        if target.given:
            target.reached_at = place
        else:
            target.prove(place)
        peer = PeerAddresses(peer_id=target.peer_id, addresses=(address,))
        self._book.note_connected(peer, now_ms=self._wall_ms())

    async def _news_loop(self) -> None:
        """Say that no bootstrap answers, at a rate that a person can read for days."""
        if not self._bootstrap:
            return
        bootstraps = self._bootstrap_ids
        news = BootstrapNews(trio.current_time())
        while True:
            await trio.sleep(self._settings.exchange_interval_s)
            connected = self._host.connected_peers()
            known = (self._targets.get(peer_id) for peer_id in bootstraps)
            line = news.look(
                answering=bool(bootstraps & connected) or self._has_let_go(),
                now=trio.current_time(),
                num_peers=len(connected),
                last_error=next((t.last_error for t in known if t and t.last_error), ""),
            )
            if line is not None:
                logger.warning("%s", line)

    def _has_let_go(self) -> bool:
        """Return whether one of them answered, and is only not needed or full since.

        For who knows nobody else, one that is full at every dial has not answered.
        """
        targets = (self._targets.get(peer_id) for peer_id in self._bootstrap_ids)
        return any(
            t.parting is not DisconnectReason.LOST and (t.attempts == 0 or not self.is_alone)
            for t in targets
            if t is not None
        )

    async def _leave_loop(self) -> None:
        """Let the bootstraps go that this node has had enough peers beside."""
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
            for target in self._targets.needless(now=now, enough_since=enough_since):
                if not self._prefers.is_needed(target.peer_id):
                    target.parting = DisconnectReason.ENOUGH
                    await self._host.disconnect(target.peer_id)

    async def _visit_loop(self) -> None:
        """Connect once to each known peer never met, one at a time, while no peers are missing."""
        settings = self._settings
        while True:
            await trio.sleep(settings.next_visit_s * self._rng.uniform(0.5, 1.5))
            target = self._targets.never_met(now=trio.current_time())
            if target is None or self.num_missing > 0:
                continue
            target.state = TargetState.DIALING
            await self._dial_target(target)
            await trio.sleep(settings.next_visit_s)
            if target.is_dialled and self.num_missing == 0:
                target.parting = DisconnectReason.ENOUGH
                await self._host.disconnect(target.peer_id)

    # Events of the host

    def _on_connected(self, peer_id: PeerId) -> None:
        target = self._targets.get(peer_id)
        if target is not None and target.state is not TargetState.CONNECTED:
            target.state = TargetState.CONNECTED
            target.parting = DisconnectReason.LOST
            target.connected_at = trio.current_time()
            target.attempts = 0
            target.last_error = ""
            peer = PeerAddresses(peer_id=peer_id, addresses=target.known)
            self._book.note_connected(peer, now_ms=self._wall_ms(), by_dial=False)
        self._bar_news.answered(peer_id)
        self._wake.set()
        self._met_at = trio.current_time()
        self._met.set()

    def _on_disconnected(self, peer_id: PeerId) -> None:
        target = self._targets.get(peer_id)
        self._told.pop(peer_id, None)
        if target is not None and target.state is TargetState.CONNECTED:
            self._targets.note_lost(target, now=trio.current_time(), is_alone=self.is_alone)
        self._wake.set()
        if self.num_missing > 0:
            self._met.set()

    def _learn_connected(self) -> None:
        """Remember where connected peers say they listen, so that they can be redialled."""
        for peer_id in self._host.connected_peers():
            self._prove_bootstrap(peer_id)
            said = self._host.peer_addresses(peer_id)
            if not said or self._told.get(peer_id) == said or not self._prefers.counts(peer_id):
                continue
            self._told[peer_id] = said
            peer = PeerAddresses(peer_id=peer_id, addresses=said)
            self.add_peer(peer, TargetKind.INBOUND, self._hearsay.speaker(peer_id))
            target = self._targets.get(peer_id)
            if target is not None and target.kind is not TargetKind.BOOTSTRAP:
                peer = PeerAddresses(peer_id=peer_id, addresses=target.known)
                self._book.note_connected(peer, now_ms=self._wall_ms(), by_dial=False)

    def _prove_bootstrap(self, peer_id: PeerId) -> None:
        """Dial a place without a limit from now on if a peer of shoal has answered there."""
        target = self._targets.get(peer_id)
        if target is not None and target.reached_at and self._host.is_shoal_peer(peer_id):
            target.prove(target.reached_at)
            target.reached_at = ""

    # Peer exchange and saving

    async def _exchange_loop(self) -> None:
        """Ask connected peers whom they know."""
        asking = ExchangeSchedule(self._settings, self._bootstrap_ids, self._rng)
        while True:
            connected = frozenset(filter(self._prefers.counts, self._host.connected_peers()))
            self._learn_connected()
            for peer_id in asking.whom(connected, trio.current_time()):
                await self._exchange(peer_id)
            await self._until_others(connected, asking.pause_s(connected))

    async def _until_others(self, known: frozenset[PeerId], pause_s: float) -> None:
        """Wait until others than these may be connected, or one of these may be asked again.

        Some say late of which swarm they are, and where they listen: that is looked for a while.
        """
        settings = self._settings
        is_quiet = trio.current_time() - self._met_at >= _SAID_S
        all_say_so = len(known) == len(self._host.connected_peers())
        if is_quiet or (all_say_so and not self.num_missing):
            most_s = min(pause_s, settings.exchange_interval_s)
            with trio.move_on_after(max(0.0, most_s - settings.backoff_first_s)):
                await self._met.wait()
        self._met = trio.Event()
        await trio.sleep(settings.backoff_first_s)

    async def _exchange(self, peer_id: PeerId) -> None:
        if self._fetch_peers is None:
            return
        speaker = self._hearsay.speaker(peer_id)
        try:
            peers = await self._fetch_peers(peer_id)
        except Exception as error:  # noqa: BLE001 - injected code over a peer's bytes
            logger.debug("no peers from %s: %r", peer_id, error)
            return
        for peer in peers[:MAX_PEERS_IN_LIST]:
            self.add_peer(peer, TargetKind.EXCHANGE, speaker)
