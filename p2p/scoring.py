"""A peer's standing from the verdicts on what it sent and forwarded. Pure.

Each reject takes points off, and points come back with time, so an honest peer that once forwarded
something bad recovers. 0 is neutral; nothing earns a positive score, so there is nothing to farm.

| cause | points | why |
|---|---|---|
| reject, as signer | -4 | its own doing |
| heavy reject, as signer | -20 | no honest software produces it |
| reject, as forwarder only | -1 | it could have checked, but one slip is no attack |
| heavy reject, as forwarder only | -5 | checking a signature and a size is cheap |
"""

from __future__ import annotations

from collections import OrderedDict

from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Verdict

HALF_LIFE_SECONDS = 600.0
BAN_BELOW = -40.0
"""Below this a peer is cut off for a time."""

_MAX_PEERS = 4096
_SIGNER_POINTS = -4.0
_SIGNER_HEAVY_POINTS = -20.0
_FORWARDER_POINTS = -1.0
_FORWARDER_HEAVY_POINTS = -5.0


class Scoreboard:
    """Points by peer, decaying; the least recently punished is forgotten first."""

    def __init__(self) -> None:
        self._scores: OrderedDict[PeerId, tuple[float, float]] = OrderedDict()

    def judge(
        self, verdict: Verdict, *, signer: PeerId | None, forwarder: PeerId, now: float
    ) -> None:
        """Take off what `verdict` costs; `now` is monotonic seconds."""
        if verdict.outcome is not Outcome.REJECT:
            return
        if signer is not None:
            self._add(signer, _SIGNER_HEAVY_POINTS if verdict.heavy else _SIGNER_POINTS, now)
        if forwarder != signer:
            points = _FORWARDER_HEAVY_POINTS if verdict.heavy else _FORWARDER_POINTS
            self._add(forwarder, points, now)

    def score(self, peer_id: PeerId, now: float) -> float:
        """Return the peer's standing, at most 0."""
        points, at = self._scores.get(peer_id, (0.0, now))
        return points * 0.5 ** (max(0.0, now - at) / HALF_LIFE_SECONDS)

    def _add(self, peer_id: PeerId, points: float, now: float) -> None:
        self._scores[peer_id] = (self.score(peer_id, now) + points, now)
        self._scores.move_to_end(peer_id)
        if len(self._scores) > _MAX_PEERS:
            self._scores.popitem(last=False)
