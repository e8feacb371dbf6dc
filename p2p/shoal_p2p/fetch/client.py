"""Client of `/shoal/rollouts/1`: sends one request to one peer, and charges invalid responses.

A peer whose response violates the protocol loses reputation. A peer that is slow, busy or
disconnected is only skipped for a while.
"""

from __future__ import annotations

from typing import TypeVar

import trio

from shoal_base.bounded import BoundedDict
from shoal_base.waits import POLL_S, REPLY_S
from shoal_p2p.fair.buckets import KeyedBuckets, Rate
from shoal_p2p.fetch.server import ServeLimits
from shoal_p2p.fetch.stats import FetchStats
from shoal_p2p.net.interface import Host
from shoal_p2p.net.request import RequestError, RequestFailure
from shoal_p2p.reputation.scoring import Report
from shoal_wire.limits import MAX_ANSWER_BYTES, ROLLOUTS_PROTOCOL
from shoal_wire.rollout_codec import RolloutProtocolError, decode_answer, encode_query
from shoal_wire.rollout_messages import (
    Answer,
    BatchRefusalReason,
    Chunk,
    Envelopes,
    Listing,
    Query,
    Refusal,
)
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason, verdict

A = TypeVar("A", Listing, Envelopes, Chunk)


_QUOTA_SHARE = 7 / 8
"""Share of a peer's free quota (`ServeLimits`) that this node uses, so that its requests, whatever
causes them, are never a flood there."""
_SHUN_SECONDS = {
    RequestFailure.UNSUPPORTED: 20.0,
    RequestFailure.TIMEOUT: 30.0,
    RequestFailure.RESET: 5.0,
    RequestFailure.OVERSIZE: 300.0,
    RequestFailure.NOT_CONNECTED: 0.0,
}


def _under(quota: Rate) -> Rate:
    return Rate(burst=_QUOTA_SHARE * quota.burst, per_second=_QUOTA_SHARE * quota.per_second)


class NoAnswerError(Exception):
    """A peer gave no usable response; `cause` is a short word for the counters."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class RolloutClient:
    """Sends requests, and for a while skips peers that cannot answer."""

    def __init__(
        self,
        *,
        host: Host,
        report: Report,
        stats: FetchStats,
        answer_seconds: float = REPLY_S,
    ) -> None:
        self._host = host
        self._report = report
        self._stats = stats
        self._answer_seconds = answer_seconds
        self._shunned: BoundedDict[PeerId, float] = BoundedDict()
        self._busy: BoundedDict[PeerId, float] = BoundedDict()
        served = ServeLimits()
        self._requests: KeyedBuckets[PeerId] = KeyedBuckets(_under(served.requests_per_peer))
        self._bytes: KeyedBuckets[PeerId] = KeyedBuckets(_under(served.bytes_per_peer))

    def is_usable(self, peer_id: PeerId) -> bool:
        """Return whether a request to this peer is worthwhile now."""
        now = trio.current_time()
        return self._shunned.get(peer_id, now) <= now and self.busy_s(peer_id) <= 0

    def busy_s(self, peer_id: PeerId) -> float:
        """Return the seconds until this peer accepts requests again."""
        now = trio.current_time()
        return max(self._busy.get(peer_id, now) - now, self._quota_wait_s(peer_id, now))

    def _quota_wait_s(self, peer_id: PeerId, now: float) -> float:
        return max(
            self._requests.get(peer_id, now).wait_s(1, now),
            self._bytes.get(peer_id, now).wait_s(1, now),
        )

    async def ask(
        self, peer_id: PeerId, query: Query, kind: type[A], *, is_vital: bool = True
    ) -> A:
        """Send a request as soon as the peer's quota allows; return its reply of type `kind`.

        A peer that does not answer an `is_vital` request is skipped for a while.

        Raises:
            NoAnswerError: no usable reply, for now.
        """
        now = trio.current_time()
        wait_s = self._quota_wait_s(peer_id, now)
        self._requests.get(peer_id, now).take(1, now)
        if wait_s > 0:
            await trio.sleep(wait_s)
        self._stats.requests += 1
        try:
            raw = await self._host.request(
                peer_id,
                ROLLOUTS_PROTOCOL,
                encode_query(query),
                max_response_bytes=MAX_ANSWER_BYTES,
                timeout=self._answer_seconds,
            )
        except RequestError as error:
            if error.failure is RequestFailure.OVERSIZE:
                self.offend(peer_id, Reason.MALFORMED_ANSWER)
            if not is_vital:
                raise NoAnswerError(error.failure.value) from None
            self._shun(peer_id, _SHUN_SECONDS[error.failure])
            raise self._failed(error.failure.value) from None
        self._bytes.get(peer_id, trio.current_time()).take(len(raw), trio.current_time())
        try:
            answer: Answer = decode_answer(raw)
        except RolloutProtocolError:
            self.offend(peer_id, Reason.MALFORMED_ANSWER)
            raise self._failed(Reason.MALFORMED_ANSWER) from None
        if isinstance(answer, Refusal):
            if answer.reason is BatchRefusalReason.BUSY:
                # The peer counts an earlier retry as a flood.
                seconds = max(POLL_S, answer.retry_after_ms / 1000)
                self._busy[peer_id] = trio.current_time() + seconds
            raise self._failed(answer.reason.value)
        if not isinstance(answer, kind):
            self.offend(peer_id, Reason.MALFORMED_ANSWER)
            raise self._failed(Reason.MALFORMED_ANSWER)
        return answer

    def offend(self, peer_id: PeerId, reason: Reason) -> None:
        """Charge a response that no honest software sends."""
        self._report(peer_id, peer_id, verdict(reason))
        self._shun(peer_id, _SHUN_SECONDS[RequestFailure.OVERSIZE])

    def _failed(self, cause: str) -> NoAnswerError:
        self._stats.failures[cause] += 1
        return NoAnswerError(cause)

    def _shun(self, peer_id: PeerId, seconds: float) -> None:
        self._shunned[peer_id] = trio.current_time() + seconds
