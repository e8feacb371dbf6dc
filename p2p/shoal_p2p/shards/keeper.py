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
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol

import trio

from shoal_base.bounded import BoundedDict
from shoal_base.ranges import Range, Ranged, Seconds
from shoal_p2p.events import EventSink, ShardsChanged
from shoal_p2p.intake.validation import TopicValidator, Validator
from shoal_p2p.net.host import DialError
from shoal_p2p.net.interface import DIALS_AT_ONCE, Host
from shoal_p2p.shards.depth import ShardDepth, by_network, with_parents
from shoal_p2p.shards.directory import ShardDirectory
from shoal_p2p.shards.plan import ShardPlan
from shoal_p2p.shards.traffic import ShardTraffic
from shoal_wire.manifest import Manifest
from shoal_wire.peers import PeerAddresses
from shoal_wire.shard_tree import depth_of, first_of
from shoal_wire.topic_keys import COMMON_KEY, numbered, split_number
from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Reason, Verdict, verdict

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

_MAX_DOUBLINGS = 4

Ask = Callable[[PeerId, tuple[int, ...]], Awaitable[list[PeerAddresses]]]
"""``await ask(peer, shards)`` requests peers on these shards; raises nothing but Cancelled."""


class ShardGossip(Protocol):
    """The part of gossip that the keeper uses; gossip stands above it."""

    async def subscribe(self, topic: str, validator: Validator) -> None: ...
    async def unsubscribe(self, topic: str) -> None: ...
    def subscriptions(self) -> Mapping[PeerId, tuple[str, ...]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSettings(Ranged):
    """Number of peers wanted on each shard, and how hard to look for them."""

    want_peers: Annotated[int, Range("peers", 0, 1000)] = 6
    """Gossip's degree plus one. A peer whose shards all have over twice this number is surplus."""
    tick_s: Seconds = 1.0
    look_every_s: Seconds = 5.0
    """Seconds between two checks of the subscriptions, and between two searches."""
    asks: Annotated[int, Range("requests", 0, 100)] = 3
    """Requests in one search."""
    ask_again_s: Seconds = 30.0
    dial_again_s: Seconds = 15.0
    mix_every_s: Seconds = 10.0
    """Mean time between two dials that only shuffle."""
    keep_connections: Annotated[int, Range("connections", 0, 10_000)] = 12
    """Above this many, those that serve no needed shard, and surplus ones, are closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardChoice:
    """The rule that chooses shards of one topic key, and the callback for changes."""

    plan: ShardPlan
    traffic: ShardTraffic
    own: int | None
    """The shard on which this node publishes; None if it publishes nothing."""
    wanted_per_s: Callable[[], float] = lambda: 0.0
    """Returns how many external groups this node samples per second."""


class _KeyShards:
    """The shards of one topic key: how deep, which of them, and where this node publishes.

    Numbers are those within the tree, except in `shards`.
    """

    def __init__(self, key: int, choice: ShardChoice) -> None:
        self.key = key
        self.choice, self.plan = choice, choice.plan
        self.depth = ShardDepth()
        self.own = choice.own
        self.subscribed: frozenset[int] = frozenset()
        self.last_message_at: dict[int, float] = {}
        """Time of the last message on each shard's topic."""

    @property
    def chosen(self) -> tuple[int, ...]:
        """The chosen shards, without their parents."""
        first = first_of(self.depth.depth)
        return tuple(first + leaf for leaf in self.plan.shards)

    @property
    def shards(self) -> tuple[int, ...]:
        """The chosen shards, with their key."""
        return numbered(self.key, self.chosen)

    def needed(self, path: tuple[int, ...]) -> tuple[int, ...]:
        """Return the chosen shards, the one on which this node publishes, and the one on which it
        will publish next, whose listeners it must know. `path` is that of this node."""
        found = {*self.chosen}
        if self.own is not None:
            found |= {self.own, path[min(self.depth.depth, len(path) - 1)]}
        return numbered(self.key, sorted(found))


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
        choices: Mapping[int, ShardChoice],
        search: PeerSearch,
        validate: TopicValidator,
        events: EventSink | None = None,
        settings: ShardSettings | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """`choices` has a rule for each topic key of the families that this node accepted."""
        self._host = host
        self._gossip = gossip
        self._manifest = manifest
        self._keys = {key: _KeyShards(key, choice) for key, choice in choices.items()}
        self._search = search
        self._validate = validate
        self._events = events or EventSink()
        self._announced: frozenset[int] | None = None
        """The shards of the latest event."""
        self._settings = settings or ShardSettings()
        self._rng = rng or random.Random()
        self._num_peers: Mapping[int, int] = {}
        self._changed = trio.Event()
        self._applying = trio.Lock()
        self._queried_at: BoundedDict[PeerId, float] = BoundedDict()
        self._dialled: BoundedDict[PeerId, float] = BoundedDict()
        self._search_at = -math.inf
        self._num_vain = 0
        """Latest searches in a row that found no peer."""
        self._useless_since: dict[PeerId, float] = {}
        """Connected peers that serve no needed shard."""

    @property
    def shards(self) -> tuple[int, ...]:
        """The chosen shards of all keys, without their parents."""
        return tuple(shard for one in self._keys.values() for shard in one.shards)

    def own_shard(self, key: int = COMMON_KEY) -> int | None:
        """Return the shard on which this node publishes batches of a key; None if nothing."""
        known = self._keys.get(key)
        if known is None or known.own is None:
            return None
        return numbered(key, [known.own])[0]

    def topic_of(self, key: int) -> str:
        """Return the topic on which this node publishes batches of a key."""
        own = self.own_shard(key)
        undivided = self._manifest.path(self._host.peer_id, key)[0]
        return self._manifest.topic(undivided if own is None else own)

    async def use_choices(self, choices: Mapping[int, ShardChoice]) -> None:
        """Leave the topics of all other keys, and subscribe to those of these keys.

        A key that stays keeps its shards.
        """
        async with self._applying:
            for key in self._keys.keys() - choices.keys():
                gone = self._keys.pop(key)
                for number in numbered(key, sorted(gone.subscribed)):
                    await self._gossip.unsubscribe(self._manifest.topic(number))
            for key in sorted(choices.keys() - self._keys.keys()):
                self._keys[key] = _KeyShards(key, choices[key])
        await self._apply_plan()
        self._changed.set()

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
                self._num_vain = 0

    async def _shuffle_forever(self) -> None:
        while True:
            await trio.sleep(self._settings.mix_every_s * self._rng.uniform(0.5, 1.5))
            await self._shuffle()

    async def _apply_plan(self) -> bool:
        async with self._applying:
            subscribed = self._shards_by_key() if self._manifest.divides else {}
            changed = [
                await self._apply_plan_of(one, subscribed.get(one.key, {}))
                for one in self._keys.values()
            ]
        shards = frozenset(self.shards)
        if shards != self._announced:
            self._announced = shards
            self._events.emit(ShardsChanged(shards=shards))
        return any(changed)

    def _shards_by_key(self) -> dict[int, dict[PeerId, list[int]]]:
        """Return each peer's shards in the trees of the keys, in ascending order."""
        found: dict[int, dict[PeerId, list[int]]] = {}
        for peer_id, topics in self._gossip.subscriptions().items():
            for number in self._manifest.shards_of(topics):
                key, shard = split_number(number)
                found.setdefault(key, {}).setdefault(peer_id, []).append(shard)
        return found

    async def _apply_plan_of(self, one: _KeyShards, subscribed: Mapping[PeerId, list[int]]) -> bool:
        before, own = one.chosen, one.own
        if self._manifest.divides:
            self._update_depth(one, subscribed, trio.current_time())
        one.plan.tick(
            trio.current_time(),
            wanted_per_s=one.choice.wanted_per_s(),
            received=one.choice.traffic.by_leaf(one.depth.depth),
        )
        wanted = set(one.chosen)
        if self._manifest.divides:
            wanted = with_parents(wanted)
        for shard in sorted(wanted - one.subscribed):
            one.last_message_at[shard] = trio.current_time()
            (number,) = numbered(one.key, [shard])
            await self._gossip.subscribe(self._manifest.topic(number), self._validator(one, shard))
        for number in numbered(one.key, sorted(one.subscribed - wanted)):
            await self._gossip.unsubscribe(self._manifest.topic(number))
        one.subscribed = frozenset(wanted)
        one.last_message_at = {shard: one.last_message_at[shard] for shard in wanted}
        if before != one.chosen:
            log.debug("shards %s", one.shards)
        return before != one.chosen or own != one.own

    def _update_depth(
        self, one: _KeyShards, subscribed: Mapping[PeerId, list[int]], now: float
    ) -> None:
        """Update the shard depth of a key, and choose where to publish."""
        path = self._manifest.path(self._host.peer_id)
        depths, listeners = list[tuple[str, int]](), list[tuple[str, int]]()
        for peer_id, on in subscribed.items():
            depth = depth_of(on[-1])
            depths.append((self._host.source_of(peer_id), depth))
            if path[depth] in on:
                listeners.append(depths[-1])
        before, shards, leaves = one.depth.depth, one.chosen, one.plan.shards
        depth = one.depth.tick(
            now,
            load=one.plan.load,
            publishers=lambda: (
                one.choice.traffic.publishers(leaves, before, now) // max(1, len(leaves))
            ),
            others=by_network(depths),
            quiet_s=min(
                (now - one.last_message_at.get(shard, now) for shard in shards), default=0.0
            ),
        )
        if depth > before:
            one.plan.divide(depth - before, now)
        elif depth < before:
            one.plan.unite(now)
        if one.choice.own is not None:
            one.own = path[one.depth.publish_at(now, by_network(listeners))]

    def _validator(self, one: _KeyShards, shard: int) -> Validator:
        async def validate(data: bytes, author: PeerId, forwarder: PeerId) -> Verdict:
            if shard not in self._manifest.path(author):
                await trio.lowlevel.checkpoint()
                return verdict(Reason.WRONG_SWARM)
            judged = await self._validate(data, author, forwarder, one.key)
            if judged.outcome is Outcome.ACCEPT and shard in one.last_message_at:
                one.last_message_at[shard] = trio.current_time()
            return judged

        return validate

    # Peers of each shard

    def _needed(self) -> set[int]:
        """Return the shards, with their keys, on which this node needs peers."""
        path = self._manifest.path(self._host.peer_id)
        return {shard for one in self._keys.values() for shard in one.needed(path)}

    async def _search_peers(self) -> None:
        """Record the subscriptions, search peers for shards with few, and close surplus ones."""
        connected = self._host.connected_peers()
        on_shard = self._observe(connected)
        self._num_peers = {shard: len(peers) for shard, peers in on_shard.items()}
        short = tuple(
            sorted(s for s, count in self._num_peers.items() if count < self._settings.want_peers)
        )
        now = trio.current_time()
        if short and self._is_divided() and (now >= self._search_at or not self._num_vain):
            has_found = await self._find_more(short, connected)
            # A family of few nodes never has enough peers: a search that finds none is repeated
            # less and less often.
            self._num_vain = 0 if has_found else self._num_vain + 1
            pause_s = self._settings.look_every_s * 2 ** min(self._num_vain, _MAX_DOUBLINGS)
            self._search_at = now + pause_s
        await self._close_useless(connected, on_shard)

    def _is_divided(self) -> bool:
        """Return whether a peer of the swarm may be on none of the shards that this node needs."""
        return (
            self._manifest.rules.shard_count > 1
            or len({*self._manifest.keys.values(), *self._keys}) > 1
            or any(one.depth.depth for one in self._keys.values())
        )

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

    async def _find_more(self, short: tuple[int, ...], connected: frozenset[PeerId]) -> bool:
        """Search for peers of these shards, and dial them; return whether there were any."""
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
        return bool(candidates)

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
        # A peer serves one family or a few: with more families fewer spare ones of each.
        enough = self._settings.want_peers * max(1.0, 2 / max(1, len(self._keys)))
        for peers in on_shard.values():
            (crowded if len(peers) > enough else wanted).update(peers)
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
