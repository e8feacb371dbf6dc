"""The replay buffer's room as a tree of shares, and which group of a full buffer has to go. Pure.

Names cost nothing, and right answers neither, so nothing is granted to a name, nor to who is right:
room goes by network first, and by name last.

    all ── a network ─┬─ signed by who brought it ── connection ── publisher
                      └─ passed on                ── connection ── publisher

Every level shares alike. What one does not use the others may, until it is wanted back.  On each
level the child with most loses, counting the newcomer; so who floods displaces only what came by
its own connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from p2p.buffer.containers import DrawSet, LazyHeap, OrderHeap
from p2p.buffer.types import Entry, Slot

_NOTED_CHANGES = 64
"""Children that may have changed since the largest was asked for, beside twice as many as are."""

Path = tuple[str, str, str, str]
Measure = Callable[["Share"], int]


def path_of(entry: Entry) -> Path:
    """Return the shares that a group takes of, the widest first."""
    side = "signed" if entry.by_publisher else "passed on"
    return (entry.network, side, entry.connection, str(entry.group.publisher))


def source_of(entry: Entry) -> str:
    """Return the network by which a new name is judged: that of a peer that signed it itself.

    Empty for what is passed on. A peer passes on all that is valid, also what teaches nothing, and
    that is no fault of the others that are heard through it.
    """
    return entry.network if entry.by_publisher else ""


def groups_of(share: Share) -> int:
    """Return what a share holds, in groups."""
    return share.groups


def bytes_of(share: Share) -> int:
    """Return what a share holds, in bytes."""
    return share.bytes


class Share:
    """A node of the tree. Compared by identity."""

    __slots__ = (
        "_by_bytes",
        "_by_groups",
        "_changed",
        "bytes",
        "children",
        "groups",
        "key",
        "num_ready",
        "oldest",
        "ready_children",
        "ready_slots",
        "source",
    )

    def __init__(self, key: str, source: str = "") -> None:
        self.key = key
        self.source = source
        """The source of the groups at a leaf, as `source_of` names it."""
        self.groups = 0
        self.bytes = 0
        self.num_ready = 0
        self.children: dict[str, Share] = {}
        self.ready_children: DrawSet[Share] = DrawSet()
        self.ready_slots: DrawSet[Slot] | None = None
        """Of a publisher, which has no children; `oldest` as well."""
        self.oldest: OrderHeap[Slot] | None = None
        # Which child has most. Changes are only noted until somebody asks, which a buffer that is
        # not full never does.
        self._by_groups: LazyHeap[Share] | None = None
        self._by_bytes: LazyHeap[Share] | None = None
        self._changed: dict[Share, None] = {}

    def changed(self, child: Share) -> None:
        """Note what a child holds by now."""
        if child.num_ready:
            self.ready_children.add(child)
        else:
            self.ready_children.discard(child)
        self._changed[child] = None
        if len(self._changed) > 2 * len(self.children) + _NOTED_CHANGES:
            self._catch_up()

    def forget(self, child: Share) -> None:
        """Leave out a child that holds nothing any more."""
        del self.children[child.key]
        self._changed.pop(child, None)
        if self._by_groups is not None and self._by_bytes is not None:
            self._by_groups.discard(child)
            self._by_bytes.discard(child)

    def largest(self, measure: Measure) -> Share | None:
        """Return the child with ready groups that has most."""
        by_groups, by_bytes = self._catch_up()
        return (by_groups if measure is groups_of else by_bytes).peek()

    def _catch_up(self) -> tuple[LazyHeap[Share], LazyHeap[Share]]:
        if self._by_groups is None or self._by_bytes is None:
            self._by_groups, self._by_bytes = LazyHeap(), LazyHeap()
        for child in self._changed:
            if child.num_ready:
                self._by_groups.put(child, -child.groups)
                self._by_bytes.put(child, -child.bytes)
            else:
                self._by_groups.discard(child)
                self._by_bytes.discard(child)
        self._changed.clear()
        return self._by_groups, self._by_bytes


class ShareTree:
    """All resident groups by share. Calls are O(log n) amortised."""

    def __init__(self, live: dict[int, Slot]) -> None:
        """`live` has every ready slot by its arrival; the caller keeps it."""
        self._live = live
        self.root = Share("")

    def add(self, slot: Slot) -> None:
        """Add a resident slot, ready or not, under its path."""
        size = slot.entry.num_bytes
        self._walk(slot, groups=1, num_bytes=size, ready=int(slot.ready))
        if slot.ready:
            self._put(slot)

    def remove(self, slot: Slot) -> None:
        """Remove a resident slot."""
        if slot.ready:
            self._pull(slot)
        size = slot.entry.num_bytes
        self._walk(slot, groups=-1, num_bytes=-size, ready=-int(slot.ready))

    def made_ready(self, slot: Slot) -> None:
        """Let a resident slot be drawn and displaced (again)."""
        self._walk(slot, groups=0, num_bytes=0, ready=1)
        self._put(slot)

    def taken(self, slot: Slot) -> None:
        """Take a resident slot out of draws and of what can be displaced."""
        self._pull(slot)
        self._walk(slot, groups=0, num_bytes=0, ready=-1)

    def victim(self, entry: Entry, *, by_bytes: bool) -> Slot | None:
        """Return what must go for a newcomer; None: it must not come."""
        measure, cost = (bytes_of, entry.num_bytes) if by_bytes else (groups_of, 1)
        node: Share | None = self.root
        on_path = True
        for key in path_of(entry):
            if node is None or not on_path:
                break
            mine = node.children.get(key)
            fattest = node.largest(measure)
            with_newcomer = cost + (measure(mine) if mine is not None else 0)
            on_path = fattest is None or measure(fattest) < with_newcomer
            node = mine if on_path else fattest
        return None if node is None else self._oldest_below(node, measure)

    def _oldest_below(self, node: Share, measure: Measure) -> Slot | None:
        while node.oldest is None:
            largest = node.largest(measure)
            if largest is None:
                return None
            node = largest
        return node.oldest.peek()

    def _nodes(self, slot: Slot) -> Iterator[tuple[Share, Share]]:
        parent = self.root
        for key in path_of(slot.entry):
            child = parent.children.get(key)
            if child is None:
                child = parent.children[key] = Share(key, source_of(slot.entry))
            yield parent, child
            parent = child

    def _walk(self, slot: Slot, *, groups: int, num_bytes: int, ready: int) -> None:
        pairs = list(self._nodes(slot))
        leaf = pairs[-1][1]
        if leaf.oldest is None:
            leaf.ready_slots, leaf.oldest = DrawSet(), OrderHeap(self._live)
        for parent, child in pairs:
            was_ready = child.num_ready > 0
            child.groups += groups
            child.bytes += num_bytes
            child.num_ready += ready
            if groups or was_ready != (child.num_ready > 0):
                parent.changed(child)
        if groups < 0:
            for parent, child in reversed(pairs):
                if not child.groups:
                    parent.forget(child)

    def _put(self, slot: Slot) -> None:
        leaf = self._leaf(slot)
        assert leaf.oldest is not None
        assert leaf.ready_slots is not None
        leaf.ready_slots.add(slot)
        leaf.oldest.push(slot.entry.received_at, slot.arrival, len(leaf.ready_slots))

    def _pull(self, slot: Slot) -> None:
        leaf = self._leaf(slot)
        assert leaf.ready_slots is not None
        leaf.ready_slots.discard(slot)

    def _leaf(self, slot: Slot) -> Share:
        node = self.root
        for key in path_of(slot.entry):
            node = node.children[key]
        return node
