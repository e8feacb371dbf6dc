"""Splits groups into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from shoal_wire.types import RolloutGroup

BUNDLE_BYTES: Final = 48 * 1024
"""Size limit of a batch: small ones cost a message each, large ones a whole copy at each hop."""


def bundles(
    groups: Iterable[RolloutGroup], num_bytes: Callable[[RolloutGroup], int]
) -> Iterator[tuple[RolloutGroup, ...]]:
    """Yield the groups, in order, in batches of at most BUNDLE_BYTES; a larger group is alone."""
    batch: list[RolloutGroup] = []
    size = 0
    for group in groups:
        group_size = num_bytes(group)
        if batch and size + group_size > BUNDLE_BYTES:
            yield tuple(batch)
            batch, size = [], 0
        batch.append(group)
        size += group_size
    if batch:
        yield tuple(batch)
