"""Tunes the garbage collector for many long-lived objects.

By default a full collection runs after about 70,000 new containers and visits every object: here,
half a million objects of imported modules that are never freed. That was a fifth of a node's cost
per delivery, and of a trainer's round. Objects that exist at the start are therefore exempt, and
collections run about once per second of a node's traffic. Objects without reference cycles (nearly
all of them) are freed at once anyway.
"""

from __future__ import annotations

import gc

NEW_CONTAINERS = 50_000
"""Threshold of generation 0: allocated minus freed containers between two collections."""


def spare_collector() -> None:
    """Exempt all existing objects permanently, and collect less often. Call once, at the start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_CONTAINERS)
