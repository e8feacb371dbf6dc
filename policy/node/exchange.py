"""The trainer's dealings with its node: share, sample, settle, and go on without it.

Nothing here raises because the node is away: batches wait in a bounded queue (the oldest is
dropped and counted), a sample is empty, and settling is made up for at the next handshake.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from policy.node.outgoing import Outgoing, ShareCounts
from shoal_ipc import messages as m
from shoal_ipc.client import Leases, NodeClient, NodeRefused, NodeUnavailable
from shoal_wire.types import GroupId, PeerId

log = logging.getLogger(__name__)

Reply = TypeVar("Reply", bound=m.Body)

_LEASE_SECONDS = 86_400.0
"""Leases end with the connection: one that ran out before would let a group train twice."""


class Exchange:
    """Keeps the books of what was used since the last checkpoint, and talks to the node."""

    def __init__(self, client: NodeClient | None) -> None:
        self._client = client
        if client is not None:
            client.leases = self.leases
        self._outgoing = Outgoing(client)
        self._ahead: deque[m.SampledGroup] = deque()
        """Leased before they were asked for."""
        self._leased: dict[GroupId, None] = {}
        """Sampled, and neither trained on nor given back yet."""
        self._held: dict[GroupId, None] = {}
        self._unsettled: dict[GroupId, None] = {}

    @property
    def counts(self) -> ShareCounts:
        """What has been shared since the trainer started."""
        return self._outgoing.counts

    @property
    def connected(self) -> bool:
        """Whether the node answers."""
        return self._client is not None and self._client.connected

    @property
    def peer_id(self) -> PeerId:
        """The node's peer id; empty before the first handshake."""
        return (self._client.peer_id if self._client is not None else None) or PeerId("")

    def leases(self) -> Leases:
        """What the handshake tells the node.

        A broken connection ends its leases, so those of the round in hand are renewed too:
        else they could be drawn a second time.
        """
        return Leases(consumed=tuple(self._unsettled), held=(*self._held, *self._leased))

    def restore(self, consumed: Sequence[GroupId]) -> None:
        """Take over the ids that a loaded checkpoint contains."""
        self._unsettled = dict.fromkeys(consumed)

    def share(self, batch: m.Publish) -> None:
        """Send a batch without waiting for the node's disk; see `policy.node.outgoing`."""
        self._outgoing.share(batch)

    def flush(self) -> bool:
        """Wait until what was shared is on the node's disk; return whether all is."""
        return self._outgoing.flush()

    def draw_ahead(self, count: int) -> None:
        """Lease now what `sample` will be asked for, while the node has nothing else to do.

        It answers in order: a sample that is asked for behind a batch waits for its disk.
        """
        self._ahead.extend(self._lease(count - len(self._ahead)))

    def sample(self, count: int) -> tuple[m.SampledGroup, ...]:
        """Lease up to `count` external groups; none when the node is away."""
        if not self._ahead:
            return self._lease(count)
        return tuple(self._ahead.popleft() for _ in range(min(count, len(self._ahead))))

    def give_back_ahead(self) -> None:
        """End the leases of what was drawn ahead and never asked for."""
        self.settle(released=[item.published.group_id for item in self._ahead])
        self._ahead.clear()

    def _lease(self, count: int) -> tuple[m.SampledGroup, ...]:
        if self._client is None or count <= 0:
            return ()
        try:
            groups = self._client.call(
                m.Sample(num_external=count, lease_seconds=_LEASE_SECONDS), m.SampleReply
            ).groups
        except (NodeUnavailable, NodeRefused) as error:
            log.debug("no external groups: %s", error)
            return ()
        self._leased.update((item.published.group_id, None) for item in groups)
        return groups

    def hold(self, ids: Sequence[GroupId]) -> None:
        """Note that these groups have had their effect on the weights in memory."""
        for group_id in ids:
            self._leased.pop(group_id, None)
        self._held.update(dict.fromkeys(ids))

    def consumed_for_checkpoint(self) -> tuple[GroupId, ...]:
        """Return the ids that the checkpoint about to be written must name."""
        return (*self._unsettled, *self._held)

    def checkpointed(self) -> None:
        """The checkpoint is on disk: the held groups are consumed for good.

        Waits for the node's word: until then every checkpoint and handshake names them again.
        """
        self._unsettled.update(self._held)
        self._held.clear()
        if self._client is None or not self._unsettled:
            return
        try:
            self._client.call(m.Settle(consumed_ids=tuple(self._unsettled)), m.Done)
        except (NodeUnavailable, NodeRefused) as error:
            log.debug("settling waits: %s", error)
            return
        self._unsettled.clear()

    def undo_held(self) -> None:
        """The weights went back to the checkpoint: give back what they had learnt since."""
        held = tuple(self._held)
        self._held.clear()
        self.settle(released=held)

    def settle(self, *, consumed: Sequence[GroupId] = (), released: Sequence[GroupId] = ()) -> None:
        """End leases of groups that have had no effect, without waiting for the node.

        If this is lost with the connection, so are the leases: the groups may be drawn again.
        """
        for group_id in (*consumed, *released):
            self._leased.pop(group_id, None)
        if consumed or released:
            self._tell(m.Settle(consumed_ids=tuple(consumed), released_ids=tuple(released)))

    def report(self, reports: Sequence[m.GroupReport]) -> None:
        """Tell the node what verification said; lost when the node is away."""
        self._tell(m.Report(groups=tuple(reports)))

    def tell_status(self, json_text: str) -> None:
        """Push the trainer's state to the node."""
        self._tell(m.TrainerStatus(json=json_text))

    def judge(
        self, body: m.JudgeAsk | m.JudgeAnswer, reply_type: type[Reply]
    ) -> tuple[Reply | None, bool]:
        """Return what has come from the judge, if it has, and whether to look again later."""
        if self._client is None:
            return None, False
        try:
            return self._client.call(body, reply_type), False
        except NodeRefused as refused:
            log.debug("no word from the judge: %s", refused)
            return None, refused.retryable
        except NodeUnavailable as error:
            log.debug("no word from the judge: %s", error)
            return None, False

    def drain(self) -> None:
        """Wait until the node has read what it was told: before the connection is closed."""
        if self._client is None:
            return
        try:
            self._client.call(m.Settle(), m.Done)
        except (NodeUnavailable, NodeRefused) as error:
            log.debug("not drained: %s", error)

    def _tell(self, body: m.Report | m.TrainerStatus | m.Settle) -> None:
        if self._client is None:
            return
        try:
            self._client.post(body)
        except (NodeUnavailable, NodeRefused) as error:
            log.debug("not told: %s", error)
