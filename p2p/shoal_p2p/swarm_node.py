"""A peer of a known swarm: it subscribes to shards and validates messages.

task worker ─▶ intake ─▶ shards (subscribe) ─▶ mDNS ─▶ ready
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import trio

from shoal_p2p.events import BatchAccepted
from shoal_p2p.intake.intake import Intake, IntakeLimits, Receivers
from shoal_p2p.intake.validation import ValidationContext
from shoal_p2p.intake.verifier_scheduler import QUEUE_TIMEOUT_S
from shoal_p2p.net.address import parse_peer_address
from shoal_p2p.peer import PeerNode
from shoal_p2p.peers import services
from shoal_p2p.shards.keeper import PeerSearch, ShardChoice, ShardKeeper
from shoal_p2p.shards.plan import ShardPlan
from shoal_p2p.shards.traffic import TopicTraffic
from shoal_p2p.task_worker import ReplaceableWorker
from shoal_tasks.bundle import with_accepted
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import rules_of, specs_of, unused_task_files, with_added
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
        self._draws = draws
        self.peer = peer
        self._founded = manifest
        self.host, self.gossip, self.discovery = peer.host, peer.gossip, peer.discovery
        self.guard, self.ledger = peer.guard, peer.ledger
        parts, settings = peer.parts, peer.settings
        self._traffic = TopicTraffic(manifest)
        peer.events.add(self._traffic, BatchAccepted)
        for why in unused_task_files(manifest, settings.task_files):
            logger.warning("%s: that task file is not used", why)
        self.task_files, self.families = self._families_here()
        self.manifest = with_added(manifest, self.families)
        """The swarm's manifest, with the families that this node has added for itself."""
        self.worker = ReplaceableWorker(
            self.families, lambda families: parts.worker(families, QUEUE_TIMEOUT_S)
        )
        self.intake = Intake(
            context=ValidationContext(rules=rules_of(self.manifest), me=peer.peer_id),
            questions=self.worker,
            ledger=peer.ledger,
            receivers=receivers,
            events=peer.events,
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
        self.shards = self._shard_keeper()

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

    @property
    def added(self) -> tuple[FamilySpec, ...]:
        """The families that this node has added to those of its swarm."""
        names = {family.name for family in self._founded.families}
        return tuple(spec for spec in self.families if spec.name not in names)

    def _families_here(self) -> tuple[tuple[str, ...], tuple[FamilySpec, ...]]:
        """Return the task files of this node, and its families in the swarm. Blocks.

        Raises:
            ManifestError: a file cannot be used, or there is no family.
        """
        files = with_accepted(self.peer.settings.task_files, self.peer.data_dir)
        families = specs_of(self._founded, files)
        if self._draws is None:  # a bootstrap or a judge serves the swarm's families alone
            known = {family.name for family in self._founded.families}
            families = tuple(spec for spec in families if spec.name in known)
        return files, families

    async def take_up_families(self) -> bool:
        """Use the families whose files are here now; return whether they are others than before.

        Raises:
            ManifestError, TaskError: they cannot be used; the former ones stay.
        """
        task_files, families = await self.peer.parts.in_thread(self._families_here)
        if families == self.families:
            return False
        await self.worker.use(families)
        self.task_files, self.families = task_files, families
        self.manifest = with_added(self._founded, families)
        self.intake.use_rules(rules_of(self.manifest))
        await self.shards.use_choices(self._choices())
        return True

    def _keys(self) -> list[int]:
        """Return the topic keys of the families that this peer can make and score."""
        common = {COMMON_KEY} if self.manifest.rules.allow_inline_tasks else set[int]()
        return sorted({self.manifest.keys[spec.name] for spec in self.families} | common)

    def _choices(self) -> dict[int, ShardChoice]:
        peer, settings, draws = self.peer, self.peer.settings, self._draws
        num_shards = self.manifest.rules.shard_count
        wanted = settings.subscribe_shards
        fixed = None if wanted == "auto" else int(wanted)
        if fixed is None and draws is None:
            # A peer that stores nothing can discover others without receiving every publisher.
            fixed = 1 if num_shards == 1 and self._validates else 0

        def wanted_per_s() -> float:
            # Any family will do for the trainer, so each key brings its part.
            return draws.per_s() / len(self._keys()) if draws is not None else 0.0

        return {
            key: ShardChoice(
                plan=ShardPlan(
                    num_shards=num_shards,
                    rng=peer.parts.rng,
                    fixed=fixed,
                    limits=peer.tuning.shard_limits,
                ),
                traffic=self._traffic.of_key(key),
                own=None if draws is None else self.manifest.shard_of(peer.peer_id),
                wanted_per_s=wanted_per_s,
            )
            for key in self._keys()
        }

    def _shard_keeper(self) -> ShardKeeper:
        peer, settings = self.peer, self.peer.settings
        return ShardKeeper(
            host=peer.host,
            gossip=peer.gossip,
            manifest=self._founded,
            choices=self._choices(),
            search=PeerSearch(
                directory=peer.shard_directory,
                ask=self._ask_for_shards,
                may_dial=lambda address, source: peer.address_policy.may_dial(
                    address, peer.address_policy.speaker(source).source
                ),
                keep=frozenset(parse_peer_address(one).peer_id for one in settings.bootstrap),
            ),
            validate=self.intake.validate,
            events=peer.events,
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
