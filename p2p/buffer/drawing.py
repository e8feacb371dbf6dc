"""Drawing from a pool. Pure; the caller's generator.

By shares: a network first, then what its peers signed or passed on, then a connection, a publisher,
and one of its groups.  So neither flooding, nor names, nor connections raise what one network is
drawn.  Not by shares, every publisher counts alike.  Each way by a publisher's weight.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeVar

from p2p.buffer.pool import GroupPool
from p2p.buffer.shares import Share
from p2p.buffer.types import Slot
from shoal_wire.types import PeerId

T = TypeVar("T")

_TRIES = 32
"""Rejections in a row after which one exact weighted draw over all is cheaper."""

WeightOf = Callable[[PeerId, str], float]
"""The factor on a publisher's chance, 0 to 1, by its name and by the source of what it has here
(`p2p.buffer.shares.source_of`; empty where it is not drawn by shares)."""


def alike(_publisher: PeerId, _source: str) -> float:
    """Everybody's weight where nothing is known of anybody."""
    return 1.0


class Draw:
    """Draws of one moment, without replacement; O(1) expected each.

    Rejection keeps a draw exact and its expected cost independent of the number of publishers;
    after `_TRIES` an exact draw over all of them follows, so it always ends.
    """

    def __init__(
        self, pool: GroupPool, rng: random.Random, weight_of: WeightOf, *, by_shares: bool
    ) -> None:
        self._pool = pool
        self._rng = rng
        self._weight_of = weight_of
        self._by_shares = by_shares

    def next(self) -> Slot | None:
        """Return one ready slot, None when there is none of positive weight."""
        if not self._pool.num_ready:
            return None
        return self._draw_by_shares() if self._by_shares else self._draw_of_all()

    def _draw_of_all(self) -> Slot | None:
        pool, rng = self._pool, self._rng
        for _ in range(_TRIES):
            publisher = pool.ready_publishers.draw(rng)
            if rng.random() < self._weight(publisher):
                return pool.shelves[publisher].ready.draw(rng)
        publishers = list(pool.ready_publishers)
        chosen = self._choose([(publisher, self._weight(publisher)) for publisher in publishers])
        return None if chosen is None else pool.shelves[chosen].ready.draw(rng)

    def _draw_by_shares(self) -> Slot | None:
        root = self._pool.shares.root
        for _ in range(_TRIES):
            leaf = root
            while leaf.ready_slots is None:
                leaf = leaf.ready_children.draw(self._rng)
            if self._rng.random() < self._weight(PeerId(leaf.key), leaf.source):
                return leaf.ready_slots.draw(self._rng)
        leaves = _leaves(root, 1.0)
        chosen = self._choose(
            [(f, part * self._weight(PeerId(f.key), f.source)) for f, part in leaves]
        )
        if chosen is None:
            return None
        assert chosen.ready_slots is not None
        return chosen.ready_slots.draw(self._rng)

    def _choose(self, chances: list[tuple[T, float]]) -> T | None:
        """Return one by its chance; None where nobody has any."""
        weights = [chance for _, chance in chances]
        if sum(weights) <= 0.0:
            return None
        return self._rng.choices([one for one, _ in chances], weights)[0]

    def _weight(self, publisher: PeerId, source: str = "") -> float:
        weight = self._weight_of(publisher, source)
        # A comparison with NaN is false: a weight that is not a number counts as none.
        return min(weight, 1.0) if weight > 0 else 0.0


def _leaves(node: Share, part: float) -> Iterator[tuple[Share, float]]:
    """Yield each publisher below a node with ready groups, and the chance to come to it."""
    if node.ready_slots is not None:
        yield node, part
        return
    for child in node.ready_children:
        yield from _leaves(child, part / len(node.ready_children))
