"""Python's collector, told that this process holds much that never goes.

By default a full collection comes after some 70,000 new containers and walks everything: in a
process of ours that is half a million objects of modules that never go. It was a fifth of what a
delivery cost a node, and as much of a trainer's round. What was made before is left out of it, and
the collector comes for as much as a node's second of traffic leaves. What has no cycles (nearly
all; of a round all) goes at once all the same.
"""

from __future__ import annotations

import gc

NEW_CONTAINERS = 50_000
"""New containers, less those gone, between two collections of the young."""


def spare_collector() -> None:
    """Leave out what exists, for good, and collect less often. To be called once, at the start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_CONTAINERS)
