"""A swarm of protocol rules alone: decisions and messages of ten thousand nodes, at no real cost.

    crowd = Crowd(arrivals, seed=1, manifest=…, settings=CrowdSettings())
    nursery.start_soon(crowd.run)    under `jumping_clock` and `deterministic`
    await trio.sleep(600)
    crowd.figures(since=60)

Discovery, peer lists, the slots for newcomers, the shard keeper with its division and plan, and the
mesh are real. A batch is bytes of the right length that name the number of their groups, and
validating it takes no time. There are no streams, signatures, SQL, buffers, manifests, reputation,
gap repair or backfill. So a batch that did not arrive by gossip counts as lost.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import mean
from typing import Annotated, Any

import trio

from shoal_base.ranges import Bytes, Range, Ranged, Seconds, Share
from shoal_lab.simulation.host import SimulatedHost
from shoal_lab.simulation.instant_gossip import InstantGossip
from shoal_lab.simulation.network import LinkSettings, SimulatedNetwork
from shoal_p2p.events import BatchAccepted, Event, EventSink, ShardsChanged, Source
from shoal_p2p.gossip.settings import GossipSettings
from shoal_p2p.net.identity import identity_from_seed
from shoal_p2p.peers import services
from shoal_p2p.peers.address_policy import AddressPolicy
from shoal_p2p.peers.discovery import Discovery, Preferences
from shoal_p2p.peers.targets import DiscoverySettings
from shoal_p2p.reputation.conn_manager import ConnManager, max_peers_for
from shoal_p2p.shards.directory import ShardDirectory
from shoal_p2p.shards.keeper import (
    PeerSearch,
    ShardChoice,
    ShardKeeper,
    ShardSettings,
)
from shoal_p2p.shards.plan import DemandMeter, ShardPlan
from shoal_p2p.shards.traffic import TopicTraffic
from shoal_wire.limits import MANIFEST_PROTOCOL, PEERS_PROTOCOL
from shoal_wire.manifest import Manifest
from shoal_wire.shard_tree import lineage
from shoal_wire.topic_keys import numbered, split_number
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Verdict

SETTLED_S = 30.0
"""A delivery is due to nodes that have listened for this long, within the same time."""
_SLOTS = 256
_COUNT_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdSettings(Ranged):
    """Settings that the nodes of a crowd have in common."""

    round_s: Seconds = 60.0
    groups: Annotated[int, Range("groups", 1, 64)] = 1
    """Groups published a round."""
    external: Annotated[int, Range("groups", 0, 4096)] = 2
    """External groups sampled a round."""
    families: Annotated[int, Range("families", 0, 256)] = 256
    """Families that each node accepts, chosen at random; at most all."""
    data_bytes: Bytes = 700
    """Length of a batch."""
    target_peers: Annotated[int, Range("peers", 0, 1000)] = 8
    tick_s: Seconds = 1.0
    """Seconds between two ticks of the shard keeper."""
    discovery_s: Seconds = 1.0
    traced: Share = 1.0
    """Share of the batches whose deliveries are recorded."""
    gossip: GossipSettings = field(default_factory=GossipSettings)
    links: LinkSettings = field(default_factory=LinkSettings)


class _Indifferent:
    """Scores no peer: all are honest here."""

    def on_verdict(self, *_args: object) -> None:
        """Do nothing."""

    def on_behaviour(self, *_args: object) -> None:
        """Do nothing."""

    def score(self, _peer_id: PeerId) -> float:
        """Return the same score for all peers."""
        return 0.0

    def rank(self, _peer_id: PeerId) -> float:
        """Return the same value for all peers."""
        return 0.0

    def is_protected(self, _peer_id: PeerId) -> bool:
        """Return False."""
        return False


class CrowdNode:
    """One node, or the bootstrap, which has no demand and listens to nothing."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self._crowd = crowd
        settings, self._rng = crowd.settings, random.Random(f"{crowd.seed}/{number}")
        address = f"/ip4/10.{number >> 16}.{number >> 8 & 255}.{number & 255}/tcp/4001"
        identity = identity_from_seed(number.to_bytes(32, "big"))
        self.host = SimulatedHost(crowd.network, identity, address, max_connections=_SLOTS)
        self.gossip = InstantGossip(
            self.host, self._rng, scorer=_Indifferent(), settings=settings.gossip
        )
        self.directory, address_policy = ShardDirectory(), AddressPolicy(self.host)
        self.discovery = Discovery(
            host=self.host,
            address_policy=address_policy,
            bootstrap=(crowd.address,) if crowd.address else (),
            fetch_peers=partial(services.fetch_peers, self.host),
            settings=DiscoverySettings(
                target_peers=settings.target_peers, backoff_first_s=settings.discovery_s / 2
            ),
            preferences=Preferences(counts=self._is_of_swarm),
            rng=self._rng,
            wall_ms=lambda: 0,
        )
        self.conn_manager = ConnManager(
            host=self.host,
            max_peers=max_peers_for(_SLOTS),
            rating=self,
            events=EventSink(self.discovery),
        )
        self._bootstraps = frozenset(
            (PeerId(crowd.address.rpartition("/")[2]),) if crowd.address else ()
        )
        services.serve_peers(
            self.host,
            lambda: self.discovery.book,
            self.directory,
            rng=self._rng,
            on_sent=lambda peer, _request: self._answered(peer),
        )
        services.serve_full(self.host, self.discovery.expect_full)
        self._demand = DemandMeter(external=settings.external, oversample=1)
        self._traffic = TopicTraffic(crowd.manifest)
        keys = sorted(set(crowd.manifest.keys.values()))
        accepted = min(len(keys), settings.families)
        # The bootstrap has accepted nothing, and relays what every node has.
        self.keys = self._rng.sample(keys, accepted) if number else [k for k in keys if not k]
        self.keeper = self._keeper(address_policy)
        self.listens_since: dict[int, float] = {}
        self.num_received = 0

    def _keeper(self, address_policy: AddressPolicy) -> ShardKeeper:
        crowd, settings, me = self._crowd, self._crowd.settings, self.host.peer_id
        is_bootstrap = not self._bootstraps
        return ShardKeeper(
            host=self.host,
            gossip=self.gossip,
            manifest=crowd.manifest,
            choices={
                key: ShardChoice(
                    plan=ShardPlan(num_shards=1, rng=self._rng, fixed=1 if is_bootstrap else None),
                    traffic=self._traffic.of_key(key),
                    own=None if is_bootstrap else crowd.manifest.shard_of(me),
                    wanted_per_s=lambda: self._demand.wanted_per_s / len(self.keys),
                )
                for key in self.keys
            },
            search=PeerSearch(
                directory=self.directory,
                ask=lambda peer, shards: services.fetch_peers(self.host, peer, shards),
                may_dial=lambda address, reporter: address_policy.may_dial(
                    address, address_policy.speaker(reporter).source
                ),
                keep=self._bootstraps,
            ),
            validate=self._validate,
            events=EventSink(self),
            settings=ShardSettings(
                tick_s=settings.tick_s,
                look_every_s=5 * settings.tick_s,
                mix_every_s=10 * settings.tick_s,
                keep_connections=settings.target_peers,
            ),
            rng=self._rng,
        )

    async def run(self) -> None:
        """Run and train until cancelled."""
        async with trio.open_nursery() as nursery:
            for part in (self.conn_manager, self.host, self.discovery, self.keeper):
                await nursery.start(part.run)
            if self._bootstraps:
                await self._train()

    async def _train(self) -> None:
        settings, rounds = self._crowd.settings, 0
        while True:
            await trio.sleep(settings.round_s * self._rng.uniform(0.75, 1.25))
            rounds += 1
            await self._crowd.publish(self)
            drawn = rounds * settings.external
            self._demand.update(trio.current_time(), rounds=rounds, drawn=drawn, used=drawn)

    async def _validate(self, data: bytes, author: PeerId, _forwarder: PeerId, key: int) -> Verdict:
        self.num_received += 1
        self._crowd.received(self, data)
        self._traffic.on_event(
            BatchAccepted(
                publisher=author,
                sequence=1,
                previous_sequence=0,
                num_groups=int.from_bytes(data[:_COUNT_BYTES], "big"),
                source=Source.GOSSIP,
                key=key,
            )
        )
        return ACCEPT

    def _answered(self, peer: PeerId) -> None:
        """A peer has requested the peer list; it received the manifest at the same moment."""
        for protocol in (PEERS_PROTOCOL, MANIFEST_PROTOCOL):
            self.conn_manager.record_response(peer, protocol)

    def rank(self, _peer_id: PeerId) -> float:
        """Return 0: no connection is worth more than another."""
        return 0.0

    def is_protected(self, peer_id: PeerId) -> bool:
        """Return whether a peer is a bootstrap."""
        return peer_id in self._bootstraps

    def _is_of_swarm(self, peer: PeerId) -> bool:
        """Return whether a peer has announced its subscriptions, as `PeerNode.is_of_swarm`."""
        topics = self.gossip.peer_topics(peer)
        return bool(topics) or peer in self._bootstraps or not self.gossip.topics()

    def on_event(self, event: Event) -> None:
        """Record since when the node listens to each shard; a half inherits the time of the
        whole."""
        if not isinstance(event, ShardsChanged) or not self._bootstraps:
            return
        now, before = trio.current_time(), self.listens_since
        self.listens_since = {
            shard: min(before.get(one, now) for one in numbered(key, lineage(local)))
            for shard in self.keeper.shards
            for key, local in [split_number(shard)]
        }

    def listening_to(self, path: Iterable[int]) -> float:
        """Return since when this node has listened to a shard of `path`; infinite if to none."""
        return min(self.listens_since.get(shard, float("inf")) for shard in path)


@dataclass(slots=True, eq=False)
class _Traced:
    """A batch, and the nodes that should receive it."""

    at: float
    path: tuple[int, ...]
    due: tuple[CrowdNode, ...]
    received: dict[CrowdNode, float] = field(default_factory=dict)


class Crowd:
    """A bootstrap, and the nodes that join through it."""

    def __init__(
        self,
        arrivals: Sequence[float],
        *,
        seed: int,
        manifest: Manifest,
        settings: CrowdSettings,
    ) -> None:
        """`arrivals` are the seconds at which nodes join, in order."""
        self.seed = seed
        self.settings = settings
        self.manifest = manifest
        self.rng = random.Random(seed)
        self.network = SimulatedNetwork(random.Random(f"{seed}/network"), settings.links)
        self.address = ""
        self.bootstrap_node = CrowdNode(self, 0)
        self.address = f"{self.bootstrap_node.host.address}/p2p/{self.bootstrap_node.host.peer_id}"
        self._arrivals = arrivals
        self.nodes: list[CrowdNode] = []
        self._traced: dict[bytes, _Traced] = {}
        self._count = 0

    async def run(self) -> None:
        """Start the nodes at their arrivals; run until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.network.run)
            nursery.start_soon(self.bootstrap_node.run)
            for number, at in enumerate(self._arrivals, 1):
                await trio.sleep_until(at)
                self.nodes.append(CrowdNode(self, number))
                nursery.start_soon(self.nodes[-1].run)

    async def publish(self, node: CrowdNode) -> None:
        """Publish a batch of `node`, and record its intended receivers if it is traced."""
        settings, now = self.settings, trio.current_time()
        self._count += 1
        head = settings.groups.to_bytes(_COUNT_BYTES, "big") + self._count.to_bytes(8, "big")
        key = self.rng.choice(node.keys)
        if self.rng.random() < settings.traced:
            path = self.manifest.path(node.host.peer_id, key)
            due = tuple(
                other
                for other in self.nodes
                if other is not node and now - other.listening_to(path) >= SETTLED_S
            )
            self._traced[head] = _Traced(now, path, due)
        await node.gossip.publish(node.keeper.topic_of(key), head.ljust(settings.data_bytes, b"-"))

    def received(self, node: CrowdNode, data: bytes) -> None:
        """Record that a batch has arrived."""
        traced = self._traced.get(data[: _COUNT_BYTES + 8])
        if traced is not None:
            traced.received.setdefault(node, trio.current_time())

    def deliveries(self, since: float) -> tuple[int, list[float]]:
        """Return how many deliveries of batches published since `since` were due by now, and the
        delays of those that arrived."""
        now, due, delays = trio.current_time(), 0, list[float]()
        for traced in self._traced.values():
            if not since <= traced.at <= now - SETTLED_S:
                continue
            for node in traced.due:
                at = traced.received.get(node)
                if at is not None:
                    delays.append(at - traced.at)
                if at is not None or node.listening_to(traced.path) <= traced.at:
                    due += 1
        return due, delays

    def figures(self, since: float) -> dict[str, Any]:
        """Return the crowd's figures."""
        due, delays = self.deliveries(since)
        hops: Counter[int] = Counter()
        for node in self.nodes:
            hops.update(node.gossip.hops)
        delays.sort()
        ordered = sorted(hops.elements())
        return {
            "due": due,
            "delivered": len(delays) / max(1, due),
            "delay_s": [round(delays[int(s * (len(delays) - 1))], 3) for s in (0.5, 0.99, 1.0)]
            if delays
            else [],
            "hops_mean": mean(ordered) if ordered else 0.0,
            "hops_most": ordered[-1] if ordered else 0,
        }
