"""The garbage collector of a process that holds much that never goes."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc
from shoal_base.collector import NEW_CONTAINERS, spare_collector
before = len(gc.get_objects())
spare_collector()
assert gc.get_freeze_count() > 0.9 * before, (gc.get_freeze_count(), before)
assert gc.isenabled() and gc.get_threshold()[0] == NEW_CONTAINERS
class Knot:
    gone = 0
    def __init__(self): self.own = self
    def __del__(self): Knot.gone += 1
for _ in range(3 * NEW_CONTAINERS):
    Knot()
assert Knot.gone > NEW_CONTAINERS, Knot.gone
"""


def test_what_was_there_is_left_out_and_new_knots_are_still_collected() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=120)
