"""Scores the behaviour of peers, in points by cause from one table. Pure.

Each cause costs points down to its own limit. Points recover with time, so an honest peer recovers
from a mistake. A cause that a peer in trouble can also show has a limit above the ban threshold: it
may cost the place in the mesh, never the connection. The score is the sum, at most 0.

One cause gives credit: first deliveries. Credit only ranks peers (which to dial, and which to drop
when slots are full). It offsets no penalty and every penalty resets it, so farming credit gains
nothing. The table is shown in docs/threats.md.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shoal_base.bounded import MANY
from shoal_p2p.fair.buckets import remaining
from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Reason, Verdict

Report = Callable[[PeerId, PeerId | None, Verdict], None]
"""``report(forwarder, signer, verdict)`` charges the peers responsible for a message. The signer is
None if the signature is invalid."""

HALF_LIFE_SECONDS = 600.0
"""Time in which lost points recover by half. A guess: as long as the first ban."""
BAN_BELOW = -40.0
"""Score below which a peer is banned for a time."""

_CREDIT_INTERVAL_SECONDS = 1.0
"""Minimum time between two credited first deliveries, so that a flood earns no faster."""
FORGET_ABOVE = 0.01
"""Rows with less weight are not saved: a single lost point decays to this in an hour."""


class Cause(StrEnum):
    """Causes that cost points, and last the one that gives credit."""

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
    """Points that a cause costs or earns."""

    points: float
    """Points for each occurrence; negative for a cost."""
    limit: float
    """Limit of this cause alone; above `BAN_BELOW` it can never lead to a ban."""
    half_life_s: float = HALF_LIFE_SECONDS
    """Half-life of its points, in seconds."""

    def limited(self, points: float) -> float:
        """Return `points` limited to this cause's range, between 0 and its limit."""
        return max(min(0.0, self.limit), min(max(0.0, self.limit), points))


WEIGHTS: Mapping[Cause, Weight] = {
    # Charged to the signer of a rejected message. A guess: eleven within minutes lead to a ban,
    # one mistake does not matter.
    Cause.SIGNED_REJECT: Weight(points=-4.0, limit=-100.0),
    # Charged to the signer. A guess: three lead to a ban, since no honest software produces it.
    Cause.SIGNED_HEAVY: Weight(points=-20.0, limit=-100.0),
    # Charged to the forwarder for what it could have checked, a quarter of the signer's charge.
    Cause.FORWARDED_REJECT: Weight(points=-1.0, limit=-100.0),
    # Charged to the forwarder: signature and size are cheap to check. A quarter of the signer's.
    Cause.FORWARDED_HEAVY: Weight(points=-5.0, limit=-100.0),
    # Charged to signer and forwarder for a date far in the future. The local clock may be wrong,
    # so the limit is above the mesh's -10.
    Cause.CLOCK: Weight(points=-1.0, limit=-8.0),
    # Charged to the sender of a frame or RPC that does not parse. A guess: three in a minute add
    # up to -43, a ban.
    Cause.MALFORMED_RPC: Weight(points=-15.0, limit=-100.0),
    # Charged to the sender for each second after the first in which it is rate-limited for useless
    # traffic. A guess: two such seconds lead to a ban.
    Cause.FLOOD: Weight(points=-25.0, limit=-100.0),
    # Charged to the sender of over 2,048 control entries or 16,384 ids between two heartbeats
    # (1 s). A guess: five in a row lead to a ban.
    Cause.CONTROL_SPAM: Weight(points=-10.0, limit=-100.0),
    # Charged to the sender of a GRAFT over five seconds before its back-off ends. A guess;
    # go-libp2p squares a counter of these instead.
    Cause.BROKEN_BACKOFF: Weight(points=-2.0, limit=-100.0),
    # Charged to a peer that advertised a message and did not send it within ten seconds. Congestion
    # has the same effect, so the limit costs the mesh and never leads to a ban.
    Cause.BROKEN_PROMISE: Weight(points=-1.0, limit=-12.0),
    # Charged to a peer that is disconnected because it did not read. A bad link has the same
    # effect: three cost the mesh, and they never lead to a ban.
    Cause.SLOW_READER: Weight(points=-4.0, limit=-12.0),
    # Charged to a signer that delivers a batch itself whose validation takes over 1.8 s, half of it
    # for the questions alone (with an own OpenEnv server or judge: for 180 tasks or more). A slow
    # machine has the same effect: the four mild limits together stay above the ban threshold.
    Cause.COST_LIMIT: Weight(points=-1.0, limit=-7.0),
    # Credited to the deliverer of a message that is valid and new here. A guess: the credit of a
    # useful hour is gone after a night offline.
    Cause.FIRST_DELIVERY: Weight(points=0.05, limit=5.0, half_life_s=3600.0),
}
"""Points of each cause: between -25 and -1 for each occurrence, down to the cause's limit.

The unit is arbitrary; what matters is the distance to -10 (removed from every mesh) and to
`BAN_BELOW`. docs/threats.md shows this table with the comments above its rows."""

_MILD = {
    # Depends on the local clock, which may be wrong.
    Reason.FAR_FUTURE: Cause.CLOCK,
    # A disk failure or a restart can lose an announced batch.
    Reason.UNFETCHABLE: Cause.BROKEN_PROMISE,
}


@dataclass(slots=True)
class _Entry:
    at: float
    points: dict[Cause, float] = field(default_factory=dict)
    credited_at: float = -math.inf

    def decayed(self, now: float) -> dict[Cause, float]:
        """Return the points decayed to `now`."""
        elapsed_s = now - self.at
        return {
            cause: points * remaining(elapsed_s, WEIGHTS[cause].half_life_s)
            for cause, points in self.points.items()
        }


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One peer's points at a given time, to show or to save."""

    points: Mapping[Cause, float]

    @property
    def score(self) -> float:
        """Return the score that decides about meshes and bans, at most 0."""
        return sum(min(0.0, points) for points in self.points.values())

    @property
    def credit(self) -> float:
        """Return the credit for first deliveries, from 0 to its limit."""
        return self.points.get(Cause.FIRST_DELIVERY, 0.0)

    @property
    def weight(self) -> float:
        """Significance of the row; the least significant rows are dropped first."""
        return self.credit - self.score


class Scoreboard:
    """Decaying points by peer. Bounded: the least significant rows are dropped first.

    board = Scoreboard()
    board.charge(peer_id, Cause.FLOOD, now)
    board.score(peer_id, now)  # -25.0
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[PeerId, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def judge(
        self, verdict: Verdict, *, signer: PeerId | None, forwarder: PeerId, now: float
    ) -> None:
        """Charge or credit signer and forwarder for a verdict; `now` is monotonic seconds."""
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
        """Charge one occurrence of `cause`."""
        entry = self._entry(peer_id, now)
        weight = WEIGHTS[cause]
        entry.points[cause] = weight.limited(entry.points.get(cause, 0.0) + weight.points)
        if weight.points < 0:
            entry.points.pop(Cause.FIRST_DELIVERY, None)

    def score(self, peer_id: PeerId, now: float) -> float:
        """Return the peer's score, at most 0, for gossip and bans."""
        entry = self._entries.get(peer_id)
        # Gossip asks ten times for each message, and most peers have no negative points to decay.
        if entry is None or min(entry.points.values(), default=0.0) >= 0.0:
            return 0.0
        return ScoreRow(entry.decayed(now)).score

    def row(self, peer_id: PeerId, now: float) -> ScoreRow:
        """Return a peer's points by cause."""
        entry = self._entries.get(peer_id)
        return ScoreRow({} if entry is None else entry.decayed(now))

    def rows(self, now: float) -> dict[PeerId, ScoreRow]:
        """Return the points of all peers, worst score first."""
        rows = [(peer_id, self.row(peer_id, now)) for peer_id in self._entries]
        return dict(sorted(rows, key=lambda item: (item[1].score, -item[1].credit)))

    def restore(
        self, peer_id: PeerId, saved: Mapping[Cause, float], now: float, *, age_s: float
    ) -> None:
        """Restore points that were valid `age_s` seconds ago."""
        points = {cause: WEIGHTS[cause].limited(value) for cause, value in saved.items()}
        entry = self._entry(peer_id, now)
        entry.at = now
        entry.points = _Entry(at=now - age_s, points=points).decayed(now)

    def forgive(self, peer_id: PeerId) -> None:
        """Forget everything about a peer."""
        self._entries.pop(peer_id, None)

    def _credit(self, peer_id: PeerId, now: float) -> None:
        known = self._entries.get(peer_id)
        if known is None or now - known.credited_at >= _CREDIT_INTERVAL_SECONDS:
            self.charge(peer_id, Cause.FIRST_DELIVERY, now)
            self._entries[peer_id].credited_at = now

    def _entry(self, peer_id: PeerId, now: float) -> _Entry:
        """Return a peer's entry, decayed to `now`."""
        entry = self._entries.get(peer_id)
        if entry is None:
            if len(self._entries) >= MANY:
                self._make_room(now)
            entry = self._entries[peer_id] = _Entry(at=now)
        entry.points = entry.decayed(now)
        entry.at = max(now, entry.at)
        return entry

    def _make_room(self, now: float) -> None:
        """Drop the least significant quarter: disposable identities must not evict real records."""
        ordered = sorted(self._entries, key=lambda peer_id: self.row(peer_id, now).weight)
        for peer_id in ordered[: MANY // 4]:
            del self._entries[peer_id]


def is_seen_by_forwarder(verdict: Verdict) -> bool:
    """Return whether the forwarder of a rejected message could have detected the fault."""
    return verdict.outcome is Outcome.REJECT and not verdict.reason.row.signer_alone


def is_mild(verdict: Verdict) -> bool:
    """Return whether a rejection may be due to the local clock or to bad luck."""
    return verdict.reason in _MILD
