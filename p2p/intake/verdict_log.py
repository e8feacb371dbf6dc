"""Counts of verdicts by reason and by peer, within a fixed bound. Pure."""

from __future__ import annotations

from collections import Counter

from shoal_base.bounded import BoundedDict
from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Reason, Verdict

_MAX_PEERS = 1024


class VerdictLog:
    """Counters for the debug views and for scoring."""

    def __init__(self) -> None:
        self._totals: Counter[tuple[Outcome, str]] = Counter()
        self._peers: BoundedDict[PeerId, Counter[str]] = BoundedDict(_MAX_PEERS)

    def count(self, verdict: Verdict, *, signer: PeerId | None) -> None:
        """Count one verdict, against `signer` where the signer is known."""
        self._totals[verdict.outcome, verdict.reason.value] += 1
        if signer is None:
            return
        self._peers.use(signer, Counter)[verdict.reason.value] += 1

    def totals(self) -> dict[str, object]:
        """Return ``{"accept": n, "ignore": {reason: n}, "reject": {reason: n}}``."""
        accepted = sum(n for (outcome, _), n in self._totals.items() if outcome is Outcome.ACCEPT)
        return {
            "accept": accepted,
            "ignore": self._of(Outcome.IGNORE),
            "reject": self._of(Outcome.REJECT),
        }

    def refused(self) -> list[tuple[Outcome, Reason, int]]:
        """Return what was not taken, by reason, the commonest first."""
        found = [
            (outcome, Reason(reason), count)
            for (outcome, reason), count in self._totals.items()
            if outcome is not Outcome.ACCEPT
        ]
        return sorted(found, key=lambda row: (-row[2], row[1]))

    def peer(self, peer_id: PeerId) -> dict[str, int]:
        """Return the counts of one signer by reason."""
        return dict(self._peers.get(peer_id, {}))

    def rejected(self, peer_id: PeerId, *, reasons: frozenset[str]) -> int:
        """Return how many of the given reasons stand against a signer."""
        counter = self._peers.get(peer_id, Counter())
        return sum(n for reason, n in counter.items() if reason in reasons)

    def _of(self, wanted: Outcome) -> dict[str, int]:
        return {
            reason: n
            for (outcome, reason), n in sorted(self._totals.items(), key=lambda item: item[0][1])
            if outcome is wanted
        }
