"""Counts of verdicts by reason and by peer, within a fixed bound. Pure."""

from __future__ import annotations

from collections import Counter

from shoal_base.bounded import BoundedDict
from shoal_ipc.answers.peer import RefusedCount, Verdicts
from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Reason, Verdict


class VerdictLog:
    """Counters for the debug views and for scoring."""

    def __init__(self) -> None:
        self._totals: Counter[Reason] = Counter()
        self._peers: BoundedDict[PeerId, Counter[Reason]] = BoundedDict()

    def count(self, verdict: Verdict, *, signer: PeerId | None) -> None:
        """Count one verdict, also by signer if the signer is known."""
        self._totals[verdict.reason] += 1
        if signer is not None:
            self._peers.use(signer, Counter)[verdict.reason] += 1

    def totals(self) -> Verdicts:
        """Return the number of messages by outcome and reason."""
        return Verdicts(
            accept=self._totals[Reason.VALID],
            ignore=self._of(Outcome.IGNORE),
            reject=self._of(Outcome.REJECT),
        )

    def refused(self) -> tuple[RefusedCount, ...]:
        """Return the refused messages by reason, most frequent first."""
        found = [row for row in self._totals.items() if row[0] is not Reason.VALID]
        return tuple(
            RefusedCount(
                reason=reason.value,
                kind=reason.row.outcome.value,
                count=count,
                message=reason.row.message,
                remedy=reason.row.remedy,
            )
            for reason, count in sorted(found, key=lambda row: (-row[1], row[0]))
        )

    def peer(self, peer_id: PeerId) -> dict[str, int]:
        """Return the counts of one signer by reason."""
        return {reason.value: n for reason, n in self._peers.get(peer_id, Counter()).items()}

    def _of(self, wanted: Outcome) -> dict[str, int]:
        return {
            reason.value: n
            for reason, n in sorted(self._totals.items())
            if reason.row.outcome is wanted
        }
