"""The tasks of a running node: shared with peers, offered to them, added and removed.

files of tasks ─▶ SharedTasks, offers ─▶ peers     peers' offers ─▶ orders ─▶ take_up ─▶ trainer
"""

from __future__ import annotations

import trio

from shoal_p2p.bundles.client import TaskClient
from shoal_p2p.bundles.offer_book import OfferBook
from shoal_p2p.bundles.offer_exchange import OfferExchange
from shoal_p2p.bundles.orders import TaskOrders
from shoal_p2p.bundles.server import SharedTasks, TaskServer, share_families
from shoal_p2p.ipc.task_desk import TaskDesk, training_of
from shoal_p2p.rollouts.training_stats import TrainingStats
from shoal_p2p.swarm_node import SwarmNode
from shoal_p2p.trainer_child import TrainerChild
from shoal_settings.accept_tasks import parse_accept_rule
from shoal_wire.manifest import Manifest


class NodeTasks:
    """The parts of a node that follow its tasks while it runs."""

    def __init__(
        self,
        member: SwarmNode,
        manifest: Manifest,
        *,
        learning: TrainingStats,
        child: TrainerChild | None,
    ) -> None:
        self._member = member
        self._learning = learning
        self._child = child
        self._taking_up = trio.Lock()
        self.shared = SharedTasks()
        peer, book = member.peer, OfferBook()
        self._orders = TaskOrders(
            make_client=self._client,
            manifest=manifest,
            data_dir=peer.data_dir,
            in_thread=peer.parts.in_thread,
            offered=book.families,
            here=lambda: member.families,
            take_up=self.take_up,
            rule=parse_accept_rule(peer.settings.accept_tasks),
        )
        self._offers = OfferExchange(
            host=peer.host,
            client=self._client(),
            book=book,
            manifest=manifest,
            wall_ms=peer.parts.wall_ms,
            rng=peer.parts.rng,
            training=lambda: training_of(member, learning),
            on_offered=self._orders.on_offered,
        )
        self.desk = TaskDesk(
            member, book=book, exchange=self._offers, orders=self._orders, learning=learning
        )

    def _client(self) -> TaskClient:
        peer = self._member.peer
        return TaskClient(
            host=peer.host, report=peer.guard.on_verdict, in_thread=peer.parts.in_thread
        )

    async def serve(self) -> None:
        """Answer peers that ask for offers, and for files of own and accepted tasks."""
        member, peer = self._member, self._member.peer
        in_thread = peer.parts.in_thread
        await in_thread(share_families, self.shared, member.families, member.task_files)
        TaskServer(
            host=peer.host,
            shared=self.shared,
            report=peer.guard.on_verdict,
            in_thread=in_thread,
            offers=self._offers.answer,
        ).serve()
        self._offers.offer(member.added)

    async def start(self, nursery: trio.Nursery) -> None:
        """Start to exchange offers, and to carry out orders."""
        await nursery.start(self._orders.run)
        await nursery.start(self._offers.run)

    async def take_up(self) -> None:
        """Train on the tasks whose files are here now, and no longer on those whose files are gone.

        The trainer restarts from a checkpoint that it writes first.

        Raises:
            ManifestError, TaskError: a task cannot be used; the former ones stay.
        """
        async with self._taking_up:
            member, before = self._member, self._member.families
            if not await member.take_up_families():
                return
            for spec in before:
                if spec not in member.families:
                    self.shared.remove(spec.digest)
            new = [spec for spec in member.families if spec not in before]
            in_thread = member.peer.parts.in_thread
            await in_thread(share_families, self.shared, new, member.task_files)
            self._offers.offer(member.added)
            self._learning.keep_families({s.name for s in member.families if s not in new})
            if self._child is not None:
                self._child.restart()
