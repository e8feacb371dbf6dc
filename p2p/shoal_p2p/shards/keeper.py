"""Subscribes to the shards of the plan, and maintains enough peers on each.

    plan ─▶ subscribe, unsubscribe
    subscribed shards + own shard ─▶ too few peers? ─▶ request peers from peers ─▶ dial

A node publishes on its own shard without subscribing: gossipsub sends to subscribed peers (fanout).
Gossip needs peers in every topic, and random connections do not provide them in a swarm of many
shards. Therefore peers exchange which peers they saw on which shard (`/shoal/peers/1`), and
connections that serve no needed shard are closed.

    every few seconds: dial one more peer seen on a needed shard; above the number to keep,
    disconnect one

This shuffles the swarm continuously. Without it, two halves that were partitioned for a minute
would stay apart for ever: each has enough peers and looks for no more.
"""

from __future__ import annotations

import logging
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import trio

from shoal_base.bounded import BoundedDict
from shoal_base.waits import LATELY_S
from shoal_p2p.intake.intake import BatchAccepted
from shoal_p2p.intake.validation import Validator
from shoal_p2p.net.host import DialError
from shoal_p2p.net.interface import DIALS_AT_ONCE, Host
from shoal_p2p.shards.depth import ShardDepth, by_network, leaf, with_parents
from shoal_p2p.shards.directory import ShardDirectory
from shoal_p2p.shards.plan import ShardPlan
from shoal_wire.manifest import Manifest
from shoal_wire.peers import PeerAddresses
from shoal_wire.shard_tree import depth_of, first_of
from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Reason, Verdict, verdict

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

Ask = Callable[[PeerId, tuple[int, ...]], Awaitable[list[PeerAddresses]]]
"""``await ask(peer, shards)`` requests peers on these shards; raises nothing but Cancelled."""


class ShardGossip(Protocol):
    """The part of gossip that the keeper uses; gossip stands above it."""

    async def subscribe(self, topic: str, validator: Validator) -> None: ...
    async def unsubscribe(self, topic: str) -> None: ...
    def subscriptions(self) -> Mapping[PeerId, tuple[str, ...]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSettings:
    """Number of peers wanted on each shard, and how hard to look for them."""

    want_peers: int = 6
    """Gossip's degree plus one. A peer whose shards all have over twice this number is surplus."""
    tick_s: float = 1.0
    look_every_s: float = 5.0
    """Seconds between two checks of the subscriptions, and between two searches."""
    asks: int = 3
    """Requests in one search."""
    ask_again_s: float = 30.0
    dial_again_s: float = 15.0
    mix_every_s: float = 10.0
    """Mean time between two dials that only shuffle."""
    keep_connections: int = 12
    """Above this many, those that serve no needed shard, and surplus ones, are closed."""


class ShardTraffic:
    """Counts valid external groups by shard."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self.groups: Counter[int] = Counter()
        """Groups received, counted by the publisher's smallest shard."""
        self._depth = 0
        self._leaves, self._publishers = Counter[int](), Counter[int]()
        """Groups, and recent publishers, by the shards of a depth. Kept incrementally, since a tick
        would add up thousands."""
        self._latest: BoundedDict[PeerId, tuple[float, int]] = BoundedDict()
        """Time of each publisher's latest batch, and its smallest shard."""

    def on_accepted(self, event: BatchAccepted) -> None:
        """Count a valid external batch."""
        known = self._latest.get(event.publisher)
        smallest = self._manifest.path(event.publisher)[-1] if known is None else known[1]
        self.groups[smallest] += event.num_groups
        if not self._manifest.divides:
            return
        self._leaves[leaf(smallest, self._depth)] += event.num_groups
        if known is None:
            self._publishers[leaf(smallest, self._depth)] += 1
        gone = self._latest.put(event.publisher, (trio.current_time(), smallest))
        if gone is not None:
            self._publishers[leaf(gone[1][1], self._depth)] -= 1

    def by_leaf(self, depth: int) -> Mapping[int, int]:
        """Return the groups of each shard of a depth, the shards counted from 0."""
        if not self._manifest.divides:
            return self.groups
        self._recount(depth)
        return self._leaves

    def publishers(self, leaves: Iterable[int], depth: int, now: float) -> int:
        """Return the number of recent publishers on these shards of a depth."""
        self._recount(depth)
        while self._latest:
            oldest = next(iter(self._latest))
            at, smallest = self._latest[oldest]
            if now - at <= LATELY_S:
                break
            del self._latest[oldest]
            self._publishers[leaf(smallest, depth)] -= 1
        return sum(self._publishers[one] for one in leaves)

    def _recount(self, depth: int) -> None:
        """Count by the shards of this depth from now on."""
        if depth == self._depth:
            return
        self._depth, self._leaves, self._publishers = depth, Counter(), Counter()
        for shard, count in self.groups.items():
            self._leaves[leaf(shard, depth)] += count
        for _at, smallest in self._latest.values():
            self._publishers[leaf(smallest, depth)] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardChoice:
    """The rule that chooses shards, and the callback for changes."""

    plan: ShardPlan
    traffic: ShardTraffic
    own: int | None
    """The shard on which this node publishes; None if it publishes nothing."""
    wanted_per_s: Callable[[], float] = lambda: 0.0
    """Returns how many external groups this node samples per second."""
    on_change: Callable[[], None] = lambda: None
    """Called when the subscribed shards change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSearch:
    """Callbacks and records for finding more peers on a shard."""

    directory: ShardDirectory
    ask: Ask
    may_dial: Callable[[str, PeerId], bool] = lambda _address, _named_by: True
    """Returns whether an address that this peer named may be dialled."""
    keep: frozenset[PeerId] = frozenset()
    """Peers to which a connection is always wanted: the bootstraps."""


class ShardKeeper:
    """Keeps this node subscribed and connected on its shards.

    Start with ``await nursery.start(keeper.run)``, which returns once it is subscribed.
    """

    def __init__(
        self,
        *,
        host: Host,
        gossip: ShardGossip,
        manifest: Manifest,
        choice: ShardChoice,
        search: PeerSearch,
        validate: Validator,
        settings: ShardSettings | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._host = host
        self._gossip = gossip
        self._manifest = manifest
        self._choice = choice
        self._plan = choice.plan
        self._shard_depth = ShardDepth()
        self._subscribed: frozenset[int] = frozenset()
        self._own = choice.own
        self._last_message_at: dict[int, float] = {}
        """Time of the last message on each shard's topic."""
        self._search = search
        self._validate = validate
        self._settings = settings or ShardSettings()
        self._rng = rng or random.Random()
        self._num_peers: Mapping[int, int] = {}
        self._changed = trio.Event()
        self._queried_at: BoundedDict[PeerId, float] = BoundedDict()
        self._dialled: BoundedDict[PeerId, float] = BoundedDict()
        self._useless_since: dict[PeerId, float] = {}
        """Connected peers that serve no needed shard."""

    @property
    def own_shard(self) -> int | None:
        """The shard on which this node publishes; None if it publishes nothing."""
        return self._own

    @property
    def shards(self) -> tuple[int, ...]:
        """The chosen shards, without their parents."""
        first = first_of(self._shard_depth.depth)
        return tuple(first + leaf for leaf in self._plan.shards)

    @property
    def own_topic(self) -> str:
        """The topic on which this node publishes."""
        return self._manifest.topic(self._own or 0)

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep subscriptions and peers according to the plan, until cancelled."""
        await self._apply_plan()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._search_forever)
            nursery.start_soon(self._shuffle_forever)
            task_status.started()
            while True:
                await trio.sleep(self._settings.tick_s)
                if await self._apply_plan():
                    self._changed.set()

    async def _search_forever(self) -> None:
        while True:
            await self._search_peers()
            self._changed = trio.Event()
            with trio.move_on_after(self._settings.look_every_s):
                await self._changed.wait()

    async def _shuffle_forever(self) -> None:
        while True:
            await trio.sleep(self._settings.mix_every_s * self._rng.uniform(0.5, 1.5))
            await self._shuffle()

    async def _apply_plan(self) -> bool:
        before, own = self.shards, self._own
        if self._manifest.divides:
            self._update_depth(trio.current_time())
        self._plan.tick(
            trio.current_time(),
            wanted_per_s=self._choice.wanted_per_s(),
            received=self._choice.traffic.by_leaf(self._shard_depth.depth),
        )
        wanted = set(self.shards)
        if self._manifest.divides:
            wanted = with_parents(wanted)
        for shard in sorted(wanted - self._subscribed):
            self._last_message_at[shard] = trio.current_time()
            await self._gossip.subscribe(self._manifest.topic(shard), self._validator(shard))
        for shard in sorted(self._subscribed - wanted):
            await self._gossip.unsubscribe(self._manifest.topic(shard))
        self._subscribed = frozenset(wanted)
        self._last_message_at = {shard: self._last_message_at[shard] for shard in wanted}
        if before != self.shards:
            log.debug("shards %s", self.shards)
            self._choice.on_change()
        return before != self.shards or own != self._own

    def _update_depth(self, now: float) -> None:
        """Update the shard depth, and choose where to publish."""
        path = self._manifest.path(self._host.peer_id)
        depths, listeners = list[tuple[str, int]](), list[tuple[str, int]]()
        for peer_id, topics in self._gossip.subscriptions().items():
            if on := self._manifest.shards_of(topics):
                depth = depth_of(on[-1])
                depths.append((self._host.source_of(peer_id), depth))
                if path[depth] in on:
                    listeners.append(depths[-1])
        before, shards, leaves = self._shard_depth.depth, self.shards, self._plan.shards
        depth = self._shard_depth.tick(
            now,
            load=self._plan.load,
            publishers=lambda: (
                self._choice.traffic.publishers(leaves, before, now) // max(1, len(leaves))
            ),
            others=by_network(depths),
            quiet_s=min(
                (now - self._last_message_at.get(shard, now) for shard in shards), default=0.0
            ),
        )
        if depth > before:
            self._plan.divide(depth - before, now)
        elif depth < before:
            self._plan.unite(now)
        if self._choice.own is not None:
            self._own = path[self._shard_depth.publish_at(now, by_network(listeners))]

    def _validator(self, shard: int) -> Validator:
        async def validate(data: bytes, author: PeerId, forwarder: PeerId) -> Verdict:
            if shard not in self._manifest.path(author):
                await trio.lowlevel.checkpoint()
                return verdict(Reason.WRONG_SWARM)
            judged = await self._validate(data, author, forwarder)
            if judged.outcome is Outcome.ACCEPT and shard in self._last_message_at:
                self._last_message_at[shard] = trio.current_time()
            return judged

        return validate

    # Peers of each shard

    def _needed(self) -> set[int]:
        """Return the chosen shards, the one on which this node publishes, and the one on which it
        will publish next, whose listeners it must know."""
        if self._own is None:
            return set(self.shards)
        path = self._manifest.path(self._host.peer_id)
        return {*self.shards, self._own, path[min(self._shard_depth.depth, len(path) - 1)]}

    async def _search_peers(self) -> None:
        """Record the subscriptions, search peers for shards with few, and close surplus ones."""
        connected = self._host.connected_peers()
        on_shard = self._observe(connected)
        self._num_peers = {shard: len(peers) for shard, peers in on_shard.items()}
        short = tuple(
            sorted(s for s, count in self._num_peers.items() if count < self._settings.want_peers)
        )
        if short and (self._manifest.rules.shard_count > 1 or self._shard_depth.depth):
            await self._find_more(short, connected)
        await self._close_useless(connected, on_shard)

    def _observe(self, connected: frozenset[PeerId]) -> dict[int, set[PeerId]]:
        """Record the shards of connected peers; return the peers on each needed shard."""
        now = trio.current_time()
        on_shard: dict[int, set[PeerId]] = {shard: set() for shard in self._needed()}
        for peer_id, topics in self._gossip.subscriptions().items():
            shards = self._manifest.shards_of(topics) if peer_id in connected else ()
            if shards:
                peer = PeerAddresses(peer_id=peer_id, addresses=self._host.peer_addresses(peer_id))
                self._search.directory.note(peer, shards, now)
            for shard in shards:
                if shard in on_shard:
                    on_shard[shard].add(peer_id)
        return on_shard

    async def _find_more(self, short: tuple[int, ...], connected: frozenset[PeerId]) -> None:
        settings, now = self._settings, trio.current_time()
        known = self._search.directory.find(short, now, limit=DIALS_AT_ONCE, exclude=connected)
        found = {item.peer_id: item for item in known}
        named_by: dict[PeerId, PeerId] = {}
        for peer_id in self._choose_peers_to_ask(connected, now):
            for item in await self._search.ask(peer_id, short):
                wanted = bool(set(item.shards) & set(short))
                if wanted and found.setdefault(item.peer_id, item) is item:
                    named_by[item.peer_id] = peer_id
        candidates = [
            item
            for peer_id, item in found.items()
            if peer_id not in self._host.connected_peers()
            and now - self._dialled.get(peer_id, -math.inf) >= settings.dial_again_s
        ]
        self._rng.shuffle(candidates)
        async with trio.open_nursery() as nursery:
            for item in candidates[:DIALS_AT_ONCE]:
                self._dialled[item.peer_id] = now
                nursery.start_soon(self._dial, item, named_by.get(item.peer_id, item.peer_id))

    def _choose_peers_to_ask(self, connected: frozenset[PeerId], now: float) -> list[PeerId]:
        settings = self._settings
        fresh = [
            peer_id
            for peer_id in sorted(connected)
            if now - self._queried_at.get(peer_id, -math.inf) >= settings.ask_again_s
        ]
        chosen = self._rng.sample(fresh, min(settings.asks, len(fresh)))
        for peer_id in chosen:
            self._queried_at[peer_id] = now
        return chosen

    async def _dial(self, peer: PeerAddresses, named_by: PeerId) -> None:
        for address in peer.addresses[:2]:
            if not self._search.may_dial(address, named_by):
                continue
            try:
                await self._host.dial(f"{address}/p2p/{peer.peer_id}")
            except (DialError, ValueError) as error:
                log.debug("no peer of a shard at %s: %s", address, error)
                continue
            return

    async def _shuffle(self) -> None:
        """Dial one more peer seen on a needed shard; above the number to keep, disconnect one."""
        now, settings = trio.current_time(), self._settings
        connected = self._host.connected_peers()
        known = [
            peer
            for peer in self._search.directory.find(
                self._needed(), now, limit=256, exclude=connected
            )
            if now - self._dialled.get(peer.peer_id, -math.inf) >= settings.dial_again_s
        ]
        if not known:
            return
        peer = self._rng.choice(known)
        self._dialled[peer.peer_id] = now
        await self._dial(peer, peer.peer_id)
        connected = self._host.connected_peers()
        if peer.peer_id in connected and len(connected) > settings.keep_connections:
            surplus = sorted(self._surplus(self._observe(connected)) - {peer.peer_id})
            if surplus:
                await self._host.disconnect(self._rng.choice(surplus))

    def _surplus(self, on_shard: Mapping[int, set[PeerId]]) -> set[PeerId]:
        """Return the peers that are only on shards with more than enough peers."""
        crowded, wanted = set[PeerId](), set(self._search.keep)
        for peers in on_shard.values():
            (crowded if len(peers) > 2 * self._settings.want_peers else wanted).update(peers)
        return crowded - wanted

    async def _close_useless(
        self, connected: frozenset[PeerId], on_shard: Mapping[int, set[PeerId]]
    ) -> None:
        """Close connections that serve no needed shard, above the number to keep.

        Only outbound ones: a peer that dialled this node needs it for a shard of its own.
        """
        now = trio.current_time()
        useful = {peer_id for peers in on_shard.values() for peer_id in peers}
        useless = {p for p in connected if p in self._dialled} - useful - self._search.keep
        self._useless_since = {p: self._useless_since.get(p, now) for p in sorted(useless)}
        surplus = len(connected) - self._settings.keep_connections
        # A new connection has not announced its subscriptions yet.
        grace_s = 2 * self._settings.look_every_s
        gone = [p for p, since in self._useless_since.items() if now - since >= grace_s]
        for peer_id in gone[: max(0, surplus)]:
            del self._useless_since[peer_id]
            await self._host.disconnect(peer_id)
