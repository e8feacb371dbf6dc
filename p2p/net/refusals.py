"""Strangers turned away from a private swarm: counts, and one log line a minute an address."""

from __future__ import annotations

import logging
from collections import Counter

import trio
from libp2p.transport.exceptions import SecurityUpgradeFailure

from p2p.net.private import WrongSwarmKeyError
from shoal_base.bounded import BoundedDict

logger = logging.getLogger(__name__)

QUIET_SECONDS = 60.0
_MAX_REMEMBERED = 256


class NotListedError(SecurityUpgradeFailure):
    """The peer is not on the swarm's list."""


class Refusals:
    """What has been refused, and when it was last said."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Refused connections by reason: ``key``, ``list``."""
        self._said_at: BoundedDict[str, float] = BoundedDict(_MAX_REMEMBERED)

    def note(self, host: str, error: BaseException) -> bool:
        """Count and tell `error` if it is a refusal; False if it is something else."""
        refusal = _refusal_in(error)
        if refusal is None:
            return False
        self.counts["list" if isinstance(refusal, NotListedError) else "key"] += 1
        now = trio.current_time()
        if now - self._said_at.get(host, -QUIET_SECONDS) >= QUIET_SECONDS:
            self._said_at[host] = now
            logger.warning("refused a connection from %s: %s", host, refusal)
        return True


def _refusal_in(error: BaseException | None) -> BaseException | None:
    while error is not None and not isinstance(error, NotListedError | WrongSwarmKeyError):
        error = error.__cause__
    return error
