"""Waits that many share; one of its own has a measurement or a test behind it. Pure."""

from __future__ import annotations

from typing import Final

POLL_S: Final = 0.1
"""Interval between two looks at what tells nobody of its changes, in seconds, where somebody waits
for the change: soon for a person, little for a CPU."""
RETRY_S: Final = 1.0
"""Pause before another try, or another look that nobody waits for, in seconds: what failed just now
fails again at once, and a second more is not noticed."""
LEAST_PAUSE_S: Final = 0.01
"""Shortest pause of somebody over a rate, in seconds: a debt of almost nothing would be waited for
again and again."""
AT_ONCE_S: Final = 1.0
"""Deadline for what only has to be let go, in seconds: a stream that is reset, the last words of a
process that is over. Nobody waits longer for it than for a failure."""
SHORT_DEADLINE_S: Final = 5.0
"""Deadline for what takes a fraction of a second unless something is wrong, in seconds: an answer
from this machine, the end of a process, the last bytes to a disk or a peer."""
REPLY_S: Final = 10.0
"""Deadline for an answer that takes work at a busy peer or process, in seconds."""
LONG_DEADLINE_S: Final = 30.0
"""Deadline for what takes seconds where a machine is slow, or a way narrow, in seconds."""
LOOK_S: Final = 10.0
"""Interval between two looks that cost something, at what changes now and then, in seconds."""
MINUTE_S: Final = 60.0
"""Interval between two lines about one thing, or two looks at what changes slowly; also how long a
peer is held to what passes, in seconds."""
LATELY_S: Final = 600.0
"""Time for which what was seen of a peer or of a network says how it is now, in seconds: routers,
clocks and peers change slowly."""
HOUR_S: Final = 3600.0
"""Time after which what was known is no longer counted on, and the longest interval between two
lines about one thing, in seconds."""
