"""Keeps the node connected, for ever.

    bootstrap addresses ─┐
    saved peers ─────────┤                  full-jitter backoff
    mDNS finds ──────────┼─► targets ─► dial ──────────────► idle ─► dial …
    peer exchange ───────┘                └─► connected ─► lost ─► dial at once

Bootstraps are always wanted; the others while fewer than `target_peers` are connected.  A lost
peer is redialled within half a second, then at random delays whose bound doubles up to 30 s (8 s
for bootstraps, so that one that returns is found within 10 s however long it was away).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import trio

from p2p.host import DialError
from p2p.libp2p_address import PeerAddress, is_unspecified, parse_peer_address, parse_transport
from p2p.peer_book import PeerAddr, PeerBook, load_peer_book, save_peer_book
from shoal_wire.limits import MAX_ADDRS_PER_PEER, MAX_PEERS_IN_LIST
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

logger = logging.getLogger(__name__)

FetchPeers = Callable[[PeerId], Awaitable[list[PeerAddr]]]
"""Ask a connected peer whom it knows. May raise; must respect cancellation."""


class TargetKind(StrEnum):
    """How we came to know a peer; the first is kept longest."""

    BOOTSTRAP = "bootstrap"
    SAVED = "saved"
    MDNS = "mdns"
    EXCHANGE = "exchange"
    INBOUND = "inbound"


class TargetState(StrEnum):
    """What is being done about a peer."""

    IDLE = "idle"
    DIALING = "dialing"
    CONNECTED = "connected"


class Dialer(Protocol):
    """What discovery needs of the host."""

    @property
    def peer_id(self) -> PeerId: ...
    async def dial(
        self,
        address: str,
        *,
        timeout: float = 10.0,  # noqa: ASYNC109 - the host's signature
    ) -> PeerId: ...
    def connected_peers(self) -> frozenset[PeerId]: ...
    def peer_addresses(self, peer_id: PeerId) -> tuple[str, ...]: ...
    def add_peer_callbacks(
        self,
        *,
        connected: Callable[[PeerId], None] | None = None,
        disconnected: Callable[[PeerId], None] | None = None,
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverySettings:
    """When and how often to dial."""

    target_peers: int = 8
    """Peers to stay connected to; bootstraps come on top."""
    backoff_first_s: float = 0.5
    backoff_max_s: float = 30.0
    bootstrap_backoff_max_s: float = 8.0
    dial_timeout_s: float = 8.0
    next_address_s: float = 0.5
    """A peer's next address is tried beside the last after this long."""
    max_dials: int = 8
    max_targets: int = 512
    give_up_after: int = 8
    """Failed dials after which a peer that is only hearsay is forgotten."""
    exchange_interval_s: float = 15.0
    exchange_timeout_s: float = 5.0
    save_interval_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetInfo:
    """One peer that discovery knows of, for the debug CLI."""

    peer_id: PeerId
    address: str
    """The address tried first."""
    kind: TargetKind
    state: TargetState
    attempts: int
    """Failed dials since it was last connected."""
    next_try_s: float | None
    """Seconds until the next dial; None if none is due."""
    last_error: str


@dataclass(slots=True, kw_only=True)
class _Target:
    peer_id: PeerId
    addresses: tuple[str, ...]
    kind: TargetKind
    due: float
    state: TargetState = TargetState.IDLE
    attempts: int = 0
    last_error: str = ""


def parse_bootstrap(addresses: tuple[str, ...]) -> tuple[PeerAddress, ...]:
    """Parse the bootstrap addresses of the settings. Raises ValueError, one line."""
    return tuple(parse_peer_address(address) for address in addresses)


class Discovery:
    """Start with ``await nursery.start(discovery.run)``, after the host."""

    def __init__(
        self,
        *,
        host: Dialer,
        bootstrap: tuple[str, ...] = (),
        book_path: Path | None = None,
        fetch_peers: FetchPeers | None = None,
        settings: DiscoverySettings | None = None,
        rng: random.Random | None = None,
        rank: Callable[[PeerId], float] = lambda _peer: 0.0,
        wall_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._settings = settings or DiscoverySettings()
        self._host = host
        self._bootstrap = parse_bootstrap(bootstrap)
        self._book_path = book_path
        self._book = PeerBook()
        self._fetch_peers = fetch_peers
        self._rng = rng or random.Random()
        self._rank = rank
        self._wall_ms = wall_ms
        self._targets: dict[PeerId, _Target] = {}
        self._wake = trio.Event()
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

    def snapshot(self) -> tuple[TargetInfo, ...]:
        """Return every target, bootstraps first."""
        now = trio.current_time()
        order = list(TargetKind)
        return tuple(
            TargetInfo(
                peer_id=target.peer_id,
                address=target.addresses[0] if target.addresses else "",
                kind=target.kind,
                state=target.state,
                attempts=target.attempts,
                next_try_s=max(0.0, target.due - now) if self._is_wanted(target) else None,
                last_error=target.last_error,
            )
            for target in sorted(self._targets.values(), key=lambda t: order.index(t.kind))
        )

    def add_peer(self, peer: PeerAddr, kind: TargetKind) -> None:
        """Learn of a peer; its addresses are checked, and tried before those known so far."""
        if peer.peer_id == self._host.peer_id:
            return
        addresses = _usable(peer.addresses)
        target = self._targets.get(peer.peer_id)
        if target is None:
            if not addresses or not self._make_room():
                return
            due = trio.current_time()
            target = _Target(peer_id=peer.peer_id, addresses=addresses, kind=kind, due=due)
            if peer.peer_id in self._host.connected_peers():
                target.state = TargetState.CONNECTED
            self._targets[peer.peer_id] = target
        elif target.kind is not TargetKind.BOOTSTRAP:
            merged = dict.fromkeys((*addresses, *target.addresses))
            if kind is TargetKind.MDNS and set(addresses) - set(target.addresses):
                target.due = trio.current_time()
            target.addresses = tuple(merged)[:MAX_ADDRS_PER_PEER]
        self._wake.set()

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run for ever."""
        await self._load()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._dial_loop)
            nursery.start_soon(self._exchange_loop)
            nursery.start_soon(self._save_loop)
            task_status.started()

    async def _load(self) -> None:
        now = trio.current_time()
        for address in self._bootstrap:
            known = self._targets.get(address.peer_id)
            others = known.addresses if known else ()
            self._targets[address.peer_id] = _Target(
                peer_id=address.peer_id,
                addresses=(*others, address.transport),
                kind=TargetKind.BOOTSTRAP,
                due=now,
            )
        self._targets.pop(self._host.peer_id, None)
        if self._book_path is not None:
            try:
                self._book = await trio.to_thread.run_sync(load_peer_book, self._book_path)
            except OSError as error:
                logger.warning("cannot read the peer book: %s", error)
        for entry in self._book.ranked():
            peer = PeerAddr(peer_id=entry.peer_id, addresses=entry.addresses)
            self.add_peer(peer, TargetKind.SAVED)
        for peer_id in self._host.connected_peers():
            self._on_connected(peer_id)

    # Dialling

    async def _dial_loop(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                self._wake = trio.Event()
                for target in self._due_targets():
                    target.state = TargetState.DIALING
                    nursery.start_soon(self._dial_target, target)
                with trio.move_on_after(self._time_to_next()):
                    await self._wake.wait()

    def _is_wanted(self, target: _Target) -> bool:
        if target.state is not TargetState.IDLE:
            return False
        return target.kind is TargetKind.BOOTSTRAP or self._num_missing() > 0

    def _num_missing(self) -> int:
        bootstraps = {address.peer_id for address in self._bootstrap}
        num_connected = len(self._host.connected_peers() - bootstraps)
        return self._settings.target_peers - num_connected

    def _due_targets(self) -> list[_Target]:
        now = trio.current_time()
        due = [t for t in self._targets.values() if self._is_wanted(t) and t.due <= now]
        always = [t for t in due if t.kind is TargetKind.BOOTSTRAP]
        others = [t for t in due if t.kind is not TargetKind.BOOTSTRAP]
        dialing = sum(
            t.state is TargetState.DIALING and t.kind is not TargetKind.BOOTSTRAP
            for t in self._targets.values()
        )
        others.sort(key=lambda target: (-self._rank(target.peer_id), target.due))
        room = min(self._num_missing(), self._settings.max_dials) - dialing
        return always + others[: max(0, room)]

    def _time_to_next(self) -> float:
        waits = [
            target.due - trio.current_time()
            for target in self._targets.values()
            if self._is_wanted(target)
        ]
        # Targets that are due but beyond the number of dials allowed wait for a wake-up.
        return min((wait for wait in waits if wait > 0), default=self._settings.backoff_max_s)

    async def _dial_target(self, target: _Target) -> None:
        async with self._dials:
            errors = await self._race(target)
        if target.peer_id in self._host.connected_peers():
            self._on_connected(target.peer_id)
        else:
            self._note_failure(target, errors)
        self._wake.set()

    async def _race(self, target: _Target) -> list[str]:
        """Dial the addresses, each a moment after the last; the first success ends the race."""
        errors: list[str] = []

        async def try_one(address: str, failed: trio.Event) -> None:
            try:
                await self._host.dial(
                    f"{address}/p2p/{target.peer_id}", timeout=self._settings.dial_timeout_s
                )
                nursery.cancel_scope.cancel()
            except (DialError, ValueError) as error:
                errors.append(str(error))
            finally:
                failed.set()

        async with trio.open_nursery() as nursery:
            for address in target.addresses:
                failed = trio.Event()
                nursery.start_soon(try_one, address, failed)
                with trio.move_on_after(self._settings.next_address_s):
                    await failed.wait()
        return errors

    def _note_failure(self, target: _Target, errors: list[str]) -> None:
        target.attempts += 1
        target.state = TargetState.IDLE
        target.last_error = errors[0] if errors else "the connection was lost at once"
        target.due = trio.current_time() + self._backoff_s(target)
        self._book.note_failed(target.peer_id)
        hearsay = target.kind in (TargetKind.EXCHANGE, TargetKind.INBOUND, TargetKind.MDNS)
        if hearsay and target.attempts >= self._settings.give_up_after:
            self._targets.pop(target.peer_id, None)

    def _backoff_s(self, target: _Target) -> float:
        """Full jitter: uniform up to a bound that doubles with each failure."""
        bootstrap = target.kind is TargetKind.BOOTSTRAP
        settings = self._settings
        ceiling = settings.bootstrap_backoff_max_s if bootstrap else settings.backoff_max_s
        bound = settings.backoff_first_s * 2 ** min(target.attempts, 16)
        return self._rng.uniform(0, min(ceiling, bound))

    # Events of the host

    def _on_connected(self, peer_id: PeerId) -> None:
        target = self._targets.get(peer_id)
        if target is not None and target.state is not TargetState.CONNECTED:
            target.state = TargetState.CONNECTED
            target.attempts = 0
            target.last_error = ""
            peer = PeerAddr(peer_id=peer_id, addresses=target.addresses)
            self._book.note_connected(peer, now_ms=self._wall_ms())
        self._wake.set()

    def _on_disconnected(self, peer_id: PeerId) -> None:
        target = self._targets.get(peer_id)
        if target is not None and target.state is TargetState.CONNECTED:
            target.state = TargetState.IDLE
            target.attempts = 0
            target.due = trio.current_time() + self._rng.uniform(0, self._settings.backoff_first_s)
        self._wake.set()

    def _learn_connected(self) -> None:
        """Remember where connected peers say they listen, so that they can be redialled."""
        for peer_id in self._host.connected_peers():
            addresses = self._host.peer_addresses(peer_id)
            if addresses and peer_id not in self._targets:
                peer = PeerAddr(peer_id=peer_id, addresses=addresses)
                self.add_peer(peer, TargetKind.INBOUND)
                self._book.note_connected(peer, now_ms=self._wall_ms())

    def _make_room(self) -> bool:
        if len(self._targets) < self._settings.max_targets:
            return True
        idle = [
            target
            for target in self._targets.values()
            if target.state is TargetState.IDLE and target.kind is not TargetKind.BOOTSTRAP
        ]
        if not idle:
            return False
        del self._targets[max(idle, key=lambda target: target.attempts).peer_id]
        return True

    # Peer exchange and saving

    async def _exchange_loop(self) -> None:
        """Ask new peers at once and, while too few are connected, one of them now and then."""
        asked: set[PeerId] = set()
        next_round = trio.current_time()
        while True:
            connected = self._host.connected_peers()
            self._learn_connected()
            asked &= connected
            fresh = sorted(connected - asked)
            if not fresh and trio.current_time() >= next_round and self._num_missing() > 0:
                fresh = self._rng.sample(sorted(connected), min(1, len(connected)))
            if fresh:
                next_round = trio.current_time() + self._settings.exchange_interval_s
            for peer_id in fresh:
                asked.add(peer_id)
                await self._exchange(peer_id)
            await trio.sleep(self._settings.backoff_first_s)

    async def _exchange(self, peer_id: PeerId) -> None:
        if self._fetch_peers is None:
            return
        try:
            with trio.fail_after(self._settings.exchange_timeout_s):
                peers = await self._fetch_peers(peer_id)
        except Exception as error:  # noqa: BLE001 - injected code over a peer's bytes
            logger.debug("no peers from %s: %r", peer_id, error)
            return
        for peer in peers[:MAX_PEERS_IN_LIST]:
            self.add_peer(peer, TargetKind.EXCHANGE)

    async def _save_loop(self) -> None:
        if self._book_path is None:
            return
        saved = self._book.to_json()
        try:
            while True:
                await trio.sleep(self._settings.save_interval_s)
                saved = await self._save(saved)
        finally:
            with trio.move_on_after(1) as scope:
                scope.shield = True
                await self._save(saved)

    async def _save(self, saved: str) -> str:
        text = self._book.to_json()
        if text == saved or self._book_path is None:
            return saved
        try:
            await trio.to_thread.run_sync(partial(save_peer_book, self._book_path, text))
        except OSError as error:
            logger.warning("cannot save the peer book: %s", error)
            return saved
        return text


def _usable(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Return the well-formed addresses that name a host, at most eight."""
    found: list[str] = []
    for text in addresses[: 4 * MAX_ADDRS_PER_PEER]:
        try:
            address = parse_transport(text)
        except ValueError:
            continue
        if not is_unspecified(address) and address not in found:
            found.append(address)
    return tuple(found[:MAX_ADDRS_PER_PEER])
