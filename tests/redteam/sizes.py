"""Measures a node's memory: every container reachable from it, with entries and bytes.

Containers are found by following the node's object references, so forgotten ones count too.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import (
    BuiltinFunctionType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any

_OURS = ("shoal_p2p.", "shoal_wire.", "shoal_base.", "libp2p.pubsub.", "shoal_tasks.")
_LEAVES = (
    type,
    ModuleType,
    CodeType,
    FrameType,
    GeneratorType,
    CoroutineType,
    BuiltinFunctionType,
    str,
    bytes,
    bytearray,
    int,
    float,
    bool,
    type(None),
)


@dataclass(slots=True)
class Container:
    """One container, with its path from the node."""

    entries: int = 0
    num_bytes: int = 0
    """Bytes of the container and its content, without other containers."""


def measure_containers(roots: Mapping[str, object]) -> dict[str, Container]:
    """Return what is reachable from `roots`, by path; entries of like containers are summed."""
    found: dict[str, Container] = {}
    seen: set[int] = set()
    todo = deque((name, root) for name, root in roots.items())
    while todo:
        place, item = todo.popleft()
        if id(item) in seen:
            continue
        seen.add(id(item))
        held = found.setdefault(place, Container())
        held.num_bytes += sys.getsizeof(item, 64)
        if isinstance(item, _LEAVES):
            continue
        if isinstance(item, (dict, list, tuple, set, frozenset, deque)):
            held.entries += len(item)
            todo.extend((place, inner) for inner in _inside(item))
        todo.extend((f"{place}.{name}", inner) for name, inner in _attributes(item))
    return found


def _inside(item: Any) -> Iterator[object]:
    if isinstance(item, dict):
        yield from item.keys()
        yield from item.values()
    else:
        yield from item


def _attributes(item: Any) -> Iterator[tuple[str, object]]:
    if isinstance(item, MethodType):
        yield "()", item.__self__
        return
    if isinstance(item, FunctionType):
        for cell in item.__closure__ or ():
            try:
                yield "()", cell.cell_contents
            except ValueError:  # not bound yet
                continue
        return
    if not type(item).__module__.startswith(_OURS):
        return
    yield from vars(item).items() if hasattr(item, "__dict__") else ()
    for base in type(item).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name != "__weakref__" and hasattr(item, name):
                yield name, getattr(item, name)
