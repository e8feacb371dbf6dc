"""From `shoal node` on the command line to learning from others, with nothing on disk.

A bootstrap peer and one node already run and share. Then a node is started in an empty data
directory, and its own status says when it is ready, has its first peer, has published its first
group (its trainer has loaded the model and played half a round), and has trained on its first
external group. Seconds since the process was started, read to about 0.05 s.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import Options, Report, main, median, note
from tests.support.processes import LOOPBACK, Stage, open_stage

_POLL_SECONDS = 0.02
_LIMIT_SECONDS = 180.0
_OTHERS_ROUND_SECONDS = "1.0"
"""The other node's pace: it must have something to share, not take the machine."""

STAGES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "first_peer": lambda status: status["peers"] > 0,
    "first_group_published": lambda status: status["groups_published"] > 0,
    "first_external_group_trained": lambda status: status["groups_external_used"] > 0,
}


def measure(options: Options) -> Report:
    """Start nodes one after the other, each anew."""
    repeats = 1 if options.quick else 3
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder, open_stage(Path(folder)) as stage:
        note("starting a bootstrap peer and a node …")
        bootstrap = stage.bootstrap("b", "--swarm-name", "bench-start").address
        other = stage.node("other", "--round-seconds", _OTHERS_ROUND_SECONDS, bootstrap=bootstrap)
        other.wait_status(lambda s: s["groups_published"] >= 8, "something to share")
        runs = []
        for number in range(repeats):
            note(f"cold start {number + 1} of {repeats} …")
            runs.append(_start_once(stage, f"cold-{number}", bootstrap))
    return Report(
        results={
            "repeats": repeats,
            "seconds": {key: round(median([run[key] for run in runs]), 2) for key in runs[0]},
            "slowest_seconds": {key: round(max(run[key] for run in runs), 2) for key in runs[0]},
        }
    )


def _start_once(stage: Stage, name: str, bootstrap: str) -> dict[str, float]:
    node = stage.process(
        "node",
        name,
        *("--no-mdns", "--listen", LOOPBACK, "--bootstrap", bootstrap),
    )
    started = time.monotonic()
    node.start()
    found = {"ready": time.monotonic() - started}
    for stage_name, reached in STAGES.items():
        while (status := node.view()) is None or not reached(status):
            if time.monotonic() - started > _LIMIT_SECONDS:
                raise RuntimeError(f"{stage_name} not reached; status {status}\n{node.log}")
            time.sleep(_POLL_SECONDS)
        found[stage_name] = time.monotonic() - started
    node.close()
    return found


if __name__ == "__main__":
    sys.exit(main("cold_start", __doc__ or "", measure))
