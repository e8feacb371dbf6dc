"""Verdicts: counts by reason and by peer, and the most recent refusals. Bounded and pure.

    verdict ─▶ (reason, signer, forwarder, family) known? ─▶ counted, and moved to the newest
                              └─ no ─▶ a new row; above the bound the forwarder's oldest is
                                       dropped, or the oldest of all

A peer that repeats one message a thousand times has one row; one that invents a thousand signers
has `MAX_PER_FORWARDER` rows. Recording takes constant time.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import replace
from typing import Final

from shoal_base.bounded import BoundedDict
from shoal_ipc.answers.peer import Refused, RefusedCount, Verdicts
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


MAX_REFUSALS: Final = 200
MAX_PER_FORWARDER: Final = MAX_REFUSALS // 5
"""Rows of one forwarder."""
EVERYDAY: Final = frozenset({Reason.DUPLICATE})
"""Reasons that every peer causes constantly: counted elsewhere, without a row here."""

_Key = tuple[Reason, PeerId | None, PeerId, str]


class RefusalLog:
    """The most recent refusals, newest first."""

    def __init__(self) -> None:
        self._rows: OrderedDict[_Key, Refused] = OrderedDict()
        self._of: dict[PeerId, OrderedDict[_Key, None]] = {}
        """The keys of each forwarder, oldest first."""

    def note(
        self, judged: Verdict, *, signer: PeerId | None, forwarder: PeerId, at_ms: int
    ) -> None:
        """Record a verdict other than ACCEPT."""
        if judged.outcome is Outcome.ACCEPT or judged.reason in EVERYDAY:
            return
        key = (judged.reason, signer, forwarder, judged.family)
        known = self._rows.get(key)
        if known is not None:
            self._rows[key] = replace(known, at_ms=at_ms, count=known.count + 1)
            self._rows.move_to_end(key)
            self._of[forwarder].move_to_end(key)
            return
        self._make_room(forwarder)
        self._of.setdefault(forwarder, OrderedDict())[key] = None
        self._rows[key] = Refused(
            at_ms=at_ms,
            reason=judged.reason.value,
            kind=judged.outcome.value,
            signer=signer or "",
            forwarder=forwarder,
            family=judged.family,
            message=judged.reason.row.message,
            remedy=judged.reason.row.remedy,
        )

    def newest(self) -> tuple[Refused, ...]:
        """Return the rows, newest first, each with its latest time."""
        return tuple(reversed(self._rows.values()))

    def _make_room(self, forwarder: PeerId) -> None:
        own = self._of.get(forwarder)
        if own is not None and len(own) >= MAX_PER_FORWARDER:
            self._forget(next(iter(own)))
        elif len(self._rows) >= MAX_REFUSALS:
            self._forget(next(iter(self._rows)))

    def _forget(self, key: _Key) -> None:
        del self._rows[key]
        own = self._of[key[2]]
        del own[key]
        if not own:
            del self._of[key[2]]
