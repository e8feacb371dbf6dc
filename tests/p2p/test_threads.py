"""Threads beside the event loop."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys, trio
from shoal_p2p.threads import THREAD_TURN_S, let_the_loop_in
let_the_loop_in()
assert abs(sys.getswitchinterval() - THREAD_TURN_S) < 1e-6
assert THREAD_TURN_S < 0.005
"""


def test_a_thread_gives_way_to_the_loop_sooner_than_by_default() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=120)
