"""This node's record of every peer, kept across reconnects and restarts. Pure.

    verdicts, behaviour ─▶ points ─▶ gossip's thresholds, ban (doubling, expiring)
                              └────┐
    trainer's reports   ─▶ sampling weight ─▶ share of the draws
                                   └─▶ rank: which peers to dial, and to drop when slots are full
    the user            ─▶ blocked (refused) · protected (never banned or dropped for its points)

Times are monotonic seconds. The file stores ages and remaining durations, so a wall clock that
jumps can shorten or prolong a ban, but never make it permanent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import FiniteFloat, StringConstraints, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from shoal_base.bounded import MANY, REMEMBERED
from shoal_base.rows import one_a_line
from shoal_base.waits import HOUR_S
from shoal_ipc.answers.peer import Score
from shoal_p2p.reputation.publisher_weights import PublisherWeights, Record
from shoal_p2p.reputation.scoring import (
    BAN_BELOW,
    FORGET_ABOVE,
    HALF_LIFE_SECONDS,
    Cause,
    Scoreboard,
)
from shoal_wire.types import PeerId

BAN_SECONDS = HALF_LIFE_SECONDS
"""Duration of the first ban: the points have then recovered by half. Each further ban within a day
lasts twice as long."""
MAX_LISTED = REMEMBERED
"""Maximum number of blocked, of protected, and of banned peers."""
_BAN_MEMORY_SECONDS = 24 * HOUR_S
"""Time after a ban during which the next one lasts twice as long."""
MAX_BAN_SECONDS = _BAN_MEMORY_SECONDS / 4
"""The longest ban. A guess: a peer that was repaired is back within the day."""
_MAX_AGE_SECONDS = 30 * _BAN_MEMORY_SECONDS
"""Maximum age assumed of a saved file, in case the clock jumped."""
_VERSION = 1
_SHOWN_POINTS = -FORGET_ABOVE / 2
"""Points above this are rounded away."""


_SavedId = Annotated[PeerId, StringConstraints(min_length=1, max_length=128)]


class _SavedPeer(TypedDict):
    """One peer in the file. Keys that are absent are 0."""

    peer_id: _SavedId
    points: NotRequired[dict[str, FiniteFloat]]
    useful: NotRequired[FiniteFloat]
    expected: NotRequired[FiniteFloat]
    groups: NotRequired[FiniteFloat]
    ban_s: NotRequired[FiniteFloat]
    bans: NotRequired[FiniteFloat]


class _Saved(TypedDict):
    version: Literal[1]
    saved_ms: FiniteFloat
    blocked: list[_SavedId]
    protected: list[_SavedId]
    peers: list[_SavedPeer]


_SAVED: Final = TypeAdapter(_Saved)


class ListFullError(Exception):
    """A list of blocked or protected peers is full."""


@dataclass(slots=True)
class _Ban:
    until: float
    count: int
    """Bans so far, this one included."""


class Reputation:
    """Scores, sampling weights, bans and the user's lists, by peer."""

    def __init__(self, *, always_protected: Iterable[PeerId] = ()) -> None:
        self.board = Scoreboard()
        self.sampling = PublisherWeights()
        self._always = frozenset(always_protected)
        self._protected: set[PeerId] = set()
        self._blocked: set[PeerId] = set()
        self._bans: dict[PeerId, _Ban] = {}
        self.num_bans = 0
        """Bans issued since the start."""

    # Bans

    def ban_due(self, peer_id: PeerId, now: float) -> float | None:
        """Ban a peer whose score is too low; return the duration in seconds, None if not banned.

        Also None if the peer is banned already.
        """
        if self.score(peer_id, now) >= BAN_BELOW:
            return None
        if self.banned_for(peer_id, now) is not None:
            return None
        old = self._bans.get(peer_id)
        count = 1 + (old.count if old and now - old.until < _BAN_MEMORY_SECONDS else 0)
        seconds = min(MAX_BAN_SECONDS, BAN_SECONDS * 2.0 ** min(count - 1, 16))
        while len(self._bans) >= MAX_LISTED:
            del self._bans[min(self._bans, key=lambda peer: self._bans[peer].until)]
        self._bans[peer_id] = _Ban(until=now + seconds, count=count)
        self.num_bans += 1
        return seconds

    # Queries

    def score(self, peer_id: PeerId, now: float) -> float:
        """Return a peer's score for gossip; 0 for a protected peer."""
        if peer_id in self._always or peer_id in self._protected:
            return 0.0
        return self.board.score(peer_id, now)

    def rank(self, peer_id: PeerId, now: float) -> float:
        """Return how valuable a connection to this peer is: score plus weighted credit."""
        row = self.board.row(peer_id, now)
        return row.score + row.credit * self.sampling.weight(peer_id, now)

    def banned_for(self, peer_id: PeerId, now: float) -> float | None:
        """Return the remaining seconds of a ban; None without one."""
        ban = self._bans.get(peer_id)
        return ban.until - now if ban is not None and ban.until > now else None

    def banned(self, now: float) -> dict[PeerId, float]:
        """Return all banned peers with the remaining seconds."""
        left = {peer_id: self.banned_for(peer_id, now) for peer_id in self._bans}
        return {peer_id: seconds for peer_id, seconds in left.items() if seconds is not None}

    def is_blocked(self, peer_id: PeerId) -> bool:
        """Return whether the user refuses this peer."""
        return peer_id in self._blocked

    def is_protected(self, peer_id: PeerId) -> bool:
        """Return whether this peer is exempt from bans: a bootstrap, or protected by the user."""
        return peer_id in self._always or peer_id in self._protected

    @property
    def blocked(self) -> frozenset[PeerId]:
        """The peers that the user refuses."""
        return frozenset(self._blocked)

    def sampling_weight(self, publisher: PeerId, now: float, source: str = "") -> float:
        """Return the factor on a publisher's sampling probability, 0 to 1; 0 if blocked."""
        if publisher in self._blocked:
            return 0.0
        return self.sampling.weight(publisher, now, source)

    def rows(self, now: float) -> tuple[Score, ...]:
        """Return all known peers, worst score first."""
        known = {*self.board.rows(now), *self.sampling.rows(now)}
        known |= self._blocked | self._protected | self._always | set(self.banned(now))
        rows = [self.row(peer_id, now) for peer_id in known]
        return tuple(sorted(rows, key=lambda r: (r.score, r.sampling_weight, -r.merit, r.peer_id)))

    def row(self, peer_id: PeerId, now: float) -> Score:
        """Return one peer's record, without its connection state."""
        scores, ban = self.board.row(peer_id, now), self._bans.get(peer_id)
        banned_s = self.banned_for(peer_id, now)
        return Score(
            peer_id=peer_id,
            score=round(scores.score, 3),
            merit=round(scores.credit, 3),
            points={c.value: round(p, 3) for c, p in scores.points.items() if p < _SHOWN_POINTS},
            sampling_weight=round(self.sampling.weight(peer_id, now), 4),
            reports=round(self.sampling.row(peer_id, now).groups, 2),
            banned_s=None if banned_s is None else round(banned_s, 1),
            bans=ban.count if ban is not None else 0,
            blocked=self.is_blocked(peer_id),
            protected=self.is_protected(peer_id),
        )

    # The user's lists

    def block(self, peer_id: PeerId) -> None:
        """Refuse a peer until unblocked. Raises ListFullError."""
        self._protected.discard(peer_id)
        _add(self._blocked, peer_id)

    def unblock(self, peer_id: PeerId) -> None:
        """Lift a block or a ban, and forget the peer's record."""
        self._blocked.discard(peer_id)
        self._bans.pop(peer_id, None)
        self.board.forgive(peer_id)
        self.sampling.forgive(peer_id)

    def protect(self, peer_id: PeerId) -> None:
        """Exempt a peer from bans; ends a block or ban. Raises ListFullError."""
        _add(self._protected, peer_id)
        self._blocked.discard(peer_id)
        self._bans.pop(peer_id, None)

    def unprotect(self, peer_id: PeerId) -> None:
        """End a protection; bootstraps stay protected."""
        self._protected.discard(peer_id)

    # Across restarts

    def to_json(self, now: float, *, wall_ms: int) -> str:
        """Return the file's content; above a bound the least significant rows are dropped."""
        scores = {p: r for p, r in self.board.rows(now).items() if r.weight > FORGET_ABOVE}
        weights = {p: r for p, r in self.sampling.rows(now).items() if r.groups > FORGET_ABOVE}
        bans = {p: b for p, b in self._bans.items() if now - b.until < _BAN_MEMORY_SECONDS}
        peers = list(dict.fromkeys([*bans, *scores, *weights]))[:MANY]
        rows = []
        for peer_id in peers:
            score, sampled = scores.get(peer_id), weights.get(peer_id)
            ban = bans.get(peer_id)
            row: dict[str, Any] = {"peer_id": peer_id}
            if score is not None:
                row["points"] = {str(c): round(v, 4) for c, v in score.points.items() if v}
            if sampled is not None:
                row["useful"] = round(sampled.useful, 4)
                row["expected"] = round(sampled.expected, 4)
                row["groups"] = round(sampled.groups, 4)
            if ban is not None:
                row["ban_s"] = round(ban.until - now, 3)
                row["bans"] = ban.count
            rows.append(row)
        content = {
            "version": _VERSION,
            "saved_ms": wall_ms,
            "blocked": sorted(self._blocked),
            "protected": sorted(self._protected),
        }
        return one_a_line(content, "peers", rows)

    def restore(self, text: str, now: float, *, wall_ms: int) -> None:
        """Restore what `to_json` returned. Raises ValueError before any change."""
        try:
            saved = _SAVED.validate_json(text, strict=True)
        except ValidationError:
            raise ValueError("not a reputation file of this version") from None
        age_s = min(_MAX_AGE_SECONDS, max(0.0, (wall_ms - saved["saved_ms"]) / 1000))
        blocked, protected = set(saved["blocked"]), set(saved["protected"])
        self._blocked, self._protected = blocked, protected - blocked
        for row in saved["peers"][:MANY]:
            self._restore_row(row, now, age_s)

    def _restore_row(self, row: _SavedPeer, now: float, age_s: float) -> None:
        peer_id = row["peer_id"]
        points = {Cause(c): v for c, v in row.get("points", {}).items() if c in set(Cause)}
        self.board.restore(peer_id, points, now, age_s=age_s)
        if groups := row.get("groups", 0.0):
            sampled = Record(row.get("useful", 0.0), row.get("expected", 0.0), groups)
            self.sampling.restore(peer_id, sampled, now, age_s=age_s)
        if "ban_s" in row:
            until = now + min(MAX_BAN_SECONDS, row["ban_s"]) - age_s
            self._bans[peer_id] = _Ban(until=until, count=max(1, int(row.get("bans", 1))))


def _add(listed: set[PeerId], peer_id: PeerId) -> None:
    if len(listed) >= MAX_LISTED and peer_id not in listed:
        raise ListFullError(f"{MAX_LISTED} peers are listed already")
    listed.add(peer_id)
