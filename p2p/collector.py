"""Python's garbage collector, told what kind of process this is.

By default a full collection comes after some 70,000 new containers and walks everything: in a node
that is hundreds of thousands of objects of modules that never go, several times a second, and was
a fifth of what a delivery cost. What was made before the node runs is left out of it, and the
collector comes for as much as a second's traffic leaves. What has no cycles (nearly all) goes at
once all the same.
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
