"""Drawing from a pool. Pure; the caller's generator.

With pots: a side first (proven, strangers, the useless), then a network where it is strangers, then
a publisher, then one of its groups.  So flooding does not raise a publisher's share, nor do names
raise that of who brings them: all of one network weigh as one.  Without pots every publisher counts
for itself, by its weight.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from p2p.buffer.pool import GroupPool
from p2p.buffer.shares import OTHERS, PROVEN, USELESS, Share
from p2p.buffer.types import Slot, Tier
from shoal_wire.types import PeerId

T = TypeVar("T")

_TRIES = 32
"""Rejections in a row after which one exact weighted draw over all is cheaper."""

Weights = Mapping[PeerId, float]
"""A publisher's standing, 0 to 1: the factor on its chance. One not named counts 1."""

Pots = Callable[[float, float, float], tuple[float, float]]
"""What strangers and the useless may weigh together, of what proven, strangers and useless weigh
that have something ready (`p2p.standing.sampling.capped`)."""


class Draw:
    """Draws of one moment, without replacement; O(publishers) once, then O(1) expected each.

    Rejection keeps a draw exact and its expected cost independent of the number of publishers;
    after `_TRIES` an exact draw over all of them follows, so it always ends.
    """

    def __init__(
        self, pool: GroupPool, rng: random.Random, weights: Weights | None, pots: Pots | None
    ) -> None:
        self._pool = pool
        self._rng = rng
        self._weights = weights or {}
        self._sides = {} if pots is None else self._weigh(pots)
        self._has_pots = pots is not None

    def next(self) -> Slot | None:
        """Return one ready slot, None when there is none of positive weight."""
        if not self._has_pots:
            return self._draw_of_all()
        while any(weight > 0.0 for weight in self._sides.values()):
            (tier,) = self._rng.choices(list(self._sides), list(self._sides.values()))
            top = self._top(tier)
            slot = None if top is None else self._draw_below(top)
            if slot is not None:
                return slot
            # What one side no longer has, the others give: fewer are never drawn for a share.
            self._sides[tier] = 0.0
        return None

    def _weigh(self, pots: Pots) -> dict[Tier, float]:
        """Return what each side weighs, within its pot."""
        proven, useless = (
            sum(self._weight(leaf) for leaf, _ in _leaves(top, 1.0)) if top is not None else 0.0
            for top in (self._top(Tier.PROVEN), self._top(Tier.USELESS))
        )
        others, strangers = self._top(Tier.STRANGER), 0.0
        for network in others.ready_children if others is not None else ():
            if network.key != USELESS:
                strangers += sum(self._weight(leaf) * part for leaf, part in _leaves(network, 1.0))
        strangers, useless = pots(proven, strangers, useless)
        return {Tier.PROVEN: proven, Tier.STRANGER: strangers, Tier.USELESS: useless}

    def _top(self, tier: Tier) -> Share | None:
        shares = self._pool.shares
        if tier is Tier.PROVEN:
            return shares.find(PROVEN)
        return shares.find(OTHERS, USELESS) if tier is Tier.USELESS else shares.find(OTHERS)

    def _draw_of_all(self) -> Slot | None:
        pool, rng = self._pool, self._rng
        if not pool.num_ready:
            return None
        for _ in range(_TRIES):
            publisher = pool.ready_publishers.draw(rng)
            if rng.random() < self._weight_of(publisher):
                return pool.shelves[publisher].ready.draw(rng)
        publishers = list(pool.ready_publishers)
        chosen = self._choose([(publisher, self._weight_of(publisher)) for publisher in publishers])
        return None if chosen is None else pool.shelves[chosen].ready.draw(rng)

    def _draw_below(self, top: Share) -> Slot | None:
        if not top.num_ready:
            return None
        for _ in range(_TRIES):
            leaf = top
            while leaf.ready_slots is None:
                leaf = leaf.ready_children.draw(self._rng)
                if leaf.key == USELESS and top.key == OTHERS:
                    break
            if leaf.ready_slots is not None and self._rng.random() < self._weight(leaf):
                return leaf.ready_slots.draw(self._rng)
        chosen = self._choose([(f, part * self._weight(f)) for f, part in _leaves(top, 1.0)])
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

    def _weight(self, leaf: Share) -> float:
        return self._weight_of(PeerId(leaf.key))

    def _weight_of(self, publisher: PeerId) -> float:
        weight = self._weights.get(publisher, 1.0)
        # A comparison with NaN is false: a standing that is not a number counts as none.
        return min(weight, 1.0) if weight > 0 else 0.0


def _leaves(node: Share, part: float) -> Iterator[tuple[Share, float]]:
    """Yield each publisher below a node with ready groups, and the chance to come to it."""
    if node.ready_slots is not None:
        yield node, part
        return
    children = [c for c in node.ready_children if not (node.key == OTHERS and c.key == USELESS)]
    for child in children:
        yield from _leaves(child, part / len(children))
