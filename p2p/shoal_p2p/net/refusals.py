"""Reports peers that are reachable but refused because of a key or a list.

The dialling side gets the reason in the error of its dial. The other side logs it at once, and then
at doubling intervals of up to an hour, for each address and reason.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import trio
from libp2p.io.exceptions import ConnectionClosedError, IncompleteReadError
from libp2p.transport.exceptions import MuxerUpgradeFailure, SecurityUpgradeFailure

from shoal_base.bounded import BoundedDict
from shoal_p2p.log_throttle import LogThrottle
from shoal_p2p.net.access import AccessDenied
from shoal_p2p.net.address import is_circuit
from shoal_p2p.net.private import WrongSwarmKeyError
from shoal_p2p.net.request import root_cause

logger = logging.getLogger(__name__)


class NotListedError(SecurityUpgradeFailure):
    """The peer is not on the swarm's list of peers."""

    def __init__(self, peer_id: str) -> None:
        super().__init__(f"{peer_id} is not on the swarm's list of peers")
        self.remedy = f"to let it in, start the swarm with --allow-peers {peer_id} too"


class RefusalCounts:
    """Counts and logs refusals."""

    def __init__(self) -> None:
        self.counts: Counter[AccessDenied] = Counter()
        self._throttles: BoundedDict[tuple[str, AccessDenied], LogThrottle] = BoundedDict()

    def record(self, host: str, error: BaseException) -> bool:
        """Count and log `error` if it is a refusal, and return whether it is."""
        for cause in causes(error):
            if isinstance(cause, WrongSwarmKeyError):
                self._record(host, cause.denial, f"{cause.denial.message}; {cause.denial.remedy}")
                return True
            if isinstance(cause, NotListedError):
                self._record(host, AccessDenied.NOT_LISTED, f"{cause}; {cause.remedy}")
                return True
        return False

    def _record(self, host: str, denial: AccessDenied, words: str) -> None:
        self.counts[denial] += 1
        if self._throttles.use((host, denial), LogThrottle).may_say(trio.current_time()):
            logger.warning("refused a connection from %s: %s", host, words)


def find_denial(error: BaseException) -> AccessDenied | None:
    """Return why the peer refused a dial that failed with `error`; None for other errors."""
    for cause in causes(error):
        if isinstance(cause, WrongSwarmKeyError):
            return cause.denial
        if isinstance(cause, MuxerUpgradeFailure):
            return AccessDenied.NOT_LISTED
    return None


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield `error` and its chain of causes."""
    while error is not None:
        yield error
        error = error.__cause__


class DialError(Exception):
    """A dial failed to connect to the expected peer. One line."""

    def __init__(
        self, text: str, denial: AccessDenied | None = None, *, is_closed_early: bool = False
    ) -> None:
        super().__init__(text)
        self.denial = denial
        """The key or list that keeps the two reachable peers apart; None if there is none."""
        self.is_closed_early = is_closed_early
        """True if the peer closed the connection before negotiation, as a peer without a free slot
        does."""


class PunchFailedError(Exception):
    """A dial from the listen port failed."""


def dial_error(address: str, error: BaseException, *, is_open: bool = False) -> DialError:
    """Convert an error of py-libp2p's swarm for a dial of `address`.

    `is_open`: this node's swarm is known to have no list of peers.
    """
    denial = find_denial(error)
    if denial is AccessDenied.NOT_LISTED and is_open:
        denial = AccessDenied.BANNED
    if denial is not None:
        return DialError(f"cannot connect to {address}: {denial.message}; {denial.remedy}", denial)
    if _is_closed_early(error) and not is_circuit(address):
        why = "it closed the connection before negotiation: it may be full"
        return DialError(f"cannot connect to {address}: {why}", is_closed_early=True)
    return DialError(f"cannot connect to {address}: {root_cause(error)}")


def _is_closed_early(error: BaseException) -> bool:
    """Return whether the connection opened, and ended while its encryption was negotiated."""
    found = list(causes(error))
    return any(isinstance(cause, SecurityUpgradeFailure) for cause in found) and any(
        isinstance(cause, ConnectionClosedError | IncompleteReadError) for cause in found
    )
