"""Log lines about bootstraps that do not answer, rate-limited. Pure."""

from __future__ import annotations

from shoal_base.waits import MINUTE_S
from shoal_p2p.log_throttle import LogThrottle
from shoal_p2p.net.access import AccessDenied
from shoal_wire.types import PeerId


class BootstrapLog:
    """Logs after a minute without any bootstrap, then at doubling intervals up to an hour."""

    def __init__(self, now: float) -> None:
        self._lose(now)

    def _lose(self, now: float) -> None:
        self._lost_at, self._quiet = now, LogThrottle(now + MINUTE_S)
        self._is_lost, self._is_logged = True, False

    def look(self, *, answering: bool, now: float, num_peers: int, last_error: str) -> str | None:
        """Return a line to log, if it is time for one."""
        if answering:
            was_logged, self._is_lost, self._is_logged = self._is_logged, False, False
            return "a bootstrap answers again" if was_logged else None
        if not self._is_lost:
            self._lose(now)
        if not self._quiet.may_say(now):
            return None
        silent_s = now - self._lost_at
        self._is_logged = True
        return (
            f"no bootstrap has answered for {_spoken(silent_s)} ({last_error or 'no error yet'}); "
            f"still trying; other peers connected: {num_peers}"
        )


class DenialLog:
    """Logs once when a key or a list keeps a bootstrap away."""

    def __init__(self) -> None:
        self._found: dict[PeerId, tuple[AccessDenied, int]] = {}
        """The denial of each peer's latest dials, and how many in a row."""

    def look(self, peer_id: PeerId, address: str, denial: AccessDenied) -> str | None:
        """Record the result of a dial, and return a line to log if it is new."""
        before, times = self._found.get(peer_id, (denial, 0))
        times = times + 1 if before is denial else 1
        self._found[peer_id] = (denial, times)
        # A broken connection looks like a list's refusal, but not twice in a row.
        if times != (2 if denial in (AccessDenied.NOT_LISTED, AccessDenied.BANNED) else 1):
            return None
        return f"cannot join by {address}: {denial.message}; {denial.remedy}"

    def answered(self, peer_id: PeerId) -> None:
        """Record a successful connection, so that a later denial is logged again."""
        self._found.pop(peer_id, None)


def _spoken(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"
