"""Counters for `shoal debug fetch`: bytes, requests, and outcomes of gaps. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from shoal_p2p.events import Source


def _none_of_any() -> Counter[str]:
    return Counter({source.value: 0 for source in Source})


@dataclass(slots=True)
class FetchStats:
    """Counters since the start, with the names of the view `fetch`."""

    bytes_in: Counter[str] = field(default_factory=_none_of_any)
    """Bytes of requested envelopes, valid or not."""
    gaps_seen: int = 0
    """Sequence numbers still missing after the grace period."""
    gaps_filled: int = 0
    gaps_abandoned: int = 0
    """Abandoned gaps, and those not requested because their publisher's budget was used up."""
    announced: int = 0
    """Announcements that were queued."""
    announced_abandoned: int = 0
    backfill_rounds: int = 0
    requests: int = 0
    """Requests to peers."""
    failures: Counter[str] = field(default_factory=Counter)
    """Failed requests to peers, by cause."""
    served: Counter[str] = field(default_factory=Counter)
    """Replies to peers by kind of request."""
    refused: Counter[str] = field(default_factory=Counter)
    """Refused requests of peers, by cause."""
    bytes_out: int = 0
