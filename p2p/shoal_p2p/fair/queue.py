"""Items that wait, by path: the next is one of whoever has had least. Pure.

    add ─▶ network ─▶ … ─▶ name ─▶ items, first come first served
    take ◀─ on each level the child that has had least, and of several the longest waiting

What a path has had is counted in two ways, which go together:

- `hold` and `release`: what it has *now*, as seats.  Nothing is left of it once given back.
- `pay`: what it has *used up*, as seconds of a worker.  Who comes, or comes back, starts where the
  others are by now: waiting saves nothing up, and a debt is worked off while others are served.

So of n networks that always want more, each gets 1/n, under however many names.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from shoal_base.bounded import REMEMBERED
from shoal_p2p.fair import Path

T = TypeVar("T")


class _QueueNode(Generic[T]):
    __slots__ = ("children", "clock", "held", "items", "num_waiting", "paid", "waiting")

    def __init__(self, paid: float = 0.0) -> None:
        self.held = 0.0
        self.paid = paid
        self.clock = 0.0
        """Cost that the child served last had paid before: a newcomer starts there."""
        self.children: dict[str, _QueueNode[T]] = {}
        self.waiting: dict[str, None] = {}
        """Children with waiting items, the longest waiting first."""
        self.items: deque[T] = deque()
        self.num_waiting = 0

    @property
    def had(self) -> float:
        return self.held + self.paid

    @property
    def is_idle(self) -> bool:
        return not (self.num_waiting or self.held)

    def forget_debts(self) -> None:
        """Forget the children that owe nothing any more, or else those that have owed longest."""
        idle = [key for key, child in self.children.items() if child.is_idle]
        for key in idle:
            if self.children[key].paid <= self.clock or len(self.children) > REMEMBERED:
                del self.children[key]


class FairQueue(Generic[T]):
    """Waiting items by path. Calls are O(children) on each level of a path."""

    def __init__(self) -> None:
        self._root: _QueueNode[T] = _QueueNode()

    def __len__(self) -> int:
        return self._root.num_waiting

    def __iter__(self) -> Iterator[T]:
        return self._items(self._root)

    def add(self, path: Path, item: T, *, first: bool = False) -> None:
        """Let an item wait, behind what waits on its path; `first` goes on where it was."""
        node = self._root
        node.num_waiting += 1
        for key in path:
            child = self._child(node, key)
            if not child.num_waiting:
                child.paid = max(child.paid, node.clock)
                node.waiting[key] = None
            child.num_waiting += 1
            node = child
        if first:
            node.items.appendleft(item)
        else:
            node.items.append(item)

    def discard(self, path: Path, item: T) -> bool:
        """Let an item wait no more; return whether it did."""
        nodes = self._nodes(path)
        if nodes is None or item not in nodes[-1].items:
            return False
        nodes[-1].items.remove(item)
        self._left(path, nodes, is_served=False)
        return True

    def take(self, fits: Callable[[T], bool] = lambda _item: True) -> tuple[Path, T] | None:
        """Take out and return what is next, with its path; of what `fits`, None if nothing does."""
        found = self._next(self._root, (), fits)
        if found is not None:
            path, item = found
            nodes = self._nodes(path)
            assert nodes is not None
            nodes[-1].items.remove(item)
            for parent, node in itertools.pairwise(nodes):
                parent.clock = max(parent.clock, node.paid)
            self._left(path, nodes, is_served=True)
        return found

    def hold(self, path: Path, amount: float = 1.0, *, skip: int = 0) -> None:
        """Count what a path has until it is released; its first `skip` parts have none of it."""
        node = self._root
        for depth, key in enumerate(path):
            node = self._child(node, key)
            node.held += amount if depth >= skip else 0.0

    def release(self, path: Path, amount: float = 1.0, *, skip: int = 0) -> None:
        """Count what a path has given back, as it was held."""
        self.hold(path, -amount, skip=skip)
        nodes = self._nodes(path)
        assert nodes is not None
        self._tidy(path, nodes)

    def pay(self, path: Path, amount: float) -> None:
        """Count what a path has used up: it is the others' turn until they have had as much."""
        node = self._root
        for key in path:
            node = self._child(node, key)
            node.paid += amount

    # Inside

    @staticmethod
    def _child(node: _QueueNode[T], key: str) -> _QueueNode[T]:
        child = node.children.get(key)
        if child is None:
            child = node.children[key] = _QueueNode(node.clock)
        return child

    def _nodes(self, path: Path) -> list[_QueueNode[T]] | None:
        nodes = [self._root]
        for key in path:
            child = nodes[-1].children.get(key)
            if child is None:
                return None
            nodes.append(child)
        return nodes

    def _next(
        self, node: _QueueNode[T], path: Path, fits: Callable[[T], bool]
    ) -> tuple[Path, T] | None:
        for item in node.items:
            if fits(item):
                return path, item
        for key in sorted(node.waiting, key=lambda key: node.children[key].had):
            found = self._next(node.children[key], (*path, key), fits)
            if found is not None:
                return found
        return None

    def _left(self, path: Path, nodes: list[_QueueNode[T]], *, is_served: bool) -> None:
        """Count an item that waits no more; who was served waits behind its equals."""
        nodes[0].num_waiting -= 1
        for key, (parent, node) in zip(path, itertools.pairwise(nodes), strict=True):
            node.num_waiting -= 1
            if is_served or not node.num_waiting:
                del parent.waiting[key]
            if is_served and node.num_waiting:
                parent.waiting[key] = None
        self._tidy(path, nodes)

    def _tidy(self, path: Path, nodes: list[_QueueNode[T]]) -> None:
        """Forget whoever waits for nothing and owes nothing, and some debts if they are many."""
        for key, (parent, node) in reversed(
            list(zip(path, itertools.pairwise(nodes), strict=True))
        ):
            if node.is_idle and node.paid <= parent.clock:
                del parent.children[key]
            if len(parent.children) > REMEMBERED:
                parent.forget_debts()

    def _items(self, node: _QueueNode[T]) -> Iterator[T]:
        yield from node.items
        for key in node.waiting:
            yield from self._items(node.children[key])
