"""The trainer's end of the node's socket: share, sample, end leases; works without a node too.

    sample ──▶ leased ──▶ held (trained on) ──▶ named by a checkpoint ──▶ consumed, confirmed
                  │            │
                  └────────────┴──▶ released: may be sampled again

Nothing here raises because the node is unavailable: batches wait in a bounded queue (the oldest is
dropped and counted), a sample is empty, and consumed groups are named at each handshake until the
node has confirmed them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from shoal_base.waits import HOUR_S
from shoal_ipc import messages as m
from shoal_ipc.client import Leases, NodeClient, NodeRefused, NodeUnavailable
from shoal_policy.node.send_queue import SendQueue, ShareCounts
from shoal_wire.types import GroupId, PeerId, PublishedGroup

log = logging.getLogger(__name__)

Reply = TypeVar("Reply", bound=m.Body)

_LEASE_SECONDS = 24 * HOUR_S
"""Leases end with the connection; an earlier expiry could let a group be trained on twice."""


class NodeLink:
    """Talks to the node, and tracks leased groups: leased, held or consumed.

    As in `shoal_ipc`, *held* groups were trained on since the last checkpoint, *consumed* ones have
    their effect in a checkpoint on disk, and *released* ones had none.
    """

    def __init__(self, client: NodeClient | None) -> None:
        self._client = client
        if client is not None:
            client.leases = self.leases
        self._send_queue = SendQueue(client)
        self._pending = m.Report()
        """Reported, not sent yet."""
        self._ahead: deque[PublishedGroup] = deque()
        """Leased, not yet returned by `sample`."""
        self._leased: dict[GroupId, None] = {}
        """Leased, neither trained on nor ended."""
        self._held: dict[GroupId, None] = {}
        """Trained on, not in a checkpoint yet."""
        self._unconfirmed: dict[GroupId, None] = {}
        """Groups in a checkpoint that the node has not confirmed as consumed on its disk."""

    @property
    def counts(self) -> ShareCounts:
        """Return the counts of groups shared since the trainer started."""
        return self._send_queue.counts

    @property
    def connected(self) -> bool:
        """Return whether the node is connected."""
        return self._client is not None and self._client.connected

    @property
    def peer_id(self) -> PeerId:
        """Return the node's peer id; empty before the first handshake."""
        return (self._client.peer_id if self._client is not None else None) or PeerId("")

    def leases(self) -> Leases:
        """Return the leases to report in the handshake.

        A broken connection ends its leases, so those of the current round are renewed too;
        otherwise their groups could be sampled a second time.
        """
        return Leases(consumed=tuple(self._unconfirmed), held=(*self._held, *self._leased))

    def restore_consumed(self, consumed: Sequence[GroupId]) -> None:
        """Restore the consumed ids of a loaded checkpoint."""
        self._unconfirmed = dict.fromkeys(consumed)

    def share(self, batch: m.Publish) -> None:
        """Send a batch without waiting for the node's disk; see `shoal_policy.node.send_queue`."""
        self._send_queue.share(batch)

    def flush(self) -> bool:
        """Wait until shared batches are on the node's disk; return whether all are."""
        return self._send_queue.flush()

    def disk_full_reason(self) -> str:
        """Return why the node takes no batches if its disk is full; retries first."""
        # A refusal that is read later would report a problem that is over.
        self._send_queue.read_replies()
        if self._send_queue.disk_full:
            self._send_queue.flush()
        return self._send_queue.disk_full if self.connected else ""

    def lease_ahead(self, count: int) -> None:
        """Lease up to `count` groups that `sample` returns later.

        The node answers in order: a lease requested after a batch would wait for its disk.
        """
        self._ahead.extend(self._lease(count - len(self._ahead)))

    def sample(self, count: int) -> tuple[PublishedGroup, ...]:
        """Lease up to `count` external groups; empty if the node is unavailable."""
        if not self._ahead:
            return self._lease(count)
        return tuple(self._ahead.popleft() for _ in range(min(count, len(self._ahead))))

    def release_ahead(self) -> None:
        """End the leases of groups that were leased ahead and not returned."""
        self.end_leases(released=[group.group_id for group in self._ahead])
        self._ahead.clear()

    def _lease(self, count: int) -> tuple[PublishedGroup, ...]:
        if count <= 0:
            return ()
        self.send_report()
        request = m.Sample(num_external=count, lease_seconds=_LEASE_SECONDS)
        reply, _ = self._call(request, m.SampleReply)
        groups = () if reply is None else reply.groups
        self._leased.update((group.group_id, None) for group in groups)
        return groups

    def hold_until_checkpoint(self, ids: Sequence[GroupId]) -> None:
        """Hold these leases: the weights contain the groups' effect, but no checkpoint does."""
        for group_id in ids:
            self._leased.pop(group_id, None)
        self._held.update(dict.fromkeys(ids))

    def consumed_for_checkpoint(self) -> tuple[GroupId, ...]:
        """Return the ids that the next checkpoint must name."""
        return (*self._unconfirmed, *self._held)

    def consume_held(self) -> None:
        """Consume the held groups: the checkpoint that contains them is on disk.

        Sends the report of the round, too. Blocks for the node's reply; without one, every
        checkpoint and handshake names them again.
        """
        self._unconfirmed.update(self._held)
        self._held.clear()
        if not self._unconfirmed:
            return
        self._add(consumed_ids=tuple(self._unconfirmed))
        done, _ = self._call(self._take_pending(), m.Ok)
        if done is not None:
            self._unconfirmed.clear()

    def release_held(self) -> None:
        """Release held groups: the weights were rolled back and no longer contain their effect."""
        held = tuple(self._held)
        self._held.clear()
        self.end_leases(released=held)

    def end_leases(
        self, *, consumed: Sequence[GroupId] = (), released: Sequence[GroupId] = ()
    ) -> None:
        """End leases of groups without effect on the weights, with the next report.

        Consumed ones are never sampled again, released ones may be. If that message is lost with
        the connection, so are the leases: any of the groups may be sampled again.
        """
        for group_id in (*consumed, *released):
            self._leased.pop(group_id, None)
        self._add(consumed_ids=tuple(consumed), released_ids=tuple(released))

    def report(self, reports: Sequence[m.GroupReport]) -> None:
        """Report rewards to the node, with the next report."""
        self._add(groups=tuple(reports))

    def report_outcomes(self, round_number: int, outcomes: Sequence[m.GroupOutcome]) -> None:
        """Report to the node what became of each group of a round, with the next report."""
        if self._pending.round:
            self.send_report()
        self._pending = replace(self._pending, round=round_number, outcomes=tuple(outcomes))

    def send_report(self) -> None:
        """Send what was reported, if anything; does not wait. Lost if the node is unavailable.

        A lease and a checkpoint send it, too.
        """
        if self._pending != m.Report():
            self._post(self._take_pending())

    def _add(self, **more: tuple[Any, ...]) -> None:
        known = {name: getattr(self._pending, name) for name in more}
        self._pending = replace(self._pending, **{n: known[n] + more[n] for n in more})

    def _take_pending(self) -> m.Report:
        taken, self._pending = self._pending, m.Report()
        return taken

    def send_status(self, json_text: str) -> None:
        """Send the trainer's status to the node."""
        self._post(m.TrainerStatus(json=json_text))

    def call_judge(
        self, body: m.JudgeAsk | m.JudgeAnswer, reply_type: type[Reply]
    ) -> tuple[Reply | None, bool]:
        """Return the judge's reply or None, and whether to try again later."""
        return self._call(body, reply_type)

    def drain(self) -> None:
        """Wait until the node has read all reports, so that closing the connection loses none."""
        self._call(self._take_pending(), m.Ok)

    def _call(self, body: m.Body, reply_type: type[Reply]) -> tuple[Reply | None, bool]:
        """Return the node's reply or None, and whether to try again later."""
        if self._client is None:
            return None, False
        try:
            return self._client.call(body, reply_type), False
        except (NodeUnavailable, NodeRefused) as error:
            log.debug("no reply to %s: %s", type(body).__name__, error)
            return None, isinstance(error, NodeRefused) and error.retryable

    def _post(self, body: m.Report | m.TrainerStatus) -> None:
        if self._client is None:
            return
        try:
            self._client.post(body)
        except (NodeUnavailable, NodeRefused) as error:
            log.debug("message not sent: %s", error)
