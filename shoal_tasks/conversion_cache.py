"""A cache of conversions, so that an unchanged data file is converted once.

Each process of a node loads its task files, some more than once. The cache key is the data's bytes,
the task file's keys and this program's own code. Only files are cached: data sets on the Hub and
folders have no bytes of their own.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from shoal_base.cache_folder import cache_folder
from shoal_base.files import write_atomically

_ROOMS: Final = (".", "data", "unit_tests")
"""Packages whose code determines the result of a conversion."""

T = TypeVar("T")


def conversion_path(data: bytes, *keys: object) -> Path | None:
    """Return the path of a file's cached conversion; None for a user without a cache folder."""
    stated = "\0".join(map(repr, keys))
    digest = hashlib.sha256(f"{_code_digest()}\0{stated}\0".encode(errors="surrogatepass") + data)
    try:
        return cache_folder("rows") / "made" / f"{digest.hexdigest()}.json"
    except LookupError:
        return None


def read_conversion(path: Path | None, kind: type[T], is_whole: Callable[[T], bool]) -> T | None:
    """Return a cached conversion if the files that it names are unchanged."""
    if path is None:
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        found["path"], found["notes"] = Path(found["path"]), tuple(found["notes"])
        conversion = kind(**found)
        return conversion if is_whole(conversion) else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def write_conversion(path: Path | None, made: Any) -> None:
    """Cache a conversion, a dataclass with `path` and `notes`, if the disk allows it."""
    if path is None:
        return
    fields = {**dataclasses.asdict(made), "path": str(made.path)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(fields).encode())
    except OSError:
        return  # the next process converts the file again


@functools.cache
def _code_digest() -> str:
    here = Path(__file__).parent
    files = [path for room in _ROOMS for path in sorted((here / room).glob("*.py"))]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()
