"""A set of peers with a deterministic order. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from shoal_wire.types import PeerId


class OrderedPeers(frozenset[PeerId]):
    """A set that iterates in sorted order, independent of Python's hash seed."""

    @cached_property
    def _in_order(self) -> tuple[PeerId, ...]:
        return tuple(sorted(super().__iter__()))

    def __iter__(self) -> Iterator[PeerId]:
        return iter(self._in_order)
