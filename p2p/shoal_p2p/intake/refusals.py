"""The latest refusals, by whom and why: a ring that a flood can neither fill nor slow. Pure.

    verdict ─▶ (reason, signer, forwarder, family) known? ─▶ counted, and the newest again
                              └─ no ─▶ a new row; over the bound the forwarder's oldest goes, or
                                       the oldest of all

Who sends the same thing a thousand times has one row; who invents a thousand signers has
`MAX_OF_ONE` rows. Noting one takes no longer with more of them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Final

from shoal_ipc.answers.peer import Refused
from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Reason, Verdict

MAX_REFUSALS: Final = 200
MAX_OF_ONE: Final = MAX_REFUSALS // 5
"""Rows of one forwarder."""
EVERYDAY: Final = frozenset({Reason.DUPLICATE})
"""Refusals that every peer causes all day: counted, and no row of the ring."""

_Key = tuple[Reason, PeerId | None, PeerId, str]


class RefusalLog:
    """The latest refusals."""

    def __init__(self) -> None:
        self._rows: OrderedDict[_Key, Refused] = OrderedDict()
        self._of: dict[PeerId, OrderedDict[_Key, None]] = {}
        """The keys of each forwarder, oldest first."""

    def note(
        self, judged: Verdict, *, signer: PeerId | None, forwarder: PeerId, at_ms: int
    ) -> None:
        """Take note of a verdict that is no *accept*."""
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
        """Return the rows, the newest first, each with its latest time."""
        return tuple(reversed(self._rows.values()))

    def _make_room(self, forwarder: PeerId) -> None:
        own = self._of.get(forwarder)
        if own is not None and len(own) >= MAX_OF_ONE:
            self._forget(next(iter(own)))
        elif len(self._rows) >= MAX_REFUSALS:
            self._forget(next(iter(self._rows)))

    def _forget(self, key: _Key) -> None:
        del self._rows[key]
        own = self._of[key[2]]
        del own[key]
        if not own:
            del self._of[key[2]]
