"""Tasks that are added to the running swarm: orders from the socket, and the view `tasks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal_ipc import messages as m
from shoal_ipc.answers.learning import FamilyStats
from shoal_ipc.answers.tasks import OfferedTask, Tasks
from shoal_p2p.bundles.acceptor import has_code
from shoal_p2p.bundles.offer_book import OfferBook
from shoal_p2p.bundles.offer_exchange import OfferExchange
from shoal_p2p.bundles.orders import OrderError, TaskOrders
from shoal_p2p.rollouts.training_stats import TrainingStats
from shoal_p2p.swarm_node import SwarmNode
from shoal_tasks.spec import FamilySpec
from shoal_wire.task_messages import Training
from shoal_wire.types import Digest, PeerId


class TaskDesk:
    """Answers programs on the socket about tasks that are added to the swarm."""

    def __init__(
        self,
        member: SwarmNode,
        *,
        book: OfferBook,
        exchange: OfferExchange,
        orders: TaskOrders,
        learning: TrainingStats,
    ) -> None:
        self._member = member
        self._book = book
        self._exchange = exchange
        self._orders = orders
        self._learning = learning

    async def order(self, body: m.TaskOrder) -> None:
        """Carry out an order. Raises OrderError: it cannot be."""
        match body.action:
            case m.TaskAction.ADD:
                await self._orders.add(body.task, body.rule)
            case m.TaskAction.ACCEPT | m.TaskAction.DECLINE:
                is_accepted = body.action is m.TaskAction.ACCEPT
                self._orders.decide(_digest(body.task), is_accepted=is_accepted)
            case m.TaskAction.REMOVE:
                await self._orders.remove(body.task)

    async def tasks(self, _options: Mapping[str, Any]) -> Tasks:
        """The tasks on offer, and those that this node has added."""
        signers: dict[tuple[str, Digest], tuple[PeerId, ...]] = {}
        specs: dict[tuple[str, Digest], FamilySpec] = {}
        for spec in self._member.added:
            specs[spec.name, spec.digest] = spec
        for family in self._book.families():
            key = family.spec.name, family.spec.digest
            signers[key] = family.signers
            specs.setdefault(key, family.spec)
        for order in self._orders.orders.values():
            specs.setdefault((order.spec.name, order.spec.digest), order.spec)
        return Tasks(
            tasks=tuple(
                self._row(spec, signers.get(key, ()))
                for key, spec in sorted(specs.items(), key=lambda item: item[0])
            )
        )

    def _row(self, spec: FamilySpec, signers: Sequence[PeerId]) -> OfferedTask:
        earnings = self._exchange.earnings(spec.digest)
        own = self._own(spec)
        order = self._orders.orders.get(spec.digest)
        is_here = any(one.digest == spec.digest for one in self._member.added)
        rows = spec.config.get("rows")
        state = "accepted" if is_here else "offered" if order is None else order.state.value
        return OfferedTask(
            name=spec.name,
            digest=spec.digest.hex(),
            title=str(spec.config.get("title", "")),
            questions=rows if isinstance(rows, int) else None,
            has_code=has_code(spec),
            offered_by=tuple(signers),
            nodes=earnings.num_nodes + is_here,
            reward_peers=None if earnings.reward is None else round(earnings.reward, 4),
            reward_local=None if own is None else own.reward,
            state=state,  # type: ignore[arg-type]  # the words of `OrderState`
            description="" if order is None or is_here else "\n".join(order.lines),
            why="" if order is None or is_here else order.why,
        )

    def _own(self, spec: FamilySpec) -> FamilyStats | None:
        rows = self._learning.families()
        return next((one for one in rows if one.name == spec.name), None)


def training_of(member: SwarmNode, learning: TrainingStats) -> tuple[Training, ...]:
    """Return what this node earns with the families that it has added, for peers that ask."""
    by_name = {one.name: one for one in learning.families()}
    found = []
    for spec in member.added:
        row = by_name.get(spec.name)
        if row is not None and row.reward is not None:
            reward = min(1.0, max(0.0, row.reward))
            found.append(Training(family=spec.digest, reward=reward, groups=row.groups))
    return tuple(found)


def _digest(text: str) -> Digest:
    try:
        return Digest(bytes.fromhex(text))
    except ValueError:
        raise OrderError(f"{text[:80]!r} is not the digest of a task") from None
