"""Points for the behaviour of a peer's connection, by cause, from one table. Pure.

Each cause takes points off down to a limit of its own, and points come back with time, so an honest
peer that once slipped recovers.  A cause that a peer in trouble can also give has a limit above the
ban: it may cost its place in the mesh, never the connection.  `score`, their sum, is at most 0.

One cause gives points, first deliveries.  They order peers (whom to dial, whom to drop when slots
are full) and do nothing else.  They pay for no penalty, and every penalty ends them, so farming
them buys no licence.  The site shows the table in docs/threats.md.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shoal_base.bounded import MANY
from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Reason, Verdict

Report = Callable[[PeerId, PeerId | None, Verdict], None]
"""``report(forwarder, signer, verdict)``: somebody answers for what was judged. The signer is None
where the signature did not hold."""

HALF_LIFE_SECONDS = 600.0
"""Time in which points lost come back by half. A guess: as long as the first ban."""
BAN_BELOW = -40.0
"""Below this a peer is cut off for a time."""

_CREDIT_INTERVAL_SECONDS = 1.0
"""One first delivery in so many seconds counts, so that a stream of them earns no faster."""
FORGET_ABOVE = 0.01
"""A row that says less is not saved: a single lost point is that little after an hour."""


class Cause(StrEnum):
    """The causes that take points off, and at last the one that gives some."""

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
    COST_LIMIT = "cost_limit"
    FIRST_DELIVERY = "first_delivery"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """The points that a cause costs or earns."""

    points: float
    """Each time; below 0 it costs."""
    limit: float
    """This cause alone takes a peer no further; above `BAN_BELOW` it can never ban."""
    half_life_s: float = HALF_LIFE_SECONDS
    """Time in which half of its points are gone, in seconds."""

    def limited(self, points: float) -> float:
        """Return points of this cause, between 0 and its limit."""
        return max(min(0.0, self.limit), min(max(0.0, self.limit), points))


WEIGHTS: Mapping[Cause, Weight] = {
    # The signer pays for what the verdict table rejects. A guess: eleven within minutes end in a
    # ban, one slip does not matter.
    Cause.SIGNED_REJECT: Weight(points=-4.0, limit=-100.0),
    # The signer pays. A guess: three end in a ban, since no honest software produces it.
    Cause.SIGNED_HEAVY: Weight(points=-20.0, limit=-100.0),
    # The forwarder pays for what it could have checked, a quarter of what the signer pays.
    Cause.FORWARDED_REJECT: Weight(points=-1.0, limit=-100.0),
    # The forwarder pays: signature and size are cheap to check. A quarter of the signer's.
    Cause.FORWARDED_HEAVY: Weight(points=-5.0, limit=-100.0),
    # Signer and forwarder pay for a date far in the future. Our own clock may be wrong, so the
    # limit is above the mesh's -10.
    Cause.CLOCK: Weight(points=-1.0, limit=-8.0),
    # The sender pays for a frame or RPC that does not parse. A guess: three in a minute come to
    # -43, a ban.
    Cause.MALFORMED_RPC: Weight(points=-15.0, limit=-100.0),
    # The sender pays for each second after the first in which it is held back for waste. A guess:
    # two such seconds end in a ban.
    Cause.FLOOD: Weight(points=-25.0, limit=-100.0),
    # The sender pays for over 2,048 control entries or 16,384 ids between two heartbeats (1 s). A
    # guess: five in a row end in a ban.
    Cause.CONTROL_SPAM: Weight(points=-10.0, limit=-100.0),
    # The sender pays for a GRAFT over five seconds before its back-off ends. A guess; go-libp2p
    # squares a counter of these instead.
    Cause.BROKEN_BACKOFF: Weight(points=-2.0, limit=-100.0),
    # The offering peer pays for what it did not send within ten seconds. Congestion does that, too,
    # so the limit costs the mesh and never ends in a ban.
    Cause.BROKEN_PROMISE: Weight(points=-1.0, limit=-12.0),
    # The reader pays when it is cut because it did not read. A bad link does that, too: three cost
    # the mesh, and none ends in a ban.
    Cause.SLOW_READER: Weight(points=-4.0, limit=-12.0),
    # The signer that delivered it pays for what was not judged in 1.8 s, half of it for the
    # questions alone (of an own OpenEnv server or judge: for 180 tasks or more). A slow machine
    # does that, too: the four mild limits together stay above the ban.
    Cause.COST_LIMIT: Weight(points=-1.0, limit=-7.0),
    # The deliverer earns it for what is valid and new here. A guess: a useful hour's worth is gone
    # after a night away.
    Cause.FIRST_DELIVERY: Weight(points=0.05, limit=5.0, half_life_s=3600.0),
}
"""The points of each cause: each time between -25 and -1, a cause alone down to its limit.

The unit is arbitrary; what counts is the distance to -10
(out of every mesh) and to `BAN_BELOW`. The site shows this table in docs/threats.md, with the
comments above its rows."""

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
    credited_at: float = -math.inf

    def left(self, now: float) -> dict[Cause, float]:
        """Return what time has left of its points."""
        elapsed_s = max(0.0, now - self.at)
        return {c: p * 0.5 ** (elapsed_s / WEIGHTS[c].half_life_s) for c, p in self.points.items()}


@dataclass(frozen=True, slots=True)
class StandingRow:
    """One peer's standing at one moment, to show or to save."""

    points: Mapping[Cause, float]

    @property
    def score(self) -> float:
        """Return the points that decide about meshes and bans, at most 0."""
        return sum(min(0.0, points) for points in self.points.values())

    @property
    def credit(self) -> float:
        """Return the points that its first deliveries have earned, from 0 to their limit."""
        return self.points.get(Cause.FIRST_DELIVERY, 0.0)

    @property
    def weight(self) -> float:
        """Size of the row, by which the least important one is dropped."""
        return self.credit - self.score


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
        if verdict.reason is Reason.COST_LIMIT and forwarder == signer:
            # A forwarder may have a faster worker, so it is not charged.
            self.charge(forwarder, Cause.COST_LIMIT, now)
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
        standing.points[cause] = weight.limited(standing.points.get(cause, 0.0) + weight.points)
        if weight.points < 0:
            standing.points.pop(Cause.FIRST_DELIVERY, None)

    def score(self, peer_id: PeerId, now: float) -> float:
        """Return the peer's points, at most 0: what gossip and bans go by."""
        return self.row(peer_id, now).score

    def row(self, peer_id: PeerId, now: float) -> StandingRow:
        """Return a peer's standing by cause."""
        standing = self._standings.get(peer_id)
        return StandingRow({} if standing is None else standing.left(now))

    def rows(self, now: float) -> dict[PeerId, StandingRow]:
        """Return everybody's standing, the worst first."""
        rows = [(peer_id, self.row(peer_id, now)) for peer_id in self._standings]
        return dict(sorted(rows, key=lambda item: (item[1].score, -item[1].credit)))

    def restore(
        self, peer_id: PeerId, saved: Mapping[Cause, float], now: float, *, age_s: float
    ) -> None:
        """Take over points that were right `age_s` seconds ago."""
        points = {cause: WEIGHTS[cause].limited(value) for cause, value in saved.items()}
        standing = self._entry(peer_id, now)
        standing.at = now
        standing.points = _Standing(at=now - age_s, points=points).left(now)

    def forgive(self, peer_id: PeerId) -> None:
        """Forget everything about a peer."""
        self._standings.pop(peer_id, None)

    def _credit(self, peer_id: PeerId, now: float) -> None:
        standing = self._entry(peer_id, now)
        if now - standing.credited_at >= _CREDIT_INTERVAL_SECONDS:
            standing.credited_at = now
            self.charge(peer_id, Cause.FIRST_DELIVERY, now)

    def _entry(self, peer_id: PeerId, now: float) -> _Standing:
        """Return a peer's standing brought up to `now`."""
        standing = self._standings.get(peer_id)
        if standing is None:
            if len(self._standings) >= MANY:
                self._make_room(now)
            standing = self._standings[peer_id] = _Standing(at=now)
        standing.points = standing.left(now)
        standing.at = max(now, standing.at)
        return standing

    def _make_room(self, now: float) -> None:
        """Forget the quarter with least to say: throwaway names must not push out real records."""
        ordered = sorted(self._standings, key=lambda peer_id: self.row(peer_id, now).weight)
        for peer_id in ordered[: MANY // 4]:
            del self._standings[peer_id]


def is_seen_by_forwarder(verdict: Verdict) -> bool:
    """Return whether a peer that forwarded what was rejected could have seen it too."""
    return verdict.outcome is Outcome.REJECT and not verdict.reason.row.signer_alone


def is_mild(verdict: Verdict) -> bool:
    """Return whether a reject may be our own clock's doing, or bad luck."""
    return verdict.reason in _MILD
