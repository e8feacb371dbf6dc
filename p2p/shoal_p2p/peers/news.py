"""Log lines while no bootstrap answers, and how often they come. Pure."""

from __future__ import annotations

from shoal_base.waits import MINUTE_S
from shoal_p2p.log_throttle import LogThrottle
from shoal_p2p.net.access import AccessDenied
from shoal_wire.types import PeerId


class BootstrapNews:
    """A line after a minute without any bootstrap, then at doubling intervals up to an hour."""

    def __init__(self, now: float) -> None:
        self._lose(now)

    def _lose(self, now: float) -> None:
        self._lost_at, self._quiet = now, LogThrottle(now + MINUTE_S)
        self._is_lost, self._said = True, False

    def look(self, *, answering: bool, now: float, num_peers: int, last_error: str) -> str | None:
        """Return a line to log, if it is time for one."""
        if answering:
            said, self._is_lost, self._said = self._said, False, False
            return "a bootstrap answers again" if said else None
        if not self._is_lost:
            self._lose(now)
        if not self._quiet.may_say(now):
            return None
        silent_s = now - self._lost_at
        self._said = True
        return (
            f"no bootstrap has answered for {_spoken(silent_s)} ({last_error or 'no error yet'}); "
            f"still trying; other peers connected: {num_peers}"
        )


class BarNews:
    """A line as soon as it is known that a key or a list keeps a bootstrap away."""

    def __init__(self) -> None:
        self._found: dict[PeerId, tuple[AccessDenied, int]] = {}
        """The key or list that kept each away at its latest dials, and how many in a row."""

    def look(self, peer_id: PeerId, address: str, denial: AccessDenied) -> str | None:
        """Take what a dial ended in; return a line to log, if it is news."""
        before, times = self._found.get(peer_id, (denial, 0))
        times = times + 1 if before is denial else 1
        self._found[peer_id] = (denial, times)
        # A connection that broke by chance looks like a list's refusal, but not twice.
        if times != (2 if denial in (AccessDenied.NOT_LISTED, AccessDenied.BANNED) else 1):
            return None
        return f"cannot join by {address}: {denial.message}; {denial.remedy}"

    def answered(self, peer_id: PeerId) -> None:
        """It connected: what kept it away is news again."""
        self._found.pop(peer_id, None)


def _spoken(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"
