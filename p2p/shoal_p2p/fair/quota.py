"""Bounded storage shared by a hierarchy of keys: eviction and fair sampling. Pure.

    all ── a network ── an origin ── … ── an identity ── its entries, oldest first

All children of a level share equally. Unused share is lent to the others until it is claimed back.
A new entry evicts, on each level, from the child that holds most, counting the new entry itself, so
a flooding peer only displaces entries below its own keys.

`LazyHeap`, a heap with removal, and `RandomSet`, a set with random sampling, are deterministic:
their order depends on the calls alone. A removal leaves stale entries in the heap; they hold serial
numbers, never the removed object.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from shoal_p2p.fair import ShareKey

K = TypeVar("K", bound=Hashable)

_SLACK = 8
"""Stale heap entries tolerated in addition to one for each live key."""


class LazyHeap(Generic[K]):
    """A min-heap whose keys can be removed and can change their priority.

    Every call is O(log n) amortised. Equal priorities keep the order of insertion.
    """

    __slots__ = ("_heap", "_keys", "_serial", "_serials")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._keys: dict[int, K] = {}
        self._serials: dict[K, int] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._keys)

    def put(self, key: K, priority: float) -> None:
        """Add `key`, or change its priority."""
        if key in self._serials:
            del self._keys[self._serials[key]]
        serial = self._serial = self._serial + 1
        self._serials[key] = serial
        self._keys[serial] = key
        heapq.heappush(self._heap, (priority, serial))
        if len(self._heap) > 2 * len(self._keys) + _SLACK:
            # A sorted list is a heap.
            self._heap = sorted(item for item in self._heap if item[1] in self._keys)

    def discard(self, key: K) -> None:
        """Remove `key` if present."""
        serial = self._serials.pop(key, None)
        if serial is not None:
            del self._keys[serial]

    def peek(self) -> K | None:
        """Return the key with the lowest priority, None if empty."""
        heap, keys = self._heap, self._keys
        while heap:
            serial = heap[0][1]
            if serial in keys:
                return keys[serial]
            heapq.heappop(heap)
        return None

    def least(self) -> float | None:
        """Return the lowest priority, None if empty."""
        return None if self.peek() is None else self._heap[0][0]


class RandomSet(Generic[K]):
    """A set with uniform random sampling; every call is O(1)."""

    __slots__ = ("_members", "_place")

    def __init__(self) -> None:
        self._members: list[K] = []
        self._place: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[K]:
        return iter(self._members)

    def add(self, member: K) -> None:
        """Add a member; no effect if it is present."""
        if member not in self._place:
            self._place[member] = len(self._members)
            self._members.append(member)

    def discard(self, member: K) -> None:
        """Remove `member` if present; the last member takes its position."""
        place = self._place.pop(member, None)
        if place is None:
            return
        last = self._members.pop()
        if place < len(self._members):
            self._members[place] = last
            self._place[last] = place

    def sample(self, rng: random.Random) -> K:
        """Return a uniformly sampled member; the set must not be empty."""
        # Twice as fast as randrange; the bias is below one in 2**40 for any set in memory.
        return self._members[int(rng.random() * len(self._members))]


T = TypeVar("T")

_NOTED_CHANGES = 64
"""Changed children recorded before the heaps are updated, in addition to twice the number of
children. Deferring this work keeps a quota that is not full cheap."""
_TRIES = 32
"""Consecutive rejections after which one exact weighted sample over all leaves is cheaper."""


@dataclass(slots=True, eq=False)
class QuotaEntry(Generic[T]):
    """One item in a `HierarchicalQuota`. Compared by identity."""

    share_key: ShareKey
    item: T
    size: int = 1
    """Size in the quota's unit, such as bytes."""
    since: float = 0.0
    """Order of eviction within a leaf: the lowest goes first."""
    is_free: bool = True
    """True if it may be sampled and evicted. Set through `HierarchicalQuota.set_free`."""


class Leaf(Generic[T]):
    """The entries of one complete share key. Compared by identity, like `Branch`."""

    __slots__ = ("count", "free", "key", "num_free", "oldest", "size")

    def __init__(self, key: str) -> None:
        self.key = key
        self.count = self.size = self.num_free = 0
        self.free: RandomSet[QuotaEntry[T]] = RandomSet()
        self.oldest: LazyHeap[QuotaEntry[T]] = LazyHeap()


class Branch(Generic[T]):
    """A common prefix of share keys."""

    __slots__ = (
        "_changed",
        "_heaps",
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
        self.free_children: RandomSet[Branch[T] | Leaf[T]] = RandomSet()
        # They find the largest child by count and by size. Changes are only recorded until the
        # first query, which a quota that is not full never makes.
        self._heaps: tuple[LazyHeap[Branch[T] | Leaf[T]], ...] = ()
        self._changed: dict[Branch[T] | Leaf[T], None] = {}

    def changed(self, child: Branch[T] | Leaf[T]) -> None:
        """Record that a child's counts changed, and forget the child if it is empty."""
        if child.num_free:
            self.free_children.add(child)
        else:
            self.free_children.discard(child)
        if not child.count:
            del self.children[child.key]
            self._changed.pop(child, None)
            for heap in self._heaps:
                heap.discard(child)
            return
        self._changed[child] = None
        if len(self._changed) > 2 * len(self.children) + _NOTED_CHANGES:
            self._updated_heaps()

    def largest(self, *, by_size: bool) -> Branch[T] | Leaf[T] | None:
        """Return the largest child that has free entries."""
        return self._updated_heaps()[by_size].peek()

    def _updated_heaps(self) -> tuple[LazyHeap[Branch[T] | Leaf[T]], ...]:
        heaps = self._heaps = self._heaps or (LazyHeap(), LazyHeap())
        for child in self._changed:
            for heap, amount in zip(heaps, (child.count, child.size), strict=True):
                if child.num_free:
                    heap.put(child, -amount)
                else:
                    heap.discard(child)
        self._changed.clear()
        return heaps


class HierarchicalQuota(Generic[T]):
    """Entries by share key, with all keys of one length. Calls are O(log n) amortised.

    Finding the entry that a new one displaces, when the storage is full:

        tree = ShareTree[bytes]()
        tree.add(Place(("network", "identity"), b"item"))
        evicted = tree.pick_eviction(("other network", "identity"))
    """

    def __init__(self) -> None:
        self.root: Branch[T] = Branch("")

    def __len__(self) -> int:
        return self.root.count

    def add(self, place: QuotaEntry[T]) -> None:
        """Add an entry, free or not."""
        self._count(place, 1, place.size, int(place.is_free))

    def remove(self, place: QuotaEntry[T]) -> None:
        """Remove an entry."""
        self._count(place, -1, -place.size, -int(place.is_free))

    def set_free(self, place: QuotaEntry[T], *, is_free: bool) -> None:
        """Set whether an entry may be sampled and evicted."""
        if place.is_free is not is_free:
            place.is_free = is_free
            self._count(place, 0, 0, 1 if is_free else -1)

    def leaf(self, share_key: ShareKey) -> Leaf[T] | None:
        """Return the leaf of a complete key, None if it has no entries."""
        share = self._below(share_key)
        return share if isinstance(share, Leaf) else None

    def count(self, share_key: ShareKey) -> int:
        """Return the number of entries below a key or prefix."""
        share = self._below(share_key)
        return share.count if share is not None else 0

    def _below(self, share_key: ShareKey) -> Branch[T] | Leaf[T] | None:
        share: Branch[T] | Leaf[T] | None = self.root
        for key in share_key:
            share = share.children.get(key) if isinstance(share, Branch) else None
        return share

    def pick_eviction(
        self, share_key: ShareKey = (), size: int = 1, *, by_size: bool = False, margin: int = 0
    ) -> QuotaEntry[T] | None:
        """Return the free entry to evict for a new one; None if the new one must be refused.

        The evicted entry belongs to a key that holds at least as much as `share_key` will, plus
        `margin`. Without a key it belongs to the largest child of each level.
        """
        node: Branch[T] | Leaf[T] | None = self.root
        for key in share_key:
            assert isinstance(node, Branch)
            mine, most = node.children.get(key), node.largest(by_size=by_size)
            with_newcomer = (size if by_size else 1) + _amount(mine, by_size=by_size)
            if most is not None and _amount(most, by_size=by_size) >= with_newcomer + margin:
                node = most
                break
            node = mine
            if node is None:
                return None
        while isinstance(node, Branch):
            node = node.largest(by_size=by_size)
        return None if node is None else node.oldest.peek()

    def sample(
        self, rng: random.Random, weight_of: Callable[[ShareKey], float] = lambda _path: 1.0
    ) -> QuotaEntry[T] | None:
        """Return a free entry, sampled fairly; None if none has a positive weight.

        `weight_of` scales the probability of a key, 0 to 1. Rejection sampling is exact and its
        expected cost does not depend on the number of keys. After `_TRIES` rejections the weights
        of all keys are summed instead.
        """
        if not self.root.num_free:
            return None
        for _ in range(_TRIES):
            node: Branch[T] | Leaf[T] = self.root
            share_key: list[str] = []
            while isinstance(node, Branch):
                node = node.free_children.sample(rng)
                share_key.append(node.key)
            if rng.random() < clamped(weight_of(tuple(share_key))):
                return node.free.sample(rng)
        leaves = list(_leaves(self.root, (), 1.0))
        chances = [chance * clamped(weight_of(share_key)) for share_key, _, chance in leaves]
        if sum(chances) <= 0.0:
            return None
        return rng.choices([leaf for _, leaf, _ in leaves], chances)[0].free.sample(rng)

    def _count(self, place: QuotaEntry[T], count: int, size: int, free: int) -> None:
        pairs = self._walk(place.share_key)
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

    def _walk(self, share_key: ShareKey) -> list[tuple[Branch[T], Branch[T] | Leaf[T]]]:
        """Return the nodes of a key with their parents, creating missing ones."""
        parent = self.root
        pairs: list[tuple[Branch[T], Branch[T] | Leaf[T]]] = []
        for key in share_key[:-1]:
            child = parent.children.get(key)
            if child is None:
                child = parent.children[key] = Branch(key)
            pairs.append((parent, child))
            assert isinstance(child, Branch)
            parent = child
        leaf = parent.children.get(share_key[-1])
        if leaf is None:
            leaf = parent.children[share_key[-1]] = Leaf(share_key[-1])
        pairs.append((parent, leaf))
        return pairs


def clamped(weight: float) -> float:
    """Return a weight as a probability; NaN counts as 0."""
    return min(weight, 1.0) if weight > 0 else 0.0


def _amount(share: Branch[T] | Leaf[T] | None, *, by_size: bool) -> int:
    if share is None:
        return 0
    return share.size if by_size else share.count


def _leaves(
    node: Branch[T] | Leaf[T], share_key: ShareKey, chance: float
) -> Iterator[tuple[ShareKey, Leaf[T], float]]:
    """Yield each key with free entries, its leaf and the probability of reaching it."""
    if isinstance(node, Leaf):
        yield share_key, node, chance
        return
    for child in node.free_children:
        yield from _leaves(child, (*share_key, child.key), chance / len(node.free_children))
