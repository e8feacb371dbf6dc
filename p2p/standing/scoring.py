"""A peer's points from the verdicts on what it sent and how it behaved. Pure.

Each cause takes points off down to a floor of its own, and points come back with time, so an honest
peer that once slipped recovers.  A cause that a peer in trouble can also give has a floor above the
ban: it may cost its place in the mesh, never the connection.  `score` is at most 0.

*Merit*, a little above 0 for useful first deliveries, orders peers (whom to dial, whom to drop when
slots are full) and nothing else.  It pays for no penalty and every penalty ends it, so farming it
buys no licence.  docs/threats.md has the table; a test compares.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Reason, Verdict

Report = Callable[[PeerId, PeerId | None, Verdict], None]
"""``report(forwarder, signer, verdict)``: somebody answers for what was judged. The signer is None
where the signature did not hold."""

HALF_LIFE_SECONDS = 600.0
"""Time in which points come back by half, 0 to infinity. A guess: as long as the first ban."""
BAN_BELOW = -40.0
"""Below this a peer is cut off for a time."""

MERIT_CAP = 5.0
_MERIT_STEP = 0.05
_MERIT_INTERVAL_SECONDS = 1.0
"""One delivery in so many seconds counts: a stream of them earns no faster."""
_MERIT_HALF_LIFE_SECONDS = 3600.0
"""A guess: a peer that was away for a night starts as a newcomer."""
_MAX_PEERS = 4096
_FORGET_ABOVE = 0.01


class Cause(StrEnum):
    """What takes points off."""

    SIGNED_REJECT = "signed_reject"
    SIGNED_HEAVY = "signed_heavy"
    FORWARDED_REJECT = "forwarded_reject"
    FORWARDED_HEAVY = "forwarded_heavy"
    CLOCK = "clock"
    MALFORMED_RPC = "malformed_rpc"
    FLOOD = "flood"
    CONTROL_SPAM = "control_spam"
    BROKEN_BACKOFF = "broken_backoff"
    BROKEN_PROMISE = "broken_promise"
    SLOW_READER = "slow_reader"
    TOO_DEAR = "too_dear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """What a cause costs."""

    points: float
    """Each time; below 0."""
    floor: float
    """This cause alone takes a peer no lower; above `BAN_BELOW` it can never ban."""


WEIGHTS: Mapping[Cause, Weight] = {
    # The signer pays. A guess: eleven within minutes end in a ban, one slip does not matter.
    Cause.SIGNED_REJECT: Weight(points=-4.0, floor=-100.0),
    # The signer pays. A guess: three end in a ban, since no honest software produces it.
    Cause.SIGNED_HEAVY: Weight(points=-20.0, floor=-100.0),
    # The forwarder pays. A quarter of the signer's: it only failed to check.
    Cause.FORWARDED_REJECT: Weight(points=-1.0, floor=-100.0),
    # The forwarder pays. A quarter of the signer's.
    Cause.FORWARDED_HEAVY: Weight(points=-5.0, floor=-100.0),
    # Signer and forwarder pay. It rests on our own clock: the floor is above the mesh's -10.
    Cause.CLOCK: Weight(points=-1.0, floor=-8.0),
    # The sender pays. A guess: three in a minute come to -43, a ban.
    Cause.MALFORMED_RPC: Weight(points=-15.0, floor=-100.0),
    # The sender pays, each second after a grace of one. A guess: two such seconds end in a ban.
    Cause.FLOOD: Weight(points=-25.0, floor=-100.0),
    # The sender pays, once a heartbeat (1 s). A guess: five in a row end in a ban.
    Cause.CONTROL_SPAM: Weight(points=-10.0, floor=-100.0),
    # The sender pays. A guess; go-libp2p squares a counter of these instead.
    Cause.BROKEN_BACKOFF: Weight(points=-2.0, floor=-100.0),
    # Whoever offered pays. Congestion does it too: the floor costs the mesh, never the ban.
    Cause.BROKEN_PROMISE: Weight(points=-1.0, floor=-12.0),
    # The reader pays. A bad link does it too: three cost the mesh, none the ban.
    Cause.SLOW_READER: Weight(points=-4.0, floor=-12.0),
    # The signer pays. Slow machines do it too: the four mild floors together stay above the ban.
    Cause.TOO_DEAR: Weight(points=-1.0, floor=-7.0),
}
"""What each cause costs, in points: each time between -25 and -1, a cause alone down to its floor.

Points halve every `HALF_LIFE_SECONDS`. The unit is arbitrary; what counts is the distance to -10
(out of every mesh) and to `BAN_BELOW`. docs/threats.md has the same table, and a test compares.
"""

_MILD = {
    # Rests on our own clock, which may be the wrong one.
    Reason.FAR_FUTURE: Cause.CLOCK,
    # A disk that failed, or a restart, takes away what was announced.
    Reason.UNFETCHABLE: Cause.BROKEN_PROMISE,
}


@dataclass(slots=True)
class _Standing:
    at: float
    points: dict[Cause, float] = field(default_factory=dict)
    merit: float = 0.0
    merit_at: float = -math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingRow:
    """One peer's standing at one moment, to show or to save."""

    peer_id: PeerId
    points: Mapping[Cause, float]
    merit: float


class Scoreboard:
    """Points by peer, decaying. Bounded: those with least to say are forgotten first."""

    def __init__(self) -> None:
        self._standings: OrderedDict[PeerId, _Standing] = OrderedDict()

    def __len__(self) -> int:
        return len(self._standings)

    def judge(
        self, verdict: Verdict, *, signer: PeerId | None, forwarder: PeerId, now: float
    ) -> None:
        """Charge what `verdict` costs signer and forwarder; `now` is monotonic seconds."""
        if verdict.outcome is Outcome.ACCEPT:
            self._credit(forwarder, now)
        if verdict.reason is Reason.TOO_DEAR and forwarder == signer:
            # Who passes it on may have had a faster worker.
            self.charge(forwarder, Cause.TOO_DEAR, now)
        if verdict.outcome is not Outcome.REJECT:
            return
        mild = _MILD.get(verdict.reason)
        if signer is not None:
            signed = Cause.SIGNED_HEAVY if verdict.heavy else Cause.SIGNED_REJECT
            self.charge(signer, mild or signed, now)
        if forwarder != signer and is_seen_by_forwarder(verdict):
            forwarded = Cause.FORWARDED_HEAVY if verdict.heavy else Cause.FORWARDED_REJECT
            self.charge(forwarder, mild or forwarded, now)

    def charge(self, peer_id: PeerId, cause: Cause, now: float) -> None:
        """Take off what `cause` costs, once."""
        standing = self._entry(peer_id, now)
        weight = WEIGHTS[cause]
        standing.points[cause] = max(weight.floor, standing.points.get(cause, 0.0) + weight.points)
        standing.merit = 0.0

    def score(self, peer_id: PeerId, now: float) -> float:
        """Return the peer's points, at most 0: what gossip and bans go by."""
        standing = self._standings.get(peer_id)
        if standing is None or not standing.points:
            return 0.0
        return sum(standing.points.values()) * _decay(now - standing.at, HALF_LIFE_SECONDS)

    def merit(self, peer_id: PeerId, now: float) -> float:
        """Return what the peer has earned, 0 to `MERIT_CAP`."""
        standing = self._standings.get(peer_id)
        if standing is None:
            return 0.0
        return standing.merit * _decay(now - standing.at, _MERIT_HALF_LIFE_SECONDS)

    def row(self, peer_id: PeerId, now: float) -> StandingRow:
        """Return a peer's standing by cause."""
        standing = self._standings.get(peer_id)
        points = {} if standing is None else standing.points
        left = _decay(now - standing.at, HALF_LIFE_SECONDS) if standing else 1.0
        return StandingRow(
            peer_id=peer_id,
            points={cause: value * left for cause, value in points.items()},
            merit=self.merit(peer_id, now),
        )

    def rows(self, now: float) -> tuple[StandingRow, ...]:
        """Return everybody with a standing, the worst first."""
        rows = [self.row(peer_id, now) for peer_id in self._standings]
        return tuple(sorted(rows, key=lambda row: (sum(row.points.values()), -row.merit)))

    def restore(self, row: StandingRow, now: float, *, age_s: float) -> None:
        """Take over a row that was right `age_s` seconds ago."""
        standing = self._entry(row.peer_id, now)
        standing.at = now
        left = _decay(age_s, HALF_LIFE_SECONDS)
        standing.points = {
            cause: min(0.0, max(WEIGHTS[cause].floor, value)) * left
            for cause, value in row.points.items()
        }
        earned = min(MERIT_CAP, max(0.0, row.merit))
        standing.merit = earned * _decay(age_s, _MERIT_HALF_LIFE_SECONDS)

    def forgive(self, peer_id: PeerId) -> None:
        """Forget everything about a peer."""
        self._standings.pop(peer_id, None)

    def _credit(self, peer_id: PeerId, now: float) -> None:
        standing = self._entry(peer_id, now)
        if now - standing.merit_at >= _MERIT_INTERVAL_SECONDS:
            standing.merit_at = now
            standing.merit = min(MERIT_CAP, standing.merit + _MERIT_STEP)

    def _entry(self, peer_id: PeerId, now: float) -> _Standing:
        """Return a peer's standing brought up to `now`."""
        standing = self._standings.get(peer_id)
        if standing is None:
            if len(self._standings) >= _MAX_PEERS:
                self._make_room(now)
            standing = self._standings[peer_id] = _Standing(at=now)
        left = _decay(now - standing.at, HALF_LIFE_SECONDS)
        standing.points = {cause: value * left for cause, value in standing.points.items()}
        standing.merit *= _decay(now - standing.at, _MERIT_HALF_LIFE_SECONDS)
        standing.at = max(now, standing.at)
        return standing

    def _make_room(self, now: float) -> None:
        """Forget the quarter with least to say: throwaway names must not push out real records."""

        def weight(item: tuple[PeerId, _Standing]) -> float:
            return self.merit(item[0], now) - self.score(item[0], now)

        ordered = sorted(self._standings.items(), key=weight)
        for peer_id, _ in ordered[: _MAX_PEERS // 4]:
            del self._standings[peer_id]


def is_worth_keeping(row: StandingRow) -> bool:
    """Return whether a row still says anything."""
    return row.merit - sum(row.points.values()) > _FORGET_ABOVE


def is_seen_by_forwarder(verdict: Verdict) -> bool:
    """Return whether a peer that forwarded what was rejected could have seen it too."""
    return verdict.outcome is Outcome.REJECT and not verdict.reason.row.signer_alone


def is_mild(verdict: Verdict) -> bool:
    """Return whether a reject may be our own clock's doing, or bad luck."""
    return verdict.reason in _MILD


def _decay(elapsed_s: float, half_life_s: float) -> float:
    return 0.5 ** (max(0.0, elapsed_s) / half_life_s)
