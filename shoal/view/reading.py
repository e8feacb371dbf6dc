"""Values out of a node's answers, which may be of another version: what is missing is nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from shoal_base.visible import visible, visible_name


def part(of: Any, key: str) -> Mapping[str, Any]:
    """Return an object within an object; empty where there is none."""
    found = of.get(key) if isinstance(of, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def rows(of: Any, key: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a list within an object."""
    found = of.get(key) if isinstance(of, Mapping) else None
    for one in found if isinstance(found, list | tuple) else ():
        if isinstance(one, Mapping):
            yield one


def real(of: Mapping[str, Any], key: str) -> float | None:
    """Return a finite number, or None."""
    found = of.get(key)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return float(found) if is_number and math.isfinite(found) else None  # type: ignore[arg-type]


def whole(of: Mapping[str, Any], key: str) -> int:
    """Return a count; 0 where there is none."""
    found = real(of, key)
    return 0 if found is None else int(found)


def text(of: Mapping[str, Any], key: str) -> str:
    """Return a sentence, in which nothing acts."""
    found = of.get(key)
    return visible(found) if isinstance(found, str) else ""


def name(of: Mapping[str, Any], key: str) -> str:
    """Return a name, which stands beside others; see `visible_name`."""
    found = of.get(key)
    return visible_name(found) if isinstance(found, str) else ""
