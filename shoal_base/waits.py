"""Durations that several modules share. A module's own ones have a measurement or a test. Pure."""

from __future__ import annotations

from typing import Final

POLL_S: Final = 0.1
"""Polling interval while a caller waits for a change, in seconds: short for a person, cheap for a
CPU."""
RETRY_S: Final = 1.0
"""Pause before a retry, or polling interval if no caller waits, in seconds: an immediate retry
would fail again, and a second is not noticed."""
LEAST_PAUSE_S: Final = 0.01
"""Shortest pause for a rate limit, in seconds: shorter ones would only repeat."""
AT_ONCE_S: Final = 1.0
"""Deadline for a clean-up that may fail, in seconds: resetting a stream, or the last output of a
process that has ended."""
SHORT_DEADLINE_S: Final = 5.0
"""Deadline for operations that take a fraction of a second unless something is wrong, in seconds: a
reply from this machine, the end of a process, the last bytes to a disk or a peer."""
REPLY_S: Final = 10.0
"""Deadline for a reply that needs work by a busy peer or process, in seconds."""
LONG_DEADLINE_S: Final = 30.0
"""Deadline for operations that take seconds on a slow machine or link, in seconds."""
LOOK_S: Final = 10.0
"""Polling interval for checks with a cost, in seconds."""
MINUTE_S: Final = 60.0
"""Interval between two log lines about one thing, or between two checks of slow changes; also the
window of short-lived limits on a peer, in seconds."""
LATELY_S: Final = 600.0
"""Time for which an observation of a peer or network stays valid, in seconds: routers, clocks and
peers change slowly."""
HOUR_S: Final = 3600.0
"""Time after which knowledge is discarded, and the longest interval between two log lines about one
thing, in seconds."""
