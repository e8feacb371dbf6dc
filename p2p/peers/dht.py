"""The swarm found by a Kademlia DHT, among peers of any swarm, when its bootstraps are gone.

    connected DHT peers ─▶ announce "I am of swarm X" ─▶ kept by the peers nearest to X's key
    few peers connected ─▶ who is of swarm X? ─▶ discovery

py-libp2p's DHT is written for a host that dials on its own and remembers every address.  Ours
does neither, so `_DhtHost` stands between them: it dials before a stream is opened, by addresses
that only the DHT sees, and forgets the oldest of them.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.host.exceptions import HostException
from libp2p.kad_dht.common import BUCKET_SIZE
from libp2p.kad_dht.kad_dht import DHTMode, KadDHT
from libp2p.kad_dht.provider_store import ProviderStore
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo
from libp2p.peer.peerstore import PeerStore
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from p2p.net.address import (
    from_libp2p_id,
    parse_peer_address,
    parse_transport,
    to_libp2p_id,
)
from p2p.net.connections import network_of
from p2p.net.host import DialError, Libp2pHost
from p2p.net.peerstore import BoundedPeerStore
from p2p.peers.dht_stream import RecordlessStream
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import Digest, PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

logger = logging.getLogger(__name__)

ROUND_SECONDS = 60.0
"""Between two looks for peers while too few are connected."""
ANNOUNCE_SECONDS = 1800.0
"""Between two announcements; the DHT forgets one after a day."""
_FIRST_SECONDS = 2.0
_LOOKUP_SECONDS = 20.0
_DIAL_SECONDS = 3.0
_MAX_ADDRESS_BOOK = 1024
_MAX_FOUND = 20
_MAX_OF_NETWORK = 16
"""Peers of one public network in the routing table."""
_MAX_PROVIDERS_OF_NETWORK = 5
"""Of the library's twenty places under a key, those of one network; loopback is free."""


def swarm_key(digest: Digest) -> str:
    """Return the DHT key under which the peers of a swarm announce themselves.

    A multihash in hex: py-libp2p answers no lookup for anything else longer than 50 bytes.
    """
    return "1220" + hashlib.sha256(b"/shoal/swarm/1/" + digest).hexdigest()


class Dht:
    """One peer's part in the DHT. Start with ``await nursery.start(dht.run)``, after the host."""

    def __init__(
        self,
        *,
        host: Libp2pHost,
        digest: Digest,
        on_found: Callable[[PeerAddresses], None],
        wanted: Callable[[], bool],
        on_entry: Callable[[PeerAddresses], None] | None = None,
        may_dial: Callable[[str], bool] = lambda _address: True,
        counts: Callable[[PeerId], bool] = lambda _peer: True,
        entries: tuple[str, ...] = (),
        round_s: float | None = None,
    ) -> None:
        """`on_found` learns of peers of the swarm, `on_entry` of `entries` that are not connected;
        `wanted` says whether more are needed, `counts` who is of the swarm and stays connected,
        `may_dial` whether a lookup may dial an address that somebody has named.

        Raises:
            ValueError: an entry is not a full multiaddress.
        """
        self._host = host
        self._key = swarm_key(digest)
        self._on_found = on_found
        self._on_entry = on_entry or on_found
        self._wanted = wanted
        self._counts = counts
        self._round_s = round_s or ROUND_SECONDS
        self._entries = tuple(
            PeerAddresses(peer_id=entry.peer_id, addresses=(entry.transport,))
            for entry in map(parse_peer_address, entries)
        )
        self._facade = _DhtHost(host, may_dial)
        self._dht: KadDHT | None = None
        """The library's, while this takes part."""

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part until cancelled."""
        task_status.started()
        while True:
            try:
                await self._take_part()
            except Exception:  # the library's tasks over strangers' bytes must not end the node
                logger.exception("the DHT failed and is started again")
            await trio.sleep(self._round_s)

    async def _take_part(self) -> None:
        dht = self._dht = KadDHT(
            self._facade,
            DHTMode.SERVER,
            enable_values=False,
            max_peers_per_subnet_table=_MAX_OF_NETWORK,
        )
        dht.provider_store = _ProviderStore(self._facade, dht.peer_routing, self._network_of)
        announced_at = -ANNOUNCE_SECONDS
        pause = min(_FIRST_SECONDS, self._round_s)
        async with background_trio_service(dht):
            while True:
                self._offer_entries()
                if await self._learn_peers(dht):
                    now = trio.current_time()
                    if now - announced_at >= ANNOUNCE_SECONDS and await self._announce(dht):
                        announced_at = now
                    if self._wanted():
                        await self._look(dht)
                    await self._facade.hang_up(self._counts)
                await trio.sleep(pause)
                pause = min(self._round_s, pause * 2)

    def _network_of(self, peer_id: PeerId) -> str | None:
        """Return the network of a connected peer; None for one of this machine."""
        return network_of(self._host.connections(), peer_id)

    def _offer_entries(self) -> None:
        for peer in self._entries:
            if not self._host.is_connected(peer.peer_id):
                self._on_entry(peer)

    async def _learn_peers(self, dht: KadDHT) -> int:
        """Put connected peers with an address into the routing table; return how many it holds."""
        for peer_id in sorted(self._host.connected_peers()):
            addresses = [Multiaddr(a) for a in self._host.peer_addresses(peer_id)]
            if addresses:
                libp2p_id = to_libp2p_id(peer_id)
                self._facade.learn(libp2p_id, addresses)
                await dht.routing_table.add_peer(PeerInfo(libp2p_id, addresses))
        return dht.get_routing_table_size()

    async def _announce(self, dht: KadDHT) -> bool:
        with trio.move_on_after(_LOOKUP_SECONDS):
            return bool(await dht.provide(self._key))
        return False

    async def _look(self, dht: KadDHT) -> None:
        store, key = dht.provider_store, bytes.fromhex(self._key)
        # The library asks nobody while it knows a provider itself: such as us, after announcing.
        known = [info for info in store.get_providers(key) if info.peer_id != self._facade.own_id]
        held = store.providers.pop(key, {})
        found: list[PeerInfo] = []
        with trio.move_on_after(_LOOKUP_SECONDS):
            found = await dht.find_providers(self._key, _MAX_FOUND)
        newer = store.providers.get(key, {})
        store.providers[key] = dict(list({**held, **newer}.items())[:BUCKET_SIZE])
        if key in store.providing_keys:
            own = [Multiaddr(address) for address in self._host.listen_addrs()]
            store.add_provider(key, PeerInfo(self._facade.own_id, own))
        found += known
        for info in {info.peer_id: info for info in found}.values():
            peer_id = from_libp2p_id(info.peer_id)
            addresses = tuple(_transports(info.addrs))
            if peer_id != self._host.peer_id and addresses:
                self._on_found(PeerAddresses(peer_id=peer_id, addresses=addresses))


def _transports(addresses: list[Multiaddr]) -> list[str]:
    found: list[str] = []
    for address in addresses:
        try:
            found.append(parse_transport(str(address).partition("/p2p/")[0]))
        except ValueError:
            continue
    return found


class _ProviderStore(ProviderStore):
    """The library's, but that the places under a key are shared by network."""

    def __init__(self, host: Any, routing: Any, network_of: Callable[[PeerId], str | None]) -> None:
        super().__init__(host, routing)
        self._network_of = network_of

    def add_provider(self, key: bytes, provider: PeerInfo) -> None:
        """Add a provider, who announces itself over a connection of its own."""
        held = self.providers.get(key, {})
        name = str(provider.peer_id)
        network = self._network_of(from_libp2p_id(provider.peer_id))
        if name not in held and network is not None:
            beside = sum(getattr(other, "network", None) == network for other in held.values())
            if beside >= _MAX_PROVIDERS_OF_NETWORK:
                return
        super().add_provider(key, provider)
        record: Any = self.providers[key].get(name)
        if record is not None:
            record.network = network


class _DhtHost:
    """What the DHT takes for its host."""

    def __init__(self, host: Libp2pHost, may_dial: Callable[[str], bool]) -> None:
        self._host = host
        self._may_dial = may_dial
        self._inner = host.libp2p_host
        self._peerstore = BoundedPeerStore()
        self.own_id = to_libp2p_id(host.peer_id)
        self._peerstore.add_key_pair(self.own_id, host.identity.key_pair)
        self._order: dict[ID, None] = {}
        self._dialled: set[PeerId] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_peerstore(self) -> PeerStore:
        """Return the DHT's own address book."""
        return self._peerstore

    def get_connected_peers(self) -> list[ID]:
        """Return who is connected."""
        return [to_libp2p_id(peer_id) for peer_id in self._host.connected_peers()]

    def learn(self, peer_id: ID, addresses: list[Multiaddr]) -> None:
        """Remember addresses; the oldest peers are forgotten."""
        self._peerstore.add_addrs(peer_id, addresses, 3600)
        for known in self._peerstore.peer_ids():
            self._order.setdefault(known, None)
        while len(self._order) > _MAX_ADDRESS_BOOK:
            oldest = next(iter(self._order))
            del self._order[oldest]
            if oldest != self.own_id:
                self._peerstore.clear_peerdata(oldest)

    async def hang_up(self, counts: Callable[[PeerId], bool]) -> None:
        """End the connections that lookups have opened to strangers of the swarm."""
        for peer_id in sorted(self._dialled):
            self._dialled.discard(peer_id)
            if self._host.is_connected(peer_id) and not counts(peer_id):
                await self._host.disconnect(peer_id)

    async def new_stream(self, peer_id: ID, protocols: list[TProtocol]) -> INetStream:
        """Open a stream, connecting first if need be. Raises HostException."""
        name = from_libp2p_id(peer_id)
        if not self._host.is_connected(name):
            await self._connect(peer_id)
        stream: Any = RecordlessStream(await self._inner.new_stream(peer_id, protocols))
        opened: INetStream = stream
        return opened

    def set_stream_handler(self, protocol: TProtocol, handler: Callable[[Any], Any]) -> None:
        """Serve streams of the DHT by `handler`."""

        async def recordless(stream: INetStream) -> None:
            await handler(RecordlessStream(stream))

        self._inner.set_stream_handler(protocol, recordless)

    async def _connect(self, peer_id: ID) -> None:
        name = from_libp2p_id(peer_id)
        for address in _transports(list(self._peerstore.addrs(peer_id)))[:4]:
            if not self._may_dial(address):
                continue
            try:
                await self._host.dial(f"{address}/p2p/{name}", timeout=_DIAL_SECONDS)
            except DialError as error:
                logger.debug("%s of the DHT is not at %s: %s", name, address, error)
                continue
            self._dialled.add(name)
            return
        raise HostException(f"{name} cannot be reached")
