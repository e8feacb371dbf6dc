"""Peers that reach each other and are kept apart by a key or a list: what is said of it, to whom.

The side that dials is told by the error of its dial, at once; the other by its log, at once and
then at doubling intervals up to an hour, for each address and reason.
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
    """The peer is not on the swarm's list."""

    def __init__(self, peer_id: str) -> None:
        super().__init__(f"{peer_id} is not on the swarm's list of peers")
        self.do = f"to let it in, start the swarm with --allow-peers {peer_id} too"


class RefusalCounts:
    """Counts refusals, and logs them."""

    def __init__(self) -> None:
        self.counts: Counter[AccessDenied] = Counter()
        self._quiet: BoundedDict[tuple[str, AccessDenied], LogThrottle] = BoundedDict()

    def note(self, host: str, error: BaseException) -> bool:
        """Count and tell `error` if it is a refusal; False if it is something else."""
        for cause in causes(error):
            if isinstance(cause, WrongSwarmKeyError):
                self._note(host, cause.bar, f"{cause.bar.says}; {cause.bar.do}")
                return True
            if isinstance(cause, NotListedError):
                self._note(host, AccessDenied.NOT_LISTED, f"{cause}; {cause.do}")
                return True
        return False

    def _note(self, host: str, bar: AccessDenied, words: str) -> None:
        self.counts[bar] += 1
        if self._quiet.use((host, bar), LogThrottle).may_say(trio.current_time()):
            logger.warning("refused a connection from %s: %s", host, words)


def bar_of(error: BaseException) -> AccessDenied | None:
    """Return what kept a dial that ended in `error` from the peer; None for anything else."""
    for cause in causes(error):
        if isinstance(cause, WrongSwarmKeyError):
            return cause.bar
        if isinstance(cause, MuxerUpgradeFailure):
            return AccessDenied.NOT_LISTED
    return None


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Walk from `error` to what started it."""
    while error is not None:
        yield error
        error = error.__cause__


class DialError(Exception):
    """A dial did not end in a connection to the expected peer; one line."""

    def __init__(
        self, text: str, bar: AccessDenied | None = None, *, is_cut_off: bool = False
    ) -> None:
        super().__init__(text)
        self.bar = bar
        """The key or list that keeps the two apart where they reach each other; None if unknown."""
        self.is_cut_off = is_cut_off
        """True where somebody is there, and hung up before a word: as who has no slot free does."""


class KnockFailedError(Exception):
    """A dial from the port listened on led to no connection; why is of no use to anybody."""


def dial_error(address: str, error: BaseException, *, is_open: bool = False) -> DialError:
    """Return what a dial of `address` that ended in an error of py-libp2p's swarm came to.

    `is_open` where this node's swarm is known to have no list of peers.
    """
    bar = bar_of(error)
    if bar is AccessDenied.NOT_LISTED and is_open:
        bar = AccessDenied.CUT_OFF
    if bar is not None:
        return DialError(f"cannot connect to {address}: {bar.says}; {bar.do}", bar)
    if _is_cut_off(error) and not is_circuit(address):
        why = "it closed the connection before a word was spoken: it may be full"
        return DialError(f"cannot connect to {address}: {why}", is_cut_off=True)
    return DialError(f"cannot connect to {address}: {root_cause(error)}")


def _is_cut_off(error: BaseException) -> bool:
    """Return whether the connection was open, and ended while its encryption was negotiated."""
    found = list(causes(error))
    return any(isinstance(cause, SecurityUpgradeFailure) for cause in found) and any(
        isinstance(cause, ConnectionClosedError | IncompleteReadError) for cause in found
    )
