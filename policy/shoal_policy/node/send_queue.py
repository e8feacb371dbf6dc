"""Own batches on their way to the node's disk.

    share ──▶ pending ──▶ sent ──▶ acknowledged: on the node's disk, forgotten here
                 ▲          │
                 └──────────┘ the connection broke, or the node cannot take it now

**What an acknowledgement means.** The node acknowledges a batch once it is on its disk. The trainer
does not wait for that: `share` returns when the batch is sent, and reads replies to earlier ones,
usually those of the round before. Until it is acknowledged a batch stays in memory and is sent
again, first to last, over every new connection; its `client_key` makes a repeated one the same
batch.

**When a batch may be forgotten**: when it is acknowledged, refused permanently, or pushed out of
the full queue; the last two are counted. A checkpoint that contains a round states that its groups
need not be generated again, so `flush` runs before it and puts them on the node's disk. If the node
is unavailable the checkpoint does not wait: the groups are lost if this process dies before the
node returns. That is the cost of continuing alone.

**Killed between sending and acknowledgement** (kill -9 of the trainer): the node may or may not
have the batch. The round is in no checkpoint, so it runs again. With the same result it is the same
batch under the same key, stored once; with another result (other groups were sampled) it is a
different batch, and both are honest samples.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass

from shoal_base.waits import MINUTE_S, RETRY_S
from shoal_ipc import messages as m
from shoal_ipc.client import NodeClient, NodeRefused, NodeUnavailable, Ticket

log = logging.getLogger(__name__)

MAX_PENDING_BATCHES = 256  # an hour of 15-second rounds; a guess
MAX_SENT_BATCHES = 8
"""Batches that may be unacknowledged at once; the next one waits for the first (back-pressure)."""


@dataclass(slots=True)
class ShareCounts:
    """Counts of batches and groups shared since the trainer started."""

    batches_published: int = 0
    groups_published: int = 0
    batches_dropped: int = 0
    groups_dropped: int = 0


@dataclass(slots=True, eq=False)
class _PendingBatch:
    """A batch that the node has not acknowledged."""

    batch: m.Publish
    ticket: Ticket | None = None
    """Identifies the reply, once sent."""


class SendQueue:
    """The queue of batches that the node has not acknowledged, oldest first."""

    def __init__(self, client: NodeClient | None) -> None:
        self._client = client
        self._pending: deque[_PendingBatch] = deque()
        self.counts = ShareCounts()
        self.disk_full = ""
        """The node's reason for taking no batches while its disk is full; empty otherwise."""
        self._retry_at = 0.0
        """Time before which nothing is sent, since the node cannot take more now."""
        self._next_warning_at = 0.0

    def share(self, batch: m.Publish) -> None:
        """Send a batch and any pending ones, without waiting for the node's disk."""
        if self._client is None:
            return
        self._pending.append(_PendingBatch(batch))
        self._enforce_limit()
        self.read_replies()
        self._send_pending()

    def flush(self) -> bool:
        """Send pending batches and wait until they are on the node's disk; return whether all are.

        Returns False at once if the node is unavailable; blocks at most the client's timeout per
        batch.
        """
        self.read_replies()
        while self._pending and self._send_pending() and self._read_reply(self._pending[0]):
            pass
        return not self._pending

    def _enforce_limit(self) -> None:
        """Drop the oldest batches beyond the limit, except those already sent."""
        while len(self._pending) > MAX_PENDING_BATCHES:
            oldest = next(pending for pending in self._pending if pending.ticket is None)
            self._drop(oldest)

    def _drop(self, pending: _PendingBatch) -> None:
        self._pending.remove(pending)
        self.counts.batches_dropped += 1
        self.counts.groups_dropped += len(pending.batch.groups)

    def _back_off(self, refused: NodeRefused) -> None:
        """Pause sending for a moment; warn once a minute about dropped groups."""
        now = time.monotonic()
        self._retry_at = now + RETRY_S
        if m.NO_ROOM in str(refused):
            self.disk_full = m.NO_ROOM  # the end of the round waits for it, and logs it
            return
        if now >= self._next_warning_at:
            self._next_warning_at = now + MINUTE_S
            log.warning(
                "node cannot take a batch now (%s): %d batches pending, %d groups dropped so far",
                refused,
                len(self._pending),
                self.counts.groups_dropped,
            )

    def _send_pending(self) -> bool:
        """Send pending batches in order, up to the limit; return whether the node takes them."""
        if self._client is None or time.monotonic() < self._retry_at:
            return False
        for pending in list(self._pending):
            if pending.ticket is not None:
                continue
            sent = [other for other in self._pending if other.ticket is not None]
            if len(sent) >= MAX_SENT_BATCHES and not self._read_reply(sent[0]):
                return False
            try:
                pending.ticket = self._client.send(pending.batch)
            except NodeUnavailable as error:
                log.debug("batches pending: %s", error)
                return False
        return True

    def read_replies(self) -> None:
        """Read the acknowledgements and refusals that have arrived."""
        if self._client is None:
            return
        for pending in list(self._pending):
            if pending.ticket is None:
                continue
            if not self._client.answered(pending.ticket):
                return  # the node answers in order
            self._read_reply(pending)

    def _read_reply(self, pending: _PendingBatch) -> bool:
        """Wait for the reply to a sent batch; return whether the batch is finished."""
        assert self._client is not None and pending.ticket is not None
        ticket, pending.ticket = pending.ticket, None
        try:
            reply = self._client.answer(ticket, m.PublishReply)
        except NodeUnavailable:
            return False
        except NodeRefused as refused:
            if refused.retryable:
                self._back_off(refused)
                return False
            log.error("node refused a batch: %s", refused)
            self._drop(pending)
            return True
        self.disk_full = ""
        self._pending.remove(pending)
        if reply.is_new:
            self.counts.batches_published += 1
            self.counts.groups_published += len(pending.batch.groups)
        return True
