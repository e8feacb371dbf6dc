"""A member's behaviour: honest ones share their policy's answers. Pure.

A behaviour receives each batch before the node does and returns the batch to publish, or None.
Receivers check invented task coordinates like all others.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from shoal_ipc.messages import Publish

Behaviour = Callable[[Publish, random.Random], Publish | None]


def honest(batch: Publish, _rng: random.Random) -> Publish:
    """Share the batch unchanged."""
    return batch


def delayed(behave: Behaviour, rounds: int) -> Behaviour:
    """Share as `behave` does, `rounds` batches later; the last batches are never published."""
    waiting: deque[Publish | None] = deque()

    def later(batch: Publish, rng: random.Random) -> Publish | None:
        waiting.append(behave(batch, rng))
        return waiting.popleft() if len(waiting) > rounds else None

    return later


BEHAVIOURS: Final[Mapping[str, Behaviour]] = {"honest": honest}
"""Behaviours by name, as in `NodeSpec.behaviour`."""
