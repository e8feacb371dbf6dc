"""A peer that listens and discovers others, before its swarm is known.

open host ─▶ discovery ─▶ which swarm? ─▶ `FoundManifest`, from which a `SwarmNode` is made
"""

from __future__ import annotations

import logging
from functools import lru_cache, partial

import trio

from shoal_base.bounded import FEW
from shoal_base.extras import missing_for_tasks
from shoal_p2p.bundles.acceptor import TaskAcceptor
from shoal_p2p.bundles.asking import build_deciders
from shoal_p2p.bundles.client import TaskClient
from shoal_p2p.data_dir import remembered_listen, sibling_addresses, write_addresses
from shoal_p2p.disk import Disk, KeptState
from shoal_p2p.events import EventSink, PeerDropped
from shoal_p2p.gossip.sequence_numbers import SequenceNumbers
from shoal_p2p.intake.ledger import PublisherLedger
from shoal_p2p.net.address import default_listen_addresses, parse_peer_address
from shoal_p2p.net.announced import parse_announced
from shoal_p2p.net.host import HostSettings
from shoal_p2p.net.identity import Identity
from shoal_p2p.net.inbound_gate import GateLimits
from shoal_p2p.net.relay_server import RelayLimits, RelayServer
from shoal_p2p.net.swarm import SwarmSettings
from shoal_p2p.net.swarm_key import key_of_settings
from shoal_p2p.parts import REAL, Dependencies, Limits, Network
from shoal_p2p.peers import services
from shoal_p2p.peers.address_policy import AddressPolicy
from shoal_p2p.peers.clock_watch import ClockWatch
from shoal_p2p.peers.discovery import Discovery, Preferences, TargetKind
from shoal_p2p.peers.manifest_source import FoundManifest, ManifestSource, nothing
from shoal_p2p.peers.outside import ReachServer
from shoal_p2p.peers.relay_client import RelayUse
from shoal_p2p.peers.try_out import anything, try_families
from shoal_p2p.reputation.conn_manager import max_peers_for
from shoal_p2p.reputation.peer_manager import REPUTATION, PeerManager
from shoal_p2p.shards.directory import ShardDirectory
from shoal_p2p.state_file import PEER_FILE
from shoal_settings.schema import DEFAULT_LISTEN, Settings
from shoal_wire.limits import MANIFEST_PROTOCOL, PEERS_PROTOCOL
from shoal_wire.manifest import Manifest
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId

log = logging.getLogger(__name__)

BOOK = "peers"
NUMBERS = "sequence-number"


class PeerNode:
    """Host, gossip, discovery and reputation of a peer, before the swarm is known."""

    def __init__(
        self,
        *,
        identity: Identity,
        settings: Settings,
        parts: Dependencies = REAL,
        tuning: Limits | None = None,
        fetches_tasks: bool = False,
        state_file: str = PEER_FILE,
    ) -> None:
        """Nothing is opened yet. A node `fetches_tasks` of its swarm, a bootstrap does not.

        Raises SwarmKeyError: the settings name no usable key.
        """
        self.settings = settings
        self.parts = parts
        self.tuning = tuning or Limits.of(settings)
        self.data_dir = settings.data_dir
        self._state_file = state_file
        self._fetches_tasks = fetches_tasks
        self.started_at = trio.current_time()
        self.events = EventSink()
        self.swarm_key = key_of_settings(settings)
        self.network = parts.network(identity, _host_settings(settings, self.swarm_key))
        self.host = self.network.host
        self.ledger = PublisherLedger(self.tuning.ledger)
        self.disk = Disk(self.data_dir, in_thread=parts.in_thread)
        self.shard_directory = ShardDirectory()
        self.clock_watch = ClockWatch(host=self.host, rng=parts.rng, wall_ms=parts.wall_ms)
        self.source = self._manifest_source()
        self.relay = _relay_of(self.network, settings)
        self.relays = self.network.relays(
            RelayUse(settings.relay_client), preferred=self.source.bootstraps
        )
        self.port_mapping = self.network.port_mapping(
            wanted=settings.port_mapping, on_reached=self.relays.look_again
        )
        self.guard = self._guard()
        self.gossip = self.network.gossip(
            self.guard, self.tuning.gossip, SequenceNumbers(self.state(NUMBERS))
        )
        self.address_policy = AddressPolicy(self.host)
        self.punches = self.network.punches(self.address_policy)
        self.discovery = self._discovery()
        self.events.add(self.discovery, PeerDropped)

    def _manifest_source(self) -> ManifestSource:
        return ManifestSource(
            host=self.host,
            data_dir=self.data_dir,
            settings=self.settings,
            wait_s=self.tuning.bootstrap_s,
            try_out=(
                partial(try_families, make_worker=self.parts.worker)
                if missing_for_tasks() is None
                else anything
            ),
            bring=self._bring if self._fetches_tasks else nothing,
            refused=self.disk.refused,
        )

    async def _bring(self, manifest: Manifest) -> None:
        """Fetch the tasks of a swarm that this machine lacks, as far as the user accepts them."""
        refuse, accept = build_deciders(self.settings)
        client = TaskClient(
            host=self.host, report=self.guard.on_verdict, in_thread=self.parts.in_thread
        )
        acceptor = TaskAcceptor(
            client=client,
            data_dir=self.data_dir,
            refuse=refuse,
            accept=accept,
            in_thread=self.parts.in_thread,
        )
        await acceptor.bring(manifest, self.settings.task_files)

    def state(self, name: str) -> KeptState:
        """Return a small state of this peer, by its name."""
        return KeptState(
            self.data_dir / self._state_file,
            name,
            in_thread=self.parts.in_thread,
            refused=self.disk.refused,
        )

    def _guard(self) -> PeerManager:
        return PeerManager(
            host=self.host,
            state=self.state(REPUTATION),
            protected=self.source.bootstraps,
            max_peers=max_peers_for(self.settings.max_connections),
            is_relayed=self._is_relayed,
            events=self.events,
            wall_ms=self.parts.wall_ms,
        )

    def _discovery(self) -> Discovery:
        parts = self.parts
        return Discovery(
            host=self.host,
            address_policy=self.address_policy,
            bootstrap=self.settings.bootstrap,
            file=self.state(BOOK),
            fetch_peers=partial(services.fetch_peers, self.host),
            settings=self.tuning.discovery,
            preferences=Preferences(
                rank=self.guard.rank, counts=self.is_of_swarm, is_needed=self._is_relay
            ),
            rng=parts.rng,
            wall_ms=parts.wall_ms,
        )

    @property
    def peer_id(self) -> PeerId:
        """This peer's id."""
        return self.host.peer_id

    def is_of_swarm(self, peer_id: PeerId) -> bool:
        """True if a connected peer is subscribed to this swarm, or that cannot be known yet.

        A bootstrap subscribes to nothing in a swarm of several shards. It counts as a member until
        it is known to be of another swarm; otherwise newcomers would never ask it for peers.
        """
        own = self.gossip.topics()
        if not own:
            return True
        topics = self.gossip.peer_topics(peer_id)
        if not topics:
            return peer_id in self.source.bootstraps
        return _is_any_of(topics, own[0])

    def _is_relayed(self, peer_id: PeerId) -> bool:
        """Return whether a peer has a reservation at this relay."""
        return self.relay is not None and bool(self.relay.addresses_of(peer_id))

    def _is_relay(self, peer_id: PeerId) -> bool:
        """Return whether this peer has a reservation at a relay."""
        return peer_id in self.relays.relays

    def _answered(self, protocol_id: str) -> services.OnSent:
        return lambda peer_id, _request: self.guard.conn_manager.record_response(
            peer_id, protocol_id
        )

    async def listen(self, nursery: trio.Nursery) -> FoundManifest:
        """Listen, start discovery, and determine the swarm.

        Raises:
            ListenError: an address cannot be listened on.
            ManifestError: the bootstrap's swarm needs something this version does not know.
        """
        services.serve_peers(
            self.host,
            lambda: self.discovery.book,
            self.shard_directory,
            self.relay.addresses_of if self.relay is not None else lambda _peer: (),
            self.parts.rng,
            self._answered(PEERS_PROTOCOL),
        )
        services.serve_full(self.host, self.discovery.expect_full)
        ReachServer(host=self.host, wall_ms=self.parts.wall_ms).serve()
        if (known := self.source.local()) is not None:
            self._admit(known)
        await self.guard.load()
        await nursery.start(self.guard.run)
        await nursery.start(self.host.run)
        nursery.start_soon(self.disk.watch)
        try:
            await self.parts.in_thread(write_addresses, self.data_dir, self.host.interface_addrs())
        except OSError as error:  # its next run finds another port, siblings find it by mDNS
            self.disk.refused("own addresses are not saved", error)
        await nursery.start(self.discovery.run)
        await nursery.start(self.relays.run)
        await nursery.start(self.punches.run)
        await nursery.start(self.port_mapping.run)
        nursery.start_soon(self.clock_watch.run)
        if self.settings.mdns:
            nursery.start_soon(self._watch_siblings)
        found = await self.source.find()
        self._admit(found.manifest, is_known=found.confirmed or known is not None)
        services.serve_manifest(
            self.host, found.manifest, on_sent=self._answered(MANIFEST_PROTOCOL)
        )
        return found

    def _admit(self, manifest: Manifest, *, is_known: bool = True) -> None:
        allowed = manifest.rules.allowed_peers
        # A peer that the user names is allowed, even if an earlier swarm's list lacks it.
        admitted = {*allowed, *self.source.bootstraps} if allowed else None
        self.host.admit_only(admitted, is_known=is_known)

    async def _watch_siblings(self) -> None:
        """Discover peers of the same machine from sibling data directories."""
        while True:
            for address in await self.parts.in_thread(sibling_addresses, self.data_dir):
                try:
                    parsed = parse_peer_address(address)
                except ValueError:
                    continue
                self.discovery.add_peer(
                    PeerAddresses(peer_id=parsed.peer_id, addresses=(parsed.transport,)),
                    TargetKind.MDNS,
                )
            await trio.sleep(self.tuning.siblings_s)


@lru_cache(maxsize=FEW)
def _is_any_of(topics: tuple[str, ...], own: str) -> bool:
    """Return whether one of a peer's topics is of the swarm that this node's own topic is of."""
    prefix = own[: own.index("/rollouts/")] + "/"
    return any(topic.startswith(prefix) for topic in topics)


def _host_settings(settings: Settings, swarm_key: bytes | None) -> HostSettings:
    return HostSettings(
        listen=remembered_listen(
            default_listen_addresses(settings.listen, DEFAULT_LISTEN), settings.data_dir
        ),
        announce=tuple(map(parse_announced, settings.announce)),
        swarm=SwarmSettings(
            max_connections=settings.max_connections,
            gate=GateLimits(prefix_connections=_share_of(settings)),
            key=swarm_key,
        ),
    )


def _share_of(settings: Settings) -> int:
    """Return how many connections one network, or all relayed peers together, may have."""
    return max(1, settings.max_connections // 4)


def _relay_of(network: Network, settings: Settings) -> RelayServer | None:
    if not settings.relay:
        return None
    relay = network.relay(RelayLimits(reservations=_share_of(settings)))
    relay.serve()
    return relay
