"""Counters for `shoal debug fetch`: batches by their way, and the fate of gaps. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from shoal_p2p.intake.validation import Source


def _none_of_any() -> Counter[str]:
    return Counter({source.value: 0 for source in Source})


@dataclass(slots=True)
class FetchStats:
    """Counters since the start, by the names that the view `fetch` has for them."""

    batches: Counter[str] = field(default_factory=_none_of_any)
    """Valid batches by how they came."""
    groups: Counter[str] = field(default_factory=_none_of_any)
    bytes_in: Counter[str] = field(default_factory=_none_of_any)
    """Envelopes that came by request, valid or not."""
    gaps_seen: int = 0
    """Sequence numbers that were missing when the grace was over."""
    gaps_filled: int = 0
    gaps_abandoned: int = 0
    """Gaps given up, with those not asked for since too many of the publisher's were empty."""
    announced: int = 0
    """Announcements that were taken up."""
    announced_abandoned: int = 0
    backfill_rounds: int = 0
    requests: int = 0
    """Requests to others."""
    failures: Counter[str] = field(default_factory=Counter)
    """Requests to others that brought nothing, by cause."""
    served: Counter[str] = field(default_factory=Counter)
    """Answers to others by kind of request."""
    refused: Counter[str] = field(default_factory=Counter)
    """Requests of others that got nothing, by cause."""
    bytes_out: int = 0
