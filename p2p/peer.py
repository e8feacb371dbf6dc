"""What a node and a bootstrap peer have in common: host, gossip, discovery, validation.

open host ─▶ discovery ─▶ which swarm? ─▶ task worker ─▶ intake ─▶ subscribe ─▶ ready
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from p2p.data_dir import remembered_listen, sibling_addresses, write_addresses
from p2p.gossip.gossip import Gossip
from p2p.intake.intake import Intake, Listener
from p2p.intake.ledger import Equivocation, PublisherLedger
from p2p.intake.validation import ValidationContext
from p2p.intake.verdict_log import VerdictLog
from p2p.net.address import is_circuit, parse_peer_address
from p2p.net.host import HostSettings, Libp2pHost
from p2p.net.identity import Identity
from p2p.net.inbound_gate import GateLimits
from p2p.net.swarm import SwarmSettings
from p2p.net.swarm_key import key_of_settings
from p2p.peers import exchange as peer_services
from p2p.peers.dht import Dht
from p2p.peers.discovery import Discovery, DiscoverySettings, TargetKind
from p2p.peers.manifest_source import Found, ManifestSource
from p2p.peers.outside import ReachServer
from p2p.peers.relay_client import RelayClient, RelayUse
from p2p.peers.relay_server import RelayLimits, RelayServer
from p2p.shards.directory import ShardDirectory
from p2p.shards.keeper import ShardKeeper, ShardSettings
from p2p.shards.plan import ShardPlan
from p2p.standing.guard import PeerGuard
from shoal_settings.schema import Settings
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.swarm import rules_of, specs_of
from shoal_tasks.worker.trio_client import TaskWorker
from shoal_wire.limits import TOPIC_PREFIX
from shoal_wire.manifest import Manifest
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId, SignedBatch
from shoal_wire.verdict import Verdict

if TYPE_CHECKING:
    from p2p.peers.mdns import Mdns

log = logging.getLogger(__name__)

BOOK_FILE = "peers.json"
_SIBLING_SECONDS = 10.0
_WORKER_SECONDS = 5.0
_WORKER_PATIENCE_SECONDS = 1.8
"""Under gossip's own two seconds for a validator, so that the verdict is ours. A worker that is
merely slow answers the next caller; it is killed only after `_WORKER_SECONDS`."""

Keep = Callable[[SignedBatch], Awaitable[None]]
Accuse = Callable[[Equivocation, bytes], Awaitable[None]]


def wall_ms() -> int:
    """Return the wall clock in milliseconds since the epoch."""
    return int(time.time() * 1000)


def _relay_of(host: Libp2pHost, settings: Settings) -> RelayServer | None:
    if not settings.relay:
        return None
    relay = RelayServer(
        host,
        RelayLimits(
            reservations=settings.relay_reservations,
            circuit_bytes=settings.relay_bytes,
            circuit_seconds=settings.relay_seconds,
        ),
    )
    relay.serve()
    return relay


class PeerCore:
    """A peer of the swarm without a buffer: what it validates goes to `keep`."""

    def __init__(
        self, *, identity: Identity, settings: Settings, data_dir: Path, agent_suffix: str = ""
    ) -> None:
        self._settings = settings
        self._data_dir = data_dir
        self.host = Libp2pHost(
            identity=identity,
            settings=HostSettings(
                listen=remembered_listen(settings.listen, data_dir),
                agent=agent_suffix,
                swarm=SwarmSettings(
                    max_connections=settings.max_connections,
                    gate=GateLimits(prefix_connections=settings.prefix_connections),
                    key=key_of_settings(settings),
                ),
            ),
        )
        self.verdicts = VerdictLog()
        self.ledger = PublisherLedger()
        self.guard = PeerGuard(
            host=self.host,
            data_dir=data_dir,
            protected=(parse_peer_address(address).peer_id for address in settings.bootstrap),
            # The rest of the slots is for newcomers, so that somebody useless can make room.
            max_peers=settings.max_connections - settings.max_connections // 8,
            wall_ms=wall_ms,
        )
        self.gossip = Gossip(
            on_behaviour=self.guard.on_behaviour,
            is_protected=self.guard.is_protected,
            host=self.host,
            on_verdict=self.on_verdict,
        )
        self.gossip.set_score_fn(self.score)
        self.discovery = Discovery(
            host=self.host,
            bootstrap=settings.bootstrap,
            book_path=data_dir / BOOK_FILE,
            fetch_peers=lambda peer_id: peer_services.fetch_peers(self.host, peer_id),
            settings=DiscoverySettings(target_peers=settings.target_peers),
            counts=self.is_of_swarm,
            rank=self.guard.rank,
        )
        self.relay = _relay_of(self.host, settings)
        self.relay_client = RelayClient(
            host=self.host,
            use=RelayUse(settings.relay_client),
            preferred=lambda: self.source.bootstraps,
        )
        self.source = ManifestSource(host=self.host, data_dir=data_dir, settings=settings)
        self.shard_directory = ShardDirectory()
        self.shards: ShardKeeper
        self.started_at = trio.current_time()
        self.manifest: Manifest
        self.worker: TaskWorker
        self.intake: Intake

    @property
    def peer_id(self) -> PeerId:
        """This peer's id."""
        return self.host.peer_id

    @property
    def bootstrap(self) -> tuple[str, ...]:
        """The bootstrap addresses of the settings."""
        return self._settings.bootstrap

    @property
    def data_dir(self) -> Path:
        """The peer's folder."""
        return self._data_dir

    def is_of_swarm(self, peer_id: PeerId) -> bool:
        """True if a connected peer is subscribed to this swarm, or that cannot be known yet."""
        if not self.gossip.topics():
            return True
        prefix = f"{TOPIC_PREFIX}/{self.manifest.digest.hex()}/"
        return any(topic.startswith(prefix) for topic in self.gossip.peer_topics(peer_id))

    def score(self, peer_id: PeerId) -> float:
        """Return a peer's points; 0 is neutral."""
        return self.guard.score(peer_id)

    async def connect(self, nursery: trio.Nursery) -> Found:
        """Listen, start discovery, and find out which swarm this is.

        Raises:
            ListenError: an address cannot be listened on.
            ManifestError: the bootstrap's swarm needs something this version does not know.
        """
        peer_services.serve_peers(
            self.host,
            lambda: self.discovery.book,
            self.shard_directory,
            self.relay.addresses_of if self.relay is not None else lambda _peer: (),
        )
        ReachServer(host=self.host).serve()
        if (known := self.source.local()) is not None:
            self._admit(known)
        await self.guard.load()
        await nursery.start(self.guard.run)
        await nursery.start(self.host.run)
        await trio.to_thread.run_sync(write_addresses, self._data_dir, self.host.listen_addrs())
        await nursery.start(self.discovery.run)
        await nursery.start(self.relay_client.run)
        if self._settings.mdns:
            nursery.start_soon(self._watch_siblings)
        found = await self.source.find()
        self.manifest = found.manifest
        self._admit(found.manifest)
        peer_services.serve_manifest(self.host, found.manifest)
        return found

    def _admit(self, manifest: Manifest) -> None:
        allowed = manifest.rules.allowed_peers
        # Whom the user names is meant, also where an earlier swarm's list does not have it.
        self.host.admit_only({*allowed, *self.source.bootstraps} if allowed else None)

    async def join(
        self,
        nursery: trio.Nursery,
        *,
        keep: Keep,
        accuse: Accuse,
        listener: Listener | None = None,
        wanted_per_s: Callable[[], float] | None = None,
        worker_patience_seconds: float = _WORKER_PATIENCE_SECONDS,
    ) -> None:
        """Start validation and subscribe: from here on batches reach `keep`.

        `wanted_per_s` tells how many groups of others this peer draws a second; None is a peer
        that draws and publishes none, and relays only a swarm of one shard. One that validates
        nothing may have more patience with the task worker.
        """

        async def count_and_keep(signed: SignedBatch) -> None:
            self.shards.note_received(signed)
            await keep(signed)

        self.worker = TaskWorker(
            specs_of(self.manifest, self._settings.task_file),
            limits=WorkerLimits(request_timeout_seconds=_WORKER_SECONDS),
            patience_seconds=worker_patience_seconds,
        )
        await nursery.start(self.worker.run)
        self.intake = Intake(
            context=ValidationContext(rules=rules_of(self.manifest), me=self.peer_id),
            questions=self.worker,
            ledger=self.ledger,
            keep=count_and_keep,
            accuse=accuse,
            wall_ms=wall_ms,
            listener=listener,
        )
        await nursery.start(self.intake.run)
        self.shards = self._shard_keeper(wanted_per_s)
        await nursery.start(self.shards.run)
        if self._settings.mdns:
            await nursery.start(self._mdns().run)
        if self._settings.dht or self._settings.dht_peer:
            await nursery.start(self._dht().run)

    def _shard_keeper(self, wanted_per_s: Callable[[], float] | None) -> ShardKeeper:
        num_shards = self.manifest.rules.shard_count
        asked = self._settings.subscribe_shards
        fixed = None if asked == "auto" else int(asked)
        if fixed is None and wanted_per_s is None:
            # Who keeps nothing need not hear everybody: meeting others works without.
            fixed = 1 if num_shards == 1 else 0
        return ShardKeeper(
            me=self.peer_id,
            host=self.host,
            gossip=self.gossip,
            manifest=self.manifest,
            plan=ShardPlan(num_shards=num_shards, rng=random.Random(), fixed=fixed),
            directory=self.shard_directory,
            validate=self.intake.validate,
            ask=partial(peer_services.fetch_peers, self.host),
            publishes=wanted_per_s is not None,
            keep=frozenset(
                parse_peer_address(address).peer_id for address in self._settings.bootstrap
            ),
            wanted_per_s=wanted_per_s or (lambda: 0.0),
            settings=ShardSettings(keep_connections=self._settings.target_peers),
        )

    def _dht(self) -> Dht:
        return Dht(
            host=self.host,
            digest=self.manifest.digest,
            on_found=lambda peer: self.discovery.add_peer(peer, TargetKind.DHT),
            wanted=lambda: self.discovery.num_missing > 0,
            counts=self.is_of_swarm,
            entries=self._settings.dht_peer,
        )

    def _mdns(self) -> Mdns:
        # Late: a node that does not use it saves the library's 6 MiB.
        from p2p.peers.mdns import Mdns

        return Mdns(
            peer_id=self.peer_id,
            addresses=tuple(
                parse_peer_address(address).transport
                for address in self.host.listen_addrs()
                if not is_circuit(address)
            ),
            on_found=lambda peer: self.discovery.add_peer(peer, TargetKind.MDNS),
            swarm=self.manifest.digest.hex(),
        )

    async def _watch_siblings(self) -> None:
        """Learn of peers with data directories beside this one: the same machine's."""
        while True:
            addresses = await trio.to_thread.run_sync(sibling_addresses, self._data_dir)
            for address in addresses:
                try:
                    parsed = parse_peer_address(address)
                except ValueError:
                    continue
                self.discovery.add_peer(
                    PeerAddresses(peer_id=parsed.peer_id, addresses=(parsed.transport,)),
                    TargetKind.MDNS,
                )
            await trio.sleep(_SIBLING_SECONDS)

    def on_verdict(self, forwarder: PeerId, author: PeerId | None, judged: Verdict) -> None:
        """Count a verdict and let it have its effect on the standing of both."""
        self.verdicts.count(judged, signer=author)
        self.guard.on_verdict(forwarder, author, judged)
