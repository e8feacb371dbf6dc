"""The trainer's dealings with its node: share, sample, settle, and go on without it.

Nothing here raises because the node is away: batches wait in a bounded queue (the oldest is
dropped and counted), a sample is empty, and settling is made up for at the next handshake.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from shoal_ipc.client import Leases, NodeClient, NodeRefused, NodeUnavailable
from shoal_wire import ipc_messages as m
from shoal_wire.types import GroupId, PeerId

log = logging.getLogger(__name__)

MAX_WAITING_BATCHES = 256
_LEASE_SECONDS = 86_400.0
"""Leases end with the connection: one that ran out before would let a group train twice."""


@dataclass(slots=True)
class ExchangeCounts:
    """What has passed between trainer and node since the trainer started."""

    batches_published: int = 0
    groups_published: int = 0
    batches_dropped: int = 0


class Exchange:
    """Keeps the books of what was used since the last checkpoint, and talks to the node."""

    def __init__(self, client: NodeClient | None) -> None:
        self._client = client
        if client is not None:
            client.leases = self.leases
        self._waiting: deque[m.Publish] = deque()
        self._leased: dict[GroupId, None] = {}
        """Sampled, and neither trained on nor given back yet."""
        self._held: dict[GroupId, None] = {}
        self._unsettled: dict[GroupId, None] = {}
        self.counts = ExchangeCounts()

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
        """Queue a batch and send what is queued; a batch is done when it is on the node's disk."""
        if self._client is None:
            return
        self._waiting.append(batch)
        while len(self._waiting) > MAX_WAITING_BATCHES:
            self._waiting.popleft()
            self.counts.batches_dropped += 1
        self.flush()

    def flush(self) -> bool:
        """Send waiting batches in order; return whether none is left."""
        while self._client is not None and self._waiting:
            try:
                reply = self._client.call(self._waiting[0], m.PublishReply)
            except NodeUnavailable:
                return False
            except NodeRefused as refused:
                if refused.retryable:
                    log.warning("node could not take a batch now: %s", refused)
                    return False
                log.error("node refused a batch: %s", refused)
                self._waiting.popleft()
                self.counts.batches_dropped += 1
                continue
            sent = self._waiting.popleft()
            if reply.is_new:
                self.counts.batches_published += 1
                self.counts.groups_published += len(sent.groups)
        return not self._waiting

    def sample(self, count: int) -> tuple[m.SampledGroup, ...]:
        """Lease up to `count` external groups; none when the node is away."""
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
        self._forget_leased(ids)
        self._held.update(dict.fromkeys(ids))

    def consumed_for_checkpoint(self) -> tuple[GroupId, ...]:
        """Return the ids that the checkpoint about to be written must name."""
        return (*self._unsettled, *self._held)

    def checkpointed(self) -> None:
        """The checkpoint is on disk: the held groups are consumed for good."""
        self._unsettled.update(self._held)
        self._held.clear()
        if self.settle(consumed=tuple(self._unsettled)):
            self._unsettled.clear()

    def undo_held(self) -> None:
        """The weights went back to the checkpoint: give back what they had learnt since."""
        held = tuple(self._held)
        self._held.clear()
        self.settle(released=held)

    def settle(self, *, consumed: Sequence[GroupId] = (), released: Sequence[GroupId] = ()) -> bool:
        """End leases; return whether the node confirmed."""
        self._forget_leased((*consumed, *released))
        if self._client is None:
            return False
        if not consumed and not released:
            return True
        try:
            self._client.call(
                m.Settle(consumed_ids=tuple(consumed), released_ids=tuple(released)), m.Done
            )
        except (NodeUnavailable, NodeRefused) as error:
            log.debug("settling waits: %s", error)
            return False
        return True

    def report(self, reports: Sequence[m.GroupReport]) -> None:
        """Tell the node what verification said; lost when the node is away."""
        self._tell(m.Report(groups=tuple(reports)))

    def tell_status(self, json_text: str) -> None:
        """Push the trainer's state to the node."""
        self._tell(m.TrainerStatus(json=json_text))

    def drain(self) -> None:
        """Wait until the node has read what it was told: before the connection is closed."""
        if self._client is None:
            return
        try:
            self._client.call(m.Settle(), m.Done)
        except (NodeUnavailable, NodeRefused) as error:
            log.debug("not drained: %s", error)

    def _forget_leased(self, ids: Sequence[GroupId]) -> None:
        for group_id in ids:
            self._leased.pop(group_id, None)

    def _tell(self, body: m.Report | m.TrainerStatus) -> None:
        if self._client is None:
            return
        try:
            self._client.post(body)
        except (NodeUnavailable, NodeRefused) as error:
            log.debug("not told: %s", error)
