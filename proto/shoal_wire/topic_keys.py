"""Topic keys: which families of a swarm are gossiped on one topic. Pure.

    key 0                              families that every node can make: those of no file or server
    key 1 to 2**48 - 1                 one family of rows or of an environment, by its config digest

A node subscribes to the topics of the families that it accepted, and pays for no others. The number
of a shard has both: 4096 times the key, and the shard's number in the tree of that key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shoal_wire.digests import sha256
from shoal_wire.limits import MAX_SHARDS

COMMON_KEY: Final = 0

_KEY_BYTES: Final = 6
_GENERATORS: Final = frozenset({"rows", "environment"})
_BUILTIN: Final = "own_game"
"""The verifier of environments that every node has."""


def key_of_digest(config_digest: bytes) -> int:
    """Return the key of a family of its own topic."""
    return int.from_bytes(config_digest[:_KEY_BYTES], "big")


def family_key(generator: str, verifier: str, config_json: str) -> int:
    """Return the topic key of a family."""
    if generator not in _GENERATORS or verifier == _BUILTIN:
        return COMMON_KEY
    return key_of_digest(sha256(f"{generator}\0{config_json}".encode()))


def numbered(key: int, shards: Iterable[int]) -> tuple[int, ...]:
    """Return the numbers, with their key, of shards of one tree."""
    return tuple(key * MAX_SHARDS + shard for shard in shards)


def split_number(shard: int) -> tuple[int, int]:
    """Return the key and the number in its tree of a shard."""
    return divmod(shard, MAX_SHARDS)
