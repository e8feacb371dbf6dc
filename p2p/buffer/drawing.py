"""Drawing from a pool: a side first, then a publisher, then one of its groups. Pure.

So flooding does not raise a publisher's share, nor do names raise that of who brings them:
strangers are drawn by network, then by name, and all of one network weigh as one.  Two pots are
capped over all their members, by weight and, for who is not proven, by count (`ReplayBuffer`):
strangers get at most a fifth beside proven publishers, the useless one in two hundred.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from p2p.buffer.pool import GroupPool
from p2p.buffer.shares import OTHERS, PROVEN, USELESS, Share
from p2p.buffer.types import Slot, Tier
from shoal_wire.types import PeerId

_TRIES = 32
"""Rejections in a row after which one exact weighted draw over a whole side is cheaper."""
USELESS_SHARE = 0.005
"""Most of the draws for all useless publishers together."""

Weights = Mapping[PeerId, float]
"""A publisher's standing, 0 to 1: the factor on its chance. One not named counts 1."""


class Draw:
    """Draws of one moment, without replacement; O(publishers) once, then O(1) expected each."""

    def __init__(
        self, pool: GroupPool, rng: random.Random, weights: Weights | None, *, capped: bool
    ) -> None:
        """`capped`: whether sides have pots; if not, each publisher counts for itself."""
        self._pool = pool
        self._rng = rng
        self._weights = weights
        self._totals = self._weigh(capped=capped)

    def next(self, *, strangers: bool) -> Slot | None:
        """Return one ready slot, None when there is none of positive weight.

        `strangers`: whether one of who is not proven may be drawn.
        """
        while True:
            sides = [
                tier
                for tier, total in self._totals.items()
                if total > 0.0 and (strangers or tier is Tier.PROVEN)
            ]
            if not sides:
                return None
            (tier,) = self._rng.choices(sides, [self._totals[tier] for tier in sides])
            top = self._top(tier)
            slot = None if top is None else self._draw_below(top)
            if slot is not None:
                return slot
            self._totals[tier] = 0.0

    def _weigh(self, *, capped: bool) -> dict[Tier, float]:
        """Return what each side weighs, within its cap."""
        totals = dict.fromkeys(Tier, 0.0)
        for tier in (Tier.PROVEN, Tier.USELESS):
            if (top := self._top(tier)) is not None:
                totals[tier] = sum(self._weight(leaf) for leaf, _ in _leaves(top, 1.0))
        others = self._top(Tier.STRANGER)
        for network in others.ready_children if others is not None else ():
            if network.key != USELESS:
                chances = _leaves(network, 1.0)
                totals[Tier.STRANGER] += sum(
                    self._weight(leaf) * (part if capped else 1.0) for leaf, part in chances
                )
        if not capped:
            return totals
        share = self._pool.limits.strangers_share
        _cap(totals, Tier.STRANGER, totals[Tier.PROVEN], share)
        _cap(totals, Tier.USELESS, totals[Tier.PROVEN] + totals[Tier.STRANGER], USELESS_SHARE)
        return totals

    def _top(self, tier: Tier) -> Share | None:
        shares = self._pool.shares
        if tier is Tier.PROVEN:
            return shares.find(PROVEN)
        return shares.find(OTHERS, USELESS) if tier is Tier.USELESS else shares.find(OTHERS)

    def _draw_below(self, top: Share) -> Slot | None:
        """Return a slot below `top`, by chance and weight.

        Rejection keeps the draw exact and its expected cost independent of the number of
        publishers; after `_TRIES` an exact draw over all of them follows, so it always ends.
        """
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
        found = [(leaf, part * self._weight(leaf)) for leaf, part in _leaves(top, 1.0)]
        if sum(chance for _, chance in found) <= 0.0:
            return None
        (leaf,) = self._rng.choices([leaf for leaf, _ in found], [chance for _, chance in found])
        assert leaf.ready_slots is not None
        return leaf.ready_slots.draw(self._rng)

    def _weight(self, leaf: Share) -> float:
        if self._weights is None:
            return 1.0
        weight = self._weights.get(PeerId(leaf.key), 1.0)
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


def _cap(totals: dict[Tier, float], tier: Tier, others: float, share: float) -> None:
    allowed = others * share / (1.0 - share)
    if 0.0 < allowed < totals[tier]:
        totals[tier] = allowed
