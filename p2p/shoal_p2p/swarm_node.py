"""A peer of a known swarm: it subscribes to shards and validates messages.

task worker ─▶ intake ─▶ shards (subscribe) ─▶ mDNS ─▶ ready
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import trio

from shoal_p2p.intake.intake import Intake, IntakeLimits, Receivers
from shoal_p2p.intake.validation import ValidationContext
from shoal_p2p.intake.verifier_scheduler import QUEUE_TIMEOUT_S
from shoal_p2p.net.address import parse_peer_address
from shoal_p2p.peer import PeerNode
from shoal_p2p.peers import services
from shoal_p2p.shards.keeper import PeerSearch, ShardChoice, ShardKeeper
from shoal_p2p.shards.plan import ShardPlan
from shoal_p2p.shards.traffic import TopicTraffic
from shoal_tasks.bundle import with_accepted
from shoal_tasks.swarm import rules_of, specs_of, unused_task_files
from shoal_wire.manifest import Manifest
from shoal_wire.peers import PeerAddresses
from shoal_wire.topic_keys import COMMON_KEY
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from shoal_p2p.peers.mdns import Mdns

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A peer's demand for external groups, which determines its shards."""

    per_s: Callable[[], float]
    """External groups that it samples per second."""
    on_shards: Callable[[], None] = lambda: None
    """Called when its shards change."""


class SwarmNode:
    """A member of a swarm. Valid batches go to `receivers`."""

    def __init__(
        self,
        peer: PeerNode,
        manifest: Manifest,
        receivers: Receivers,
        *,
        is_open: trio.Event | None = None,
        draws: Demand | None = None,
        validates: bool = True,
    ) -> None:
        """A member without `draws` draws and publishes nothing, and relays one-shard swarms only.
        `is_open` is as the intake has it. A peer that does not validate listens to no shard: it
        would forward what others reject, and they would hold that against it.
        """
        self._validates = validates
        self.peer = peer
        self.manifest = manifest
        self.host, self.gossip, self.discovery = peer.host, peer.gossip, peer.discovery
        self.guard, self.ledger = peer.guard, peer.ledger
        parts, settings = peer.parts, peer.settings
        traffic = TopicTraffic(manifest)
        for why in unused_task_files(manifest, settings.task_files):
            logger.warning("%s: that task file is not used", why)
        self.task_files = with_accepted(settings.task_files, peer.data_dir)
        self.families = specs_of(manifest, self.task_files)
        self.worker = parts.worker(self.families, QUEUE_TIMEOUT_S)
        self.intake = Intake(
            context=ValidationContext(rules=rules_of(manifest), me=peer.peer_id),
            questions=self.worker,
            ledger=peer.ledger,
            receivers=replace(receivers, observers=(traffic, *receivers.observers)),
            is_open=is_open,
            wall_ms=parts.wall_ms,
            in_thread=parts.in_thread,
            network_of=peer.host.source_of,
            limits=IntakeLimits(
                lanes={
                    spec.name: spec.worker_key
                    for spec in self.families
                    if spec.worker_key and not spec.runs_user_code
                }
            ),
        )
        self.shards = self._shard_keeper(traffic, draws)

    @property
    def peer_id(self) -> PeerId:
        """This peer's id."""
        return self.peer.peer_id

    async def start(self, nursery: trio.Nursery) -> None:
        """Start validation and subscribe: from here on batches reach `keep`."""
        if self._validates:
            await nursery.start(self.worker.run)
        await nursery.start(self.intake.run)
        await nursery.start(self.shards.run)
        if self.peer.settings.mdns:
            await nursery.start(self._mdns().run)

    def _keys(self) -> list[int]:
        """Return the topic keys of the families that this peer can make and score."""
        common = {COMMON_KEY} if self.manifest.rules.allow_inline_tasks else set[int]()
        return sorted({self.manifest.keys[spec.name] for spec in self.families} | common)

    def _shard_keeper(self, traffic: TopicTraffic, draws: Demand | None) -> ShardKeeper:
        peer, settings = self.peer, self.peer.settings
        num_shards = self.manifest.rules.shard_count
        wanted = settings.subscribe_shards
        fixed = None if wanted == "auto" else int(wanted)
        if fixed is None and draws is None:
            # A peer that stores nothing can discover others without receiving every publisher.
            fixed = 1 if num_shards == 1 and self._validates else 0
        keys = self._keys()
        return ShardKeeper(
            host=peer.host,
            gossip=peer.gossip,
            manifest=self.manifest,
            choices={
                key: ShardChoice(
                    plan=ShardPlan(
                        num_shards=num_shards,
                        rng=peer.parts.rng,
                        fixed=fixed,
                        limits=peer.tuning.shard_limits,
                    ),
                    traffic=traffic.of_key(key),
                    own=None if draws is None else self.manifest.shard_of(peer.peer_id),
                    # Any family will do for the trainer, so each key brings its part.
                    wanted_per_s=lambda: draws.per_s() / len(keys) if draws is not None else 0.0,
                    on_change=draws.on_shards if draws is not None else lambda: None,
                )
                for key in keys
            },
            search=PeerSearch(
                directory=peer.shard_directory,
                ask=self._ask_for_shards,
                may_dial=lambda address, source: peer.address_policy.may_dial(
                    address, peer.address_policy.speaker(source).source
                ),
                keep=frozenset(parse_peer_address(one).peer_id for one in settings.bootstrap),
            ),
            validate=self.intake.validate,
            settings=peer.tuning.shards,
            rng=peer.parts.rng,
        )

    async def _ask_for_shards(
        self, peer_id: PeerId, shards: tuple[int, ...]
    ) -> list[PeerAddresses]:
        """Return the peers of these shards that `peer_id` reports, with allowed addresses only."""
        is_allowed = self.peer.address_policy.speaker(peer_id).is_allowed
        return [
            replace(found, addresses=tuple(filter(is_allowed, found.addresses)))
            for found in await services.fetch_peers(self.host, peer_id, shards)
        ]

    def _mdns(self) -> Mdns:
        # Imported late: a node that does not use it saves the library's 6 MiB.
        from shoal_p2p.peers.mdns import Mdns

        discovery = self.peer.discovery
        return Mdns(
            peer_id=self.peer_id,
            addresses=tuple(
                parse_peer_address(address).transport for address in self.host.interface_addrs()
            ),
            on_found=discovery.add_announced,
            swarm=self.manifest.digest.hex(),
        )
