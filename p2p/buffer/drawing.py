"""Drawing from a pool by a named strategy. Pure; seeded by the caller's generator."""

from __future__ import annotations

import random
from collections.abc import Mapping

from p2p.buffer.pool import GroupPool, Slot
from p2p.buffer.types import Strategy
from shoal_wire.types import PeerId

_TRIES = 32
"""Rejections in a row after which one exact weighted draw over all publishers is cheaper."""

Weights = Mapping[PeerId, float]
"""A publisher's standing, 0 to 1: the factor on its chance. One not named counts 1."""


def draw(
    pool: GroupPool, strategy: Strategy, rng: random.Random, weights: Weights | None = None
) -> Slot | None:
    """Return one ready slot, None when there is none of positive weight.

    Rejection keeps the draw exact and its expected cost independent of the number of
    publishers; after `_TRIES` an exact draw over all of them follows, so it always ends.
    """
    if strategy is Strategy.NEWEST:
        return _draw_newest(pool, weights)
    if not pool.ready:
        return None
    for _ in range(_TRIES):
        if strategy is Strategy.UNIFORM_GROUPS:
            slot = pool.ready.draw(rng)
        else:
            slot = pool.shelves[pool.ready_publishers.draw(rng)].ready.draw(rng)
        if weights is None or rng.random() < _weight(weights, slot.entry.group.publisher):
            return slot
    return _draw_exactly(pool, strategy, rng, weights or {})


def _draw_exactly(
    pool: GroupPool, strategy: Strategy, rng: random.Random, weights: Weights
) -> Slot | None:
    publishers = list(pool.ready_publishers)
    chances = [_weight(weights, publisher) for publisher in publishers]
    if strategy is Strategy.UNIFORM_GROUPS:
        chances = [
            chance * len(pool.shelves[publisher].ready)
            for chance, publisher in zip(chances, publishers, strict=True)
        ]
    if sum(chances) <= 0:
        return None
    (publisher,) = rng.choices(publishers, chances)
    return pool.shelves[publisher].ready.draw(rng)


def _draw_newest(pool: GroupPool, weights: Weights | None) -> Slot | None:
    """Newest first; a weight only matters when it is 0."""
    skipped = []
    slot = pool.newest.peek()
    while (
        slot is not None
        and weights is not None
        and not _weight(weights, slot.entry.group.publisher)
    ):
        pool.take(slot)
        skipped.append(slot)
        slot = pool.newest.peek()
    for other in skipped:
        pool.make_ready(other)
    return slot


def _weight(weights: Weights, publisher: PeerId) -> float:
    weight = weights.get(publisher, 1.0)
    # A comparison with NaN is false: a standing that is not a number counts as none.
    return min(weight, 1.0) if weight > 0 else 0.0
