"""Does a node's memory go on growing, beyond what its buffer holds: ten minutes of gossip.

The swarm and pace of `gossip`: four node processes, each with four groups a second of its own. Read
after every minute: resident memory of each node's process, less what its buffer says it holds. The
first minutes fill pools and caches that have a bound; growth that stays in the second half is a
leak. The largest of the four nodes counts.
"""

from __future__ import annotations

import random
import sys
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import gossip
from benchmarks.groups import draw_tasks, make_group
from benchmarks.harness import Options, Report, at_most, main, note
from benchmarks.texts import reasoning
from tests.support.processes import open_stage

MINUTES = 10
_NUM_TASKS = 256
_MOST_A_MINUTE = 4.0
_MOST_LATER = 0.5
"""Mebibytes a minute in the second half: what malloc's own pools make of a level heap."""


def measure(options: Options) -> Report:
    """Publish minute after minute and weigh the nodes in between."""
    minutes = 2 if options.quick else MINUTES
    a_minute = int(60 * gossip.GROUPS_PER_SECOND)
    rng = random.Random(4)
    tasks = draw_tasks(rng, _NUM_TASKS)
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder, open_stage(Path(folder)) as stage:
        traffic = [gossip.Traffic(node=node, groups=[]) for node in gossip.start(stage)]
        rows = [_beyond_mib(traffic)]
        for minute in range(minutes):
            note(f"minute {minute + 1} of {minutes} …")
            for number, one in enumerate(traffic):
                groups = [
                    make_group(rng.choice(tasks), reasoning, rng, num_chars=gossip.CHARS)
                    for _ in range(a_minute)
                ]
                # A fresh list of what is to come; the numbers of what has come go on.
                traffic[number] = replace(one, groups=groups, published_ms={}, received_ms={})
            gossip.publish_all(traffic)
            rows.append(_beyond_mib(traffic))
    return _report(rows)


def _beyond_mib(traffic: list[gossip.Traffic]) -> list[float]:
    usages = [gossip.usage(one.node) for one in traffic]
    return [(usage["rss"] - usage["buffer"]) / gossip.MIB for usage in usages]


def _report(rows: list[list[float]]) -> Report:
    nodes = list(zip(*rows, strict=True))
    grown = [max(b - a for a, b in zip(row, after, strict=True)) for row, after in pairwise(rows)]
    middle = len(rows) // 2
    later = max((node[-1] - node[middle]) / (len(rows) - 1 - middle) for node in nodes)
    results: dict[str, Any] = {
        "minutes": len(rows) - 1,
        "beyond_buffer_mib": {
            f"minute_{minute}": round(max(row), 1) for minute, row in enumerate(rows)
        },
        "second_half_mib_a_minute": round(later, 2),
    }
    after_first = grown[1:] or grown
    return Report(
        results=results,
        goals=[
            at_most(
                "growth beyond the buffer in any minute but the first (MiB)",
                round(max(after_first), 2),
                _MOST_A_MINUTE,
            ),
            at_most(
                "growth beyond the buffer in the second half (MiB a minute)",
                round(later, 2),
                _MOST_LATER,
            ),
        ],
    )


if __name__ == "__main__":
    sys.exit(main("soak", __doc__ or "", measure))
