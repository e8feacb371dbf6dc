"""Dependencies shared by all fetchers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from shoal_p2p.fetch.client import RolloutClient
from shoal_p2p.fetch.stats import FetchStats
from shoal_p2p.intake.ledger import PublisherLedger
from shoal_p2p.net.interface import Host
from shoal_p2p.reputation.scoring import Report
from shoal_wire.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchContext:
    """The peers to ask, what is known already, and where results are recorded."""

    manifest: Manifest
    host: Host
    asker: RolloutClient
    ledger: PublisherLedger
    stats: FetchStats
    report: Report
    """``report(forwarder, author, verdict)`` charges the peers responsible for a fetched batch."""
    wall_ms: Callable[[], int]
    rng: random.Random
