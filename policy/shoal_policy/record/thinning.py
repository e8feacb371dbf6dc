"""Makes room in a file of events by leaving out older rounds. Pure.

    before   ||||||||||||||||||||||||      the newest quarter stays as it is
    after    | | | | | | | | |||||||       of what is older every 2nd, 4th, 8th … round

The next time the same: the run is there from its first round to its last, the past more coarsely.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

_NEWEST_SHARE = 4  # one part in four stays whole; a guess
_WIDEST = 1 << 40  # ends a loop over strides that would never fit


def thinned(lines: Sequence[bytes], max_bytes: int) -> list[bytes]:
    """Return at most `max_bytes` of these JSON lines, in their order; what is no event goes first.

    A kind of event that takes less than a tenth of `max_bytes` stays whole: evaluations are rare.
    """
    events = [(line, event) for line in lines if (event := _event(line)) is not None]
    older, newest = _split(events, max_bytes // _NEWEST_SHARE)
    left = max_bytes - sum(len(line) for line, _ in newest)
    sizes = Counter[str]()
    for line, (kind, _) in older:
        sizes[kind] += len(line)
    rare = {kind for kind, size in sizes.items() if size <= max_bytes // 10}
    stride = 1
    while sum(len(line) for line, _ in older) > left and stride < _WIDEST:
        stride *= 2
        older = [
            (line, (kind, number))
            for line, (kind, number) in older
            if kind in rare or number % stride == 0
        ]
    kept = [line for line, _ in (*older, *newest)]
    while kept and sum(map(len, kept)) > max_bytes:
        del kept[: max(1, len(kept) // 2)]
    return kept


def _split(
    events: Sequence[tuple[bytes, tuple[str, int]]], newest_bytes: int
) -> tuple[list[tuple[bytes, tuple[str, int]]], list[tuple[bytes, tuple[str, int]]]]:
    size, first = 0, len(events)
    while first and size + len(events[first - 1][0]) <= newest_bytes:
        first -= 1
        size += len(events[first][0])
    return list(events[:first]), list(events[first:])


def _event(line: bytes) -> tuple[str, int] | None:
    """Kind and round of an event; None for what is no whole line of one."""
    try:
        event = json.loads(line)
        return str(event.get("event", "round")), int(event["round"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
