"""Why a dial has failed: one line, and what that tells of the other side."""

from __future__ import annotations

from libp2p.io.exceptions import ConnectionClosedError, IncompleteReadError
from libp2p.transport.exceptions import SecurityUpgradeFailure

from shoal_p2p.net.address import is_circuit
from shoal_p2p.net.bars import Bar
from shoal_p2p.net.refusals import bar_of, causes
from shoal_p2p.net.request import root_cause


class DialError(Exception):
    """A dial did not end in a connection to the expected peer; one line."""

    def __init__(self, text: str, bar: Bar | None = None, *, is_cut_off: bool = False) -> None:
        super().__init__(text)
        self.bar = bar
        """The key or list that keeps the two apart where they reach each other; None if unknown."""
        self.is_cut_off = is_cut_off
        """True where somebody is there, and hung up before a word: as who has no slot free does."""


class KnockFailedError(Exception):
    """A dial from the port listened on led to no connection; why is of no use to anybody."""


def dial_error(address: str, error: BaseException) -> DialError:
    """Return what a dial of `address` that ended in an error of py-libp2p's swarm came to."""
    bar = bar_of(error)
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
