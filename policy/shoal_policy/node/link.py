"""The trainer's side of the node's socket: share, sample, end leases, and go on without a node.

    sample ──▶ leased ──▶ held (trained on) ──▶ named by a checkpoint ──▶ consumed, confirmed
                  │            │
                  └────────────┴──▶ released: may be drawn again

Nothing here raises because the node is away: batches wait in a bounded queue (the oldest is
dropped and counted), a sample is empty, and consumed groups are named again at each handshake
until the node has confirmed them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from shoal_base.waits import HOUR_S
from shoal_ipc import messages as m
from shoal_ipc.client import Leases, NodeClient, NodeRefused, NodeUnavailable
from shoal_policy.node.outgoing import SendQueue, ShareCounts
from shoal_wire.types import GroupId, PeerId

log = logging.getLogger(__name__)

Reply = TypeVar("Reply", bound=m.Body)

_LEASE_SECONDS = 24 * HOUR_S
"""Leases end with the connection: one that ran out before would let a group train twice."""


class NodeLink:
    """Talks to the node, and keeps account of the groups on lease: leased, held or consumed.

    The words are those of `shoal_ipc`: *held* groups are trained on since the last checkpoint,
    *consumed* ones have their effect in a checkpoint on disk, *released* ones had none.
    """

    def __init__(self, client: NodeClient | None) -> None:
        self._client = client
        if client is not None:
            client.leases = self.leases
        self._outgoing = SendQueue(client)
        self._ahead: deque[m.SampledGroup] = deque()
        """Leased, and not yet handed out by `sample`."""
        self._leased: dict[GroupId, None] = {}
        """Leased, and neither trained on nor ended yet."""
        self._held: dict[GroupId, None] = {}
        """Trained on, in no checkpoint yet."""
        self._unconfirmed: dict[GroupId, None] = {}
        """Groups in a checkpoint that are not known to be consumed on the node's disk."""

    @property
    def counts(self) -> ShareCounts:
        """The account of the groups shared since the trainer started."""
        return self._outgoing.counts

    @property
    def connected(self) -> bool:
        """True if the node answers."""
        return self._client is not None and self._client.connected

    @property
    def peer_id(self) -> PeerId:
        """The node's peer id; empty before the first handshake."""
        return (self._client.peer_id if self._client is not None else None) or PeerId("")

    def leases(self) -> Leases:
        """Return the leases that the handshake tells the node.

        A broken connection ends its leases, so those of the round in hand are renewed too:
        else they could be drawn a second time.
        """
        return Leases(consumed=tuple(self._unconfirmed), held=(*self._held, *self._leased))

    def restore_consumed(self, consumed: Sequence[GroupId]) -> None:
        """Take over the consumed ids that a loaded checkpoint names."""
        self._unconfirmed = dict.fromkeys(consumed)

    def share(self, batch: m.Publish) -> None:
        """Send a batch without waiting for the node's disk; see `shoal_policy.node.outgoing`."""
        self._outgoing.share(batch)

    def flush(self) -> bool:
        """Wait until what was shared is on the node's disk; return whether all is."""
        return self._outgoing.flush()

    def lack_of_room(self) -> str:
        """Return why the node takes no batches, if its disk is full; tries again first."""
        self._outgoing.read_answers()  # a refusal that is read later would be news of what is over
        if self._outgoing.no_room:
            self._outgoing.flush()
        return self._outgoing.no_room if self.connected else ""

    def lease_ahead(self, count: int) -> None:
        """Lease up to `count` groups that `sample` hands out later.

        The node answers in order: what is leased after a batch is sent waits for its disk.
        """
        self._ahead.extend(self._lease(count - len(self._ahead)))

    def sample(self, count: int) -> tuple[m.SampledGroup, ...]:
        """Lease up to `count` external groups; none when the node is away."""
        if not self._ahead:
            return self._lease(count)
        return tuple(self._ahead.popleft() for _ in range(min(count, len(self._ahead))))

    def release_ahead(self) -> None:
        """End the leases of what was leased ahead and not handed out."""
        self.end_leases(released=[item.published.group_id for item in self._ahead])
        self._ahead.clear()

    def _lease(self, count: int) -> tuple[m.SampledGroup, ...]:
        if count <= 0:
            return ()
        asked = m.Sample(num_external=count, lease_seconds=_LEASE_SECONDS)
        reply, _ = self._asked(asked, m.SampleReply)
        groups = () if reply is None else reply.groups
        self._leased.update((item.published.group_id, None) for item in groups)
        return groups

    def hold_until_checkpoint(self, ids: Sequence[GroupId]) -> None:
        """Hold these leases: the weights in memory have the groups' effect, no checkpoint has."""
        for group_id in ids:
            self._leased.pop(group_id, None)
        self._held.update(dict.fromkeys(ids))

    def consumed_for_checkpoint(self) -> tuple[GroupId, ...]:
        """Return the ids that the checkpoint about to be written must name."""
        return (*self._unconfirmed, *self._held)

    def consume_held(self) -> None:
        """Consume the held groups for good: the checkpoint that contains them is on disk.

        Blocks for the node's answer; without one every checkpoint and handshake names them again.
        """
        self._unconfirmed.update(self._held)
        self._held.clear()
        if not self._unconfirmed:
            return
        done, _ = self._asked(m.EndLeases(consumed_ids=tuple(self._unconfirmed)), m.Ok)
        if done is not None:
            self._unconfirmed.clear()

    def release_held(self) -> None:
        """End the leases of held groups: weights that went back have their effect no more."""
        held = tuple(self._held)
        self._held.clear()
        self.end_leases(released=held)

    def end_leases(
        self, *, consumed: Sequence[GroupId] = (), released: Sequence[GroupId] = ()
    ) -> None:
        """End leases of groups without effect on the weights (`EndLeases`); does not wait.

        Consumed ones are never drawn again, released ones may be. If this is lost with the
        connection, so are the leases: any of them may be drawn again.
        """
        for group_id in (*consumed, *released):
            self._leased.pop(group_id, None)
        if consumed or released:
            self._tell(m.EndLeases(consumed_ids=tuple(consumed), released_ids=tuple(released)))

    def report(self, reports: Sequence[m.GroupReport]) -> None:
        """Tell the node what verification said; lost when the node is away."""
        self._tell(m.Report(groups=tuple(reports)))

    def report_outcomes(self, round_number: int, learnt: Sequence[m.GroupOutcome]) -> None:
        """Report to the node which groups a round learned from. Lost if the node is away."""
        self._tell(m.Report(round=round_number, outcomes=tuple(learnt)))

    def tell_status(self, json_text: str) -> None:
        """Push the trainer's state to the node."""
        self._tell(m.TrainerStatus(json=json_text))

    def ask_judge(
        self, body: m.JudgeAsk | m.JudgeAnswer, reply_type: type[Reply]
    ) -> tuple[Reply | None, bool]:
        """Return the judge's reply, None if there is none, and whether to ask again later."""
        return self._asked(body, reply_type)

    def drain(self) -> None:
        """Wait until the node has read all reports, so that closing the connection loses none."""
        self._asked(m.EndLeases(), m.Ok)

    def _asked(self, body: m.Body, reply_type: type[Reply]) -> tuple[Reply | None, bool]:
        """Return the node's reply, None if there is none, and whether to ask again later."""
        if self._client is None:
            return None, False
        try:
            return self._client.call(body, reply_type), False
        except (NodeUnavailable, NodeRefused) as error:
            log.debug("no reply to %s: %s", type(body).__name__, error)
            return None, isinstance(error, NodeRefused) and error.retryable

    def _tell(self, body: m.Report | m.TrainerStatus | m.EndLeases) -> None:
        if self._client is None:
            return
        try:
            self._client.post(body)
        except (NodeUnavailable, NodeRefused) as error:
            log.debug("not told: %s", error)
