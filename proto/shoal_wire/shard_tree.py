"""The shards of a self-dividing swarm: a binary tree, numbered from its root. Pure.

            0               depth 0: all publishers
         1     2            depth 1: by the first bit of the hash of a publisher's id
        3 4   5 6           depth 2: by the first two …

The children of `n` are `2n + 1` (the next bit is 0) and `2n + 2`. A swarm of a fixed number of
shards has no tree: each of its shards stands alone.
"""

from __future__ import annotations

from functools import lru_cache

from shoal_wire.limits import MAX_SHARDS

MAX_DEPTH = MAX_SHARDS.bit_length() - 2
"""Depth of the smallest shards: 2,048 of them, and 4,095 numbers in all."""


def depth_of(shard: int) -> int:
    """Return how many bits of the hash the publishers of `shard` have in common."""
    return (shard + 1).bit_length() - 1


def first_of(depth: int) -> int:
    """Return the number of the first shard of a depth."""
    return (1 << depth) - 1


def parent_of(shard: int) -> int:
    """Return the parent of `shard`; the root's is the root."""
    return max(0, (shard - 1) // 2)


def lineage(shard: int) -> tuple[int, ...]:
    """Return `shard` and its ancestors, the root last."""
    return tuple(((shard + 1) >> level) - 1 for level in range(depth_of(shard) + 1))


@lru_cache(maxsize=1 << MAX_DEPTH)
def path_to(bits: int) -> tuple[int, ...]:
    """Return the shards, the root first, of a hash whose first `MAX_DEPTH` bits are `bits`."""
    return tuple(first_of(d) + (bits >> (MAX_DEPTH - d)) for d in range(MAX_DEPTH + 1))
