"""A fair queue by share key: the least-served key is next. Pure.

    add ─▶ network ─▶ … ─▶ identity ─▶ items, first in, first out
    pop ◀─ on each level the child with the least usage; among equals the longest waiting

The usage of a key is the sum of two amounts:

- `reserve` and `release`: what it holds *now*, such as slots. Nothing remains after the release.
- `charge`: what it has *consumed*, such as worker seconds. A key that arrives or returns starts at
  the level of the others: waiting saves nothing up, and a debt shrinks while others are served.

With n networks that always want more, each gets 1/n, whatever the number of identities.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from shoal_base.bounded import REMEMBERED
from shoal_p2p.fair import ShareKey

T = TypeVar("T")


class _QueueNode(Generic[T]):
    __slots__ = (
        "charged",
        "children",
        "clock",
        "held",
        "items",
        "num_waiting",
        "reserved",
        "waiting",
    )

    def __init__(self, charged: float = 0.0) -> None:
        self.reserved = 0.0
        self.held = 0.0
        """Reserved on any level below; the node is not idle meanwhile."""
        self.charged = charged
        self.clock = 0.0
        """Charge of the child served last, before that service: new children start there."""
        self.children: dict[str, _QueueNode[T]] = {}
        self.waiting: dict[str, None] = {}
        """Children with waiting items, longest waiting first."""
        self.items: deque[T] = deque()
        self.num_waiting = 0

    @property
    def usage(self) -> float:
        return self.reserved + self.charged

    @property
    def is_idle(self) -> bool:
        return not (self.num_waiting or self.held)

    def forget_debts(self) -> None:
        """Drop idle children without debt; above the bound also the oldest debtors."""
        idle = [key for key, child in self.children.items() if child.is_idle]
        for key in idle:
            if self.children[key].charged <= self.clock or len(self.children) > REMEMBERED:
                del self.children[key]


class FairQueue(Generic[T]):
    """Waiting items by share key. Calls are O(children) on each level of a key."""

    def __init__(self) -> None:
        self._root: _QueueNode[T] = _QueueNode()

    def __len__(self) -> int:
        return self._root.num_waiting

    def __iter__(self) -> Iterator[T]:
        return self._items(self._root)

    def add(self, share_key: ShareKey, item: T, *, first: bool = False) -> None:
        """Add an item at the end of its key's line, with `first` at the front, to resume it."""
        node = self._root
        node.num_waiting += 1
        for key, child in zip(share_key, self._make_nodes(share_key), strict=True):
            if not child.num_waiting:
                child.charged = max(child.charged, node.clock)
                node.waiting[key] = None
            child.num_waiting += 1
            node = child
        if first:
            node.items.appendleft(item)
        else:
            node.items.append(item)

    def discard(self, share_key: ShareKey, item: T) -> bool:
        """Remove a waiting item; return whether it was present."""
        nodes = self._nodes(share_key)
        if nodes is None or item not in nodes[-1].items:
            return False
        nodes[-1].items.remove(item)
        self._on_removed(share_key, nodes, is_served=False)
        return True

    def pop(self, fits: Callable[[T], bool] | None = None) -> tuple[ShareKey, T] | None:
        """Remove and return the next item, or the next for which `fits` is true, with its key."""
        found = self._next(self._root, (), fits) if self._root.num_waiting else None
        if found is not None:
            share_key, item = found
            nodes = self._nodes(share_key)
            assert nodes is not None
            nodes[-1].items.remove(item)
            for parent, node in itertools.pairwise(nodes):
                parent.clock = max(parent.clock, node.charged)
            self._on_removed(share_key, nodes, is_served=True)
        return found

    def reserve(self, share_key: ShareKey, amount: float = 1.0, *, skip: int = 0) -> None:
        """Count `amount` for a key until it is released, except on its first `skip` levels."""
        for level, node in enumerate(self._make_nodes(share_key)):
            node.held += amount
            if level >= skip:
                node.reserved += amount

    def release(self, share_key: ShareKey, amount: float = 1.0, *, skip: int = 0) -> None:
        """Release an amount that was reserved with the same arguments."""
        nodes = self._nodes(share_key)
        assert nodes is not None, "release without a reservation"
        for level, node in enumerate(nodes[1:]):
            node.held -= amount
            if level >= skip:
                node.reserved -= amount
        self._prune(share_key, nodes)

    def charge(self, share_key: ShareKey, amount: float) -> None:
        """Count consumption: other keys are served until they have consumed as much."""
        for node in self._make_nodes(share_key):
            node.charged += amount

    # Inside

    def _make_nodes(self, share_key: ShareKey) -> list[_QueueNode[T]]:
        """Return the nodes below the root, one for each level; missing ones are created."""
        node, nodes = self._root, []
        for key in share_key:
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = _QueueNode(node.clock)
            nodes.append(child)
            node = child
        return nodes

    def _nodes(self, share_key: ShareKey) -> list[_QueueNode[T]] | None:
        nodes = [self._root]
        for key in share_key:
            child = nodes[-1].children.get(key)
            if child is None:
                return None
            nodes.append(child)
        return nodes

    def _next(
        self, node: _QueueNode[T], share_key: ShareKey, fits: Callable[[T], bool] | None
    ) -> tuple[ShareKey, T] | None:
        while not node.items and len(node.waiting) == 1:
            (key,) = node.waiting
            node, share_key = node.children[key], (*share_key, key)
        for item in node.items:
            if fits is None or fits(item):
                return share_key, item
        waiting: Iterable[str] = node.waiting
        if len(node.waiting) > 1:
            waiting = sorted(waiting, key=lambda key: node.children[key].usage)
        for key in waiting:
            found = self._next(node.children[key], (*share_key, key), fits)
            if found is not None:
                return found
        return None

    def _on_removed(
        self, share_key: ShareKey, nodes: list[_QueueNode[T]], *, is_served: bool
    ) -> None:
        """Update the counts after a removal; a served key moves behind its equals."""
        nodes[0].num_waiting -= 1
        for key, (parent, node) in zip(share_key, itertools.pairwise(nodes), strict=True):
            node.num_waiting -= 1
            if is_served or not node.num_waiting:
                del parent.waiting[key]
            if is_served and node.num_waiting:
                parent.waiting[key] = None
        self._prune(share_key, nodes)

    def _prune(self, share_key: ShareKey, nodes: list[_QueueNode[T]]) -> None:
        """Drop idle nodes without debt, and the oldest debts if there are too many."""
        for key, (parent, node) in reversed(
            list(zip(share_key, itertools.pairwise(nodes), strict=True))
        ):
            if not (node.num_waiting or node.held) and node.charged <= parent.clock:
                del parent.children[key]
            if len(parent.children) > REMEMBERED:
                parent.forget_debts()

    def _items(self, node: _QueueNode[T]) -> Iterator[T]:
        yield from node.items
        for key in node.waiting:
            yield from self._items(node.children[key])
