"""Open challenges and their quotas. Pure: the caller passes the time.

ask ─▶ open (one a peer; asked again, the same one) ─▶ taken by its answer
                 └─ time over: LATE, then forgotten
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated

from shoal_base.bounded import MANY
from shoal_base.ranges import Range, Ranged, Seconds
from shoal_p2p.fair.buckets import KeyedBuckets, Rate, TokenBucket, take_from_all
from shoal_tasks.types import TaskCoordinates
from shoal_wire.judge_messages import JudgeRefusalReason
from shoal_wire.types import PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskLimits(Ranged):
    """Bounds on what one peer, and all together, may take."""

    answer_seconds: Seconds = 600.0
    """A large model on a CPU takes minutes."""
    max_open: Annotated[int, Range("challenges", 1, 1 << 20)] = MANY
    requests_per_peer: Annotated[Rate, "requests"] = Rate(burst=64, per_second=8)
    """Requests of any kind from one peer; above it they are not read."""
    asks_per_peer: Annotated[Rate, "challenges"] = Rate(burst=8, per_second=0.5)
    asks_of_all: Annotated[Rate, "challenges"] = Rate(burst=64, per_second=16)
    queries_of_all: Annotated[Rate, "queries"] = Rate(burst=256, per_second=32)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenChallenge:
    """A question that waits for its one answer."""

    challenge_id: bytes
    peer_id: PeerId
    task: TaskCoordinates
    question: str
    asked_ms: int
    expires_at: float
    """Monotonic seconds."""
    challenges: int
    """Challenges of this peer so far, this one included."""


class JudgeDesk:
    """The open challenges and the quotas, within fixed bounds."""

    def __init__(self, limits: DeskLimits, *, now: float) -> None:
        self.limits = limits
        self._open: OrderedDict[PeerId, OpenChallenge] = OrderedDict()
        self._requests: KeyedBuckets[PeerId] = KeyedBuckets(limits.requests_per_peer)
        self._asks: KeyedBuckets[PeerId] = KeyedBuckets(limits.asks_per_peer, max_keys=MANY)
        self._all_asks = TokenBucket(limits.asks_of_all, now)
        self._all_queries = TokenBucket(limits.queries_of_all, now)

    @property
    def num_open(self) -> int:
        """Challenges that wait, those whose time has just passed included."""
        return len(self._open)

    def open_for(self, peer_id: PeerId, now: float) -> OpenChallenge | None:
        """Return the open challenge of `peer_id`, None if there is none or it expired."""
        challenge = self._open.get(peer_id)
        return challenge if challenge is not None and now < challenge.expires_at else None

    def wait_to_ask(self, peer_id: PeerId, now: float) -> float:
        """Take one new challenge from the quotas; return 0, or the seconds until there is one."""
        self._forget(now)
        if len(self._open) >= self.limits.max_open and peer_id not in self._open:
            return self.limits.answer_seconds
        return take_from_all((self._asks.get(peer_id, now), self._all_asks), now)

    def wait_to_request(self, peer_id: PeerId, now: float) -> float:
        """Take one request of any kind; as `wait_to_ask`."""
        return take_from_all((self._requests.get(peer_id, now),), now)

    def wait_to_query(self, now: float) -> float:
        """Take one query for records; as `wait_to_ask`."""
        return take_from_all((self._all_queries,), now)

    def put(self, challenge: OpenChallenge) -> None:
        """Open a challenge, or open one again whose answer could not be scored."""
        self._open[challenge.peer_id] = challenge
        self._open.move_to_end(challenge.peer_id)

    def take(
        self, peer_id: PeerId, challenge_id: bytes, now: float
    ) -> OpenChallenge | JudgeRefusalReason:
        """Remove and return the challenge that `peer_id` answers; it can be answered once."""
        challenge = self._open.get(peer_id)
        if challenge is None or challenge.challenge_id != challenge_id:
            return JudgeRefusalReason.UNKNOWN_CHALLENGE
        del self._open[peer_id]
        return challenge if now < challenge.expires_at else JudgeRefusalReason.LATE

    def _forget(self, now: float) -> None:
        """Drop challenges some time after they expire: until then their answers are LATE."""
        while self._open:
            oldest = next(iter(self._open.values()))
            full = len(self._open) >= self.limits.max_open
            grace = 0.0 if full else self.limits.answer_seconds
            if now < oldest.expires_at + grace:
                return
            del self._open[oldest.peer_id]
