"""What to say, and how often, while no bootstrap answers. Pure."""

from __future__ import annotations

FIRST_SECONDS = 60.0
LONGEST_SECONDS = 3600.0


class BootstrapNews:
    """A line after a minute without any bootstrap, then at doubling intervals up to an hour."""

    def __init__(self, now: float) -> None:
        self._lost_at: float | None = now
        self._next_s = FIRST_SECONDS
        self._said = False

    def look(self, *, answering: bool, now: float, num_peers: int, last_error: str) -> str | None:
        """Return a line to log, if it is time for one."""
        if answering:
            said, self._lost_at = self._said, None
            self._next_s, self._said = FIRST_SECONDS, False
            return "a bootstrap answers again" if said else None
        if self._lost_at is None:
            self._lost_at = now
        silent_s = now - self._lost_at
        if silent_s < self._next_s:
            return None
        self._next_s = silent_s + min(LONGEST_SECONDS, max(FIRST_SECONDS, silent_s))
        self._said = True
        return (
            f"no bootstrap has answered for {_spoken(silent_s)} ({last_error or 'no error yet'}); "
            f"trying on; {num_peers} other peer(s) connected"
        )


def _spoken(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"
