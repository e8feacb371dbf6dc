"""Places held by path: which one must go for a newcomer, and fair draws. Pure.

    all ── a network ── a side ── … ── a name ── its places, the oldest first

Every level shares alike.  What one does not use the others may, until it is wanted back.  A
newcomer displaces, on each level, whoever holds most, counting the newcomer itself; so who floods
displaces only what came by its own path.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from shoal_p2p.fair import Path
from shoal_p2p.fair.containers import DrawSet, LazyHeap

T = TypeVar("T")

_NOTED_CHANGES = 64
"""Children that may have changed since the largest was asked for, beside twice as many as there
are: how much work is put off in a room that is not full."""
_TRIES = 32
"""Rejections in a row after which one exact weighted draw over all is cheaper."""


@dataclass(slots=True, eq=False)
class Place(Generic[T]):
    """One item's part of a shared room. Compared by identity."""

    path: Path
    item: T
    size: int = 1
    """Size in the unit of the shared room, beside the number of places."""
    since: float = 0.0
    """The least goes first."""
    is_free: bool = True
    """True if it may be drawn and displaced; `ShareTree` keeps it."""


class Leaf(Generic[T]):
    """The places at the end of a path. Compared by identity, as a branch is."""

    __slots__ = ("count", "free", "key", "num_free", "oldest", "size")

    def __init__(self, key: str) -> None:
        self.key = key
        self.count = self.size = self.num_free = 0
        self.free: DrawSet[Place[T]] = DrawSet()
        self.oldest: LazyHeap[Place[T]] = LazyHeap()


class Branch(Generic[T]):
    """A part that many paths begin with."""

    __slots__ = (
        "_by_count",
        "_by_size",
        "_changed",
        "children",
        "count",
        "free_children",
        "key",
        "num_free",
        "size",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.count = self.size = self.num_free = 0
        self.children: dict[str, Branch[T] | Leaf[T]] = {}
        self.free_children: DrawSet[Branch[T] | Leaf[T]] = DrawSet()
        # Which child holds most. Changes are only noted until somebody asks, which a room that is
        # not full never does.
        self._by_count: LazyHeap[Branch[T] | Leaf[T]] = LazyHeap()
        self._by_size: LazyHeap[Branch[T] | Leaf[T]] = LazyHeap()
        self._changed: dict[Branch[T] | Leaf[T], None] = {}

    def changed(self, child: Branch[T] | Leaf[T]) -> None:
        """Note what a child holds by now."""
        if child.num_free:
            self.free_children.add(child)
        else:
            self.free_children.discard(child)
        self._changed[child] = None
        if len(self._changed) > 2 * len(self.children) + _NOTED_CHANGES:
            self._catch_up()

    def forget(self, child: Branch[T] | Leaf[T]) -> None:
        """Leave out a child that holds nothing any more."""
        del self.children[child.key]
        self._changed.pop(child, None)
        self._by_count.discard(child)
        self._by_size.discard(child)

    def largest(self, *, by_size: bool) -> Branch[T] | Leaf[T] | None:
        """Return the child that holds most, of those with free places."""
        self._catch_up()
        return (self._by_size if by_size else self._by_count).peek()

    def _catch_up(self) -> None:
        for child in self._changed:
            if child.num_free:
                self._by_count.put(child, -child.count)
                self._by_size.put(child, -child.size)
            else:
                self._by_count.discard(child)
                self._by_size.discard(child)
        self._changed.clear()


class ShareTree(Generic[T]):
    """Places by path, all paths of one length. Calls are O(log n) amortised."""

    def __init__(self) -> None:
        self.root: Branch[T] = Branch("")

    def __len__(self) -> int:
        return self.root.count

    def add(self, place: Place[T]) -> None:
        """Add a place, free or not."""
        self._count(place, 1, place.size, int(place.is_free))

    def remove(self, place: Place[T]) -> None:
        """Remove a place that was added."""
        self._count(place, -1, -place.size, -int(place.is_free))

    def set_free(self, place: Place[T], *, is_free: bool) -> None:
        """Let a place be drawn and displaced, or no more."""
        if place.is_free is not is_free:
            place.is_free = is_free
            self._count(place, 0, 0, 1 if is_free else -1)

    def at(self, path: Path) -> Leaf[T] | None:
        """Return what is held at the end of a path, None if nothing is."""
        share = self._below(path)
        return share if isinstance(share, Leaf) else None

    def held(self, path: Path) -> int:
        """Return how many places there are on a path, or on all that begin with it."""
        share = self._below(path)
        return share.count if share is not None else 0

    def _below(self, path: Path) -> Branch[T] | Leaf[T] | None:
        share: Branch[T] | Leaf[T] | None = self.root
        for key in path:
            share = share.children.get(key) if isinstance(share, Branch) else None
        return share

    def victim(
        self, path: Path = (), size: int = 1, *, by_size: bool = False, margin: int = 0
    ) -> Place[T] | None:
        """Return the free place that goes for a newcomer; None where none may: it is refused.

        Who loses it held at least as much as the newcomer will, and `margin` more. Without a path
        it is that of whoever holds most.
        """
        node: Branch[T] | Leaf[T] | None = self.root
        for key in path:
            assert isinstance(node, Branch)
            mine, most = node.children.get(key), node.largest(by_size=by_size)
            with_newcomer = (size if by_size else 1) + _held(mine, by_size=by_size)
            if most is not None and _held(most, by_size=by_size) >= with_newcomer + margin:
                node = most
                break
            node = mine
            if node is None:
                return None
        while isinstance(node, Branch):
            node = node.largest(by_size=by_size)
        return None if node is None else node.oldest.peek()

    def draw(
        self, rng: random.Random, weight_of: Callable[[Path], float] = lambda _path: 1.0
    ) -> Place[T] | None:
        """Return a free place, drawn fairly; None where there is none of positive weight.

        `weight_of` scales a path's chance, 0 to 1. Rejection keeps a draw exact and its expected
        cost independent of the number of paths; after some tries an exact draw follows.
        """
        if not self.root.num_free:
            return None
        for _ in range(_TRIES):
            node: Branch[T] | Leaf[T] = self.root
            path: list[str] = []
            while isinstance(node, Branch):
                node = node.free_children.draw(rng)
                path.append(node.key)
            if rng.random() < clamped(weight_of(tuple(path))):
                return node.free.draw(rng)
        leaves = list(_leaves(self.root, (), 1.0))
        chances = [chance * clamped(weight_of(path)) for path, _, chance in leaves]
        if sum(chances) <= 0.0:
            return None
        return rng.choices([leaf for _, leaf, _ in leaves], chances)[0].free.draw(rng)

    def _count(self, place: Place[T], count: int, size: int, free: int) -> None:
        pairs = self._walk(place.path)
        leaf = pairs[-1][1]
        assert isinstance(leaf, Leaf)
        if place.is_free and count >= 0:
            leaf.free.add(place)
            leaf.oldest.put(place, place.since)
        else:
            leaf.free.discard(place)
            leaf.oldest.discard(place)
        self.root.count += count
        self.root.size += size
        self.root.num_free += free
        for parent, child in pairs:
            was_free = child.num_free > 0
            child.count += count
            child.size += size
            child.num_free += free
            if count or was_free != (child.num_free > 0):
                parent.changed(child)
        if count < 0:
            for parent, child in reversed(pairs):
                if not child.count:
                    parent.forget(child)

    def _walk(self, path: Path) -> list[tuple[Branch[T], Branch[T] | Leaf[T]]]:
        """Return the nodes of a path with their parents; missing ones are made."""
        parent = self.root
        pairs: list[tuple[Branch[T], Branch[T] | Leaf[T]]] = []
        for key in path[:-1]:
            child = parent.children.get(key)
            if child is None:
                child = parent.children[key] = Branch(key)
            pairs.append((parent, child))
            assert isinstance(child, Branch)
            parent = child
        leaf = parent.children.get(path[-1])
        if leaf is None:
            leaf = parent.children[path[-1]] = Leaf(path[-1])
        pairs.append((parent, leaf))
        return pairs


def clamped(weight: float) -> float:
    """Return a weight as a chance; one that is not a number counts as none."""
    return min(weight, 1.0) if weight > 0 else 0.0


def _held(share: Branch[T] | Leaf[T] | None, *, by_size: bool) -> int:
    if share is None:
        return 0
    return share.size if by_size else share.count


def _leaves(
    node: Branch[T] | Leaf[T], path: Path, chance: float
) -> Iterator[tuple[Path, Leaf[T], float]]:
    """Yield each path with free places, and the chance to come to it."""
    if isinstance(node, Leaf):
        yield path, node, chance
        return
    for child in node.free_children:
        yield from _leaves(child, (*path, child.key), chance / len(node.free_children))
