"""A member's behaviour: honest ones share their policy's answers. Pure.

A behaviour is given each batch before the node gets it and returns what goes out, or None to say
nothing. Task coordinates it invents are checked by receivers like anybody's.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from shoal_ipc.messages import Publish

Behaviour = Callable[[Publish, random.Random], Publish | None]


def honest(batch: Publish, _rng: random.Random) -> Publish:
    """Share what was answered."""
    return batch


def delayed(behave: Behaviour, rounds: int) -> Behaviour:
    """Share as `behave` does, so many batches later: what was made last is never heard of."""
    waiting: deque[Publish | None] = deque()

    def later(batch: Publish, rng: random.Random) -> Publish | None:
        waiting.append(behave(batch, rng))
        return waiting.popleft() if len(waiting) > rounds else None

    return later


BEHAVIOURS: Final[Mapping[str, Behaviour]] = {"honest": honest}
"""The names that `NodeSpec.behaviour` may have."""
