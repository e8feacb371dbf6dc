"""Drawing from a pool: a publisher first, then one of its groups. Pure; the caller's generator.

So flooding does not raise a publisher's share.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from p2p.buffer.pool import GroupPool, Slot
from shoal_wire.types import PeerId

_TRIES = 32
"""Rejections in a row after which one exact weighted draw over all publishers is cheaper."""

Weights = Mapping[PeerId, float]
"""A publisher's standing, 0 to 1: the factor on its chance. One not named counts 1."""


def draw(pool: GroupPool, rng: random.Random, weights: Weights | None = None) -> Slot | None:
    """Return one ready slot, None when there is none of positive weight.

    Rejection keeps the draw exact and its expected cost independent of the number of
    publishers; after `_TRIES` an exact draw over all of them follows, so it always ends.
    """
    if not pool.num_ready:
        return None
    for _ in range(_TRIES):
        slot = pool.shelves[pool.ready_publishers.draw(rng)].ready.draw(rng)
        if weights is None or rng.random() < _weight(weights, slot.entry.group.publisher):
            return slot
    return _draw_exactly(pool, rng, weights or {})


def _draw_exactly(pool: GroupPool, rng: random.Random, weights: Weights) -> Slot | None:
    publishers = list(pool.ready_publishers)
    chances = [_weight(weights, publisher) for publisher in publishers]
    if sum(chances) <= 0:
        return None
    (publisher,) = rng.choices(publishers, chances)
    return pool.shelves[publisher].ready.draw(rng)


def _weight(weights: Weights, publisher: PeerId) -> float:
    weight = weights.get(publisher, 1.0)
    # A comparison with NaN is false: a standing that is not a number counts as none.
    return min(weight, 1.0) if weight > 0 else 0.0
