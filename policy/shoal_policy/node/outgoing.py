"""Own batches on their way to the node's disk.

    share ──▶ waiting ──▶ sent ──▶ acknowledged: on the node's disk, forgotten here
                 ▲          │
                 └──────────┘ the connection broke, or the node cannot take it now

**What an acknowledgement means.** The node answers a batch once it is on its disk. Nobody waits
for that: `share` returns when the batch is sent and reads the answers to earlier ones, most often
those of the round before. Until it is acknowledged a batch stays in memory here and is sent again,
first to last, over every new connection; its `client_key` makes a second one the same batch.

**When a batch may be forgotten**: when it is acknowledged, refused for good, or pushed out of the
full queue; the last two are counted. So `flush` comes before a checkpoint: one that contains a
round says that the round's groups need not be made again, and they are on the node's disk then. If
the node is away they are not, the checkpoint does not wait for it, and they are lost if this
process dies before the node is back: never acknowledged, and the price of going on alone.

**Killed between sending and acknowledgement** (kill -9 of the trainer): the node has the batch, or
has it not. The round is in no checkpoint, so it is played again; with the same outcome it is the
same batch under the same key, stored once; with another (other groups were drawn) it is another
batch, and both are honest samples.
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

MAX_WAITING_BATCHES = 256  # an hour of rounds of a quarter minute; a guess
MAX_SENT_BATCHES = 8
"""Batches that may be unacknowledged at once. The next one waits for the first: back-pressure."""


@dataclass(slots=True)
class ShareCounts:
    """The account of the groups shared since the trainer started."""

    batches_published: int = 0
    groups_published: int = 0
    batches_dropped: int = 0
    groups_dropped: int = 0


@dataclass(slots=True, eq=False)
class _Waiting:
    """A batch that the node has not acknowledged."""

    batch: m.Publish
    ticket: Ticket | None = None
    """The number by which the answer is read, once sent."""


class SendQueue:
    """The queue of batches that the node has not acknowledged, oldest first."""

    def __init__(self, client: NodeClient | None) -> None:
        self._client = client
        self._waiting: deque[_Waiting] = deque()
        self.counts = ShareCounts()
        self.no_room = ""
        """Why the node takes no batch, while that is its full disk."""
        self._not_before = 0.0
        """The node has said that it cannot take more now."""
        self._say_again_at = 0.0

    def share(self, batch: m.Publish) -> None:
        """Send a batch, and any that wait, without waiting for the node's disk."""
        if self._client is None:
            return
        self._waiting.append(_Waiting(batch))
        self._bound()
        self.read_answers()
        self._send_waiting()

    def flush(self) -> bool:
        """Send what waits, and wait until it is on the node's disk; return whether all is.

        False at once when the node is away; blocks for at most the client's timeout a batch.
        """
        self.read_answers()
        while self._waiting and self._send_waiting() and self._read_answer(self._waiting[0]):
            pass
        return not self._waiting

    def _bound(self) -> None:
        """Drop the oldest beyond the bound, those on their way excepted."""
        while len(self._waiting) > MAX_WAITING_BATCHES:
            oldest = next(waiting for waiting in self._waiting if waiting.ticket is None)
            self._give_up(oldest)

    def _give_up(self, waiting: _Waiting) -> None:
        self._waiting.remove(waiting)
        self.counts.batches_dropped += 1
        self.counts.groups_dropped += len(waiting.batch.groups)

    def _put_off(self, refused: NodeRefused) -> None:
        """Leave the node in peace for a moment, and say once a minute what that costs."""
        now = time.monotonic()
        self._not_before = now + RETRY_S
        if m.NO_ROOM in str(refused):
            self.no_room = m.NO_ROOM  # the round's end waits for it, and says so
            return
        if now >= self._say_again_at:
            self._say_again_at = now + MINUTE_S
            log.warning(
                "node could not take a batch now (%s): %d wait here, %d groups not sent so far",
                refused,
                len(self._waiting),
                self.counts.groups_dropped,
            )

    def _send_waiting(self) -> bool:
        """Send, in order, as many as may be unacknowledged; return whether the node takes them."""
        if self._client is None or time.monotonic() < self._not_before:
            return False
        for waiting in list(self._waiting):
            if waiting.ticket is not None:
                continue
            sent = [other for other in self._waiting if other.ticket is not None]
            if len(sent) >= MAX_SENT_BATCHES and not self._read_answer(sent[0]):
                return False
            try:
                waiting.ticket = self._client.send(waiting.batch)
            except NodeUnavailable as error:
                log.debug("batches wait: %s", error)
                return False
        return True

    def read_answers(self) -> None:
        """Read the acknowledgements, and refusals, that have arrived."""
        if self._client is None:
            return
        for waiting in list(self._waiting):
            if waiting.ticket is None:
                continue
            if not self._client.answered(waiting.ticket):
                return  # the node answers in order
            self._read_answer(waiting)

    def _read_answer(self, waiting: _Waiting) -> bool:
        """Wait for the answer to a sent batch; return whether it is done with."""
        assert self._client is not None and waiting.ticket is not None
        ticket, waiting.ticket = waiting.ticket, None
        try:
            reply = self._client.answer(ticket, m.PublishReply)
        except NodeUnavailable:
            return False
        except NodeRefused as refused:
            if refused.retryable:
                self._put_off(refused)
                return False
            log.error("node refused a batch: %s", refused)
            self._give_up(waiting)
            return True
        self.no_room = ""
        self._waiting.remove(waiting)
        if reply.is_new:
            self.counts.batches_published += 1
            self.counts.groups_published += len(waiting.batch.groups)
        return True
