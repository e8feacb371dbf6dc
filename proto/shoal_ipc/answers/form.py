"""Writes an answer as JSON, and reads it in a program of any version. Pure.

    node: dataclass ──to_json──▶ socket, file ──read──▶ the same: debug, watch, page, metrics

Every field has a default, so that an answer of an older node can be read, and a field that is not
known is passed over, so that a newer node's can. A value of another type counts as missing. What
is read is safe to show: no character of it acts, and no text is longer than its bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from shoal_base.visible import visible, visible_lines, visible_name

A = TypeVar("A")
Name = Annotated[str, "name"]
"""A name that stands beside others: names that differ are shown differently."""
Lines = Annotated[str, "lines"]
"""A text that may have line breaks."""

MAX_TEXT_CHARS: Final = 64 * 1024
"""Longest text with lines that is shown, in characters: twice the longest completion of a swarm."""
MAX_NAME_CHARS: Final = 4096
"""Longest other text that is shown, in characters: a line of an error may be long."""
MAX_ROWS: Final = 65_536
"""Rows of a list that are read: a node has fewer, whatever it is asked."""
_CUT: Final = "… (cut)"
_MISSING: Final = object()


@dataclass(frozen=True, kw_only=True)  # no slots: it is mixed into types that have some
class Versioned:
    """An answer with the version of its keys: of the same version none goes, some may come."""

    schema_version: Literal[1] = 1


def absent(**about: Any) -> Any:
    """Return a field that only some peers have: it is None, and not written, where they do not."""
    return field(default=None, metadata={"absent": True, **about})


def measured(metric: str, says: str, **how: Any) -> Any:
    """Return a field that Prometheus reads under the name `metric`; `says` is its help.

    `how` has the `default`, and for a mapping of numbers the `key` that is meant.
    """
    key = how.pop("key", None)
    return field(
        **(how or {"default": None}), metadata={"metric": metric, "says": says, "key": key}
    )


def labelled(label: str, by: str = "", **how: Any) -> Any:
    """Return a field of rows whose metrics have a label: the row's field `by`, else its key."""
    return field(**(how or {"default": ()}), metadata={"label": label, "by": by})


def to_json(answer: Any) -> Any:
    """Return an answer as JSON values."""
    if is_dataclass(answer):
        return {
            one.name: to_json(value)
            for one in fields(answer)
            if (value := getattr(answer, one.name)) is not None or not one.metadata.get("absent")
        }
    if isinstance(answer, Mapping):
        return {str(key): to_json(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [to_json(value) for value in answer]
    return str(answer) if isinstance(answer, str) else answer


def read(kind: type[A], value: object, *, shown: bool = True) -> A:
    """Return what another process has answered; without `shown` its texts stay as they are."""
    given = value if isinstance(value, Mapping) else {}
    found = {}
    for name, take in _readers(cast("Hashable", kind)).items():
        if name in given and (one := take(given[name], shown)) is not _MISSING:
            found[name] = one
    return kind(**found)


_Take = Callable[[Any, bool], Any]
"""Returns a value as it is read, or _MISSING."""


@cache
def _readers(kind: Any) -> dict[str, _Take]:
    hints = get_type_hints(kind, include_extras=True)
    return {one.name: _taker(hints[one.name]) for one in fields(kind)}


def _taker(hint: Any) -> _Take:
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        (only,) = (_taker(one) for one in inside if one is not NoneType)
        return lambda value, shown: None if value is None else only(value, shown)
    if origin is tuple:
        return _rows(_taker(inside[0]))
    if origin in (dict, Mapping):
        return _mapping(_taker(inside[1]))
    if origin is Literal:
        return lambda value, _: value if value in inside and type(value) is not bool else _MISSING
    if origin is Annotated:
        return lambda value, shown: _text(value, inside[1] if shown else "")
    if is_dataclass(hint):
        return lambda value, shown: (
            read(cast("type[Any]", hint), value, shown=shown)
            if isinstance(value, Mapping)
            else _MISSING
        )
    return {str: _line, bool: _truth, int: _whole, float: _real}[hint]


def _rows(take: _Take) -> _Take:
    def rows(value: Any, shown: bool) -> Any:
        if not isinstance(value, list | tuple):
            return _MISSING
        found = (take(one, shown) for one in value[:MAX_ROWS])
        return tuple(one for one in found if one is not _MISSING)

    return rows


def _mapping(take: _Take) -> _Take:
    def mapping(value: Any, shown: bool) -> Any:
        if not isinstance(value, Mapping):
            return _MISSING
        found = {
            _text(key, "name" if shown else ""): take(one, shown) for key, one in value.items()
        }
        return {key: one for key, one in found.items() if one is not _MISSING}

    return mapping


def _line(value: Any, shown: bool) -> Any:
    return _text(value, "line" if shown else "")


def _text(value: Any, kind: str) -> Any:
    if not isinstance(value, str):
        return _MISSING
    most = MAX_TEXT_CHARS if kind == "lines" else MAX_NAME_CHARS
    if not kind or (value.isascii() and value.isalnum() and len(value) <= most):
        return value
    cut = _CUT if len(value) > most else ""
    if kind == "lines":
        return "\n".join(visible_lines(value[:most])) + cut
    return (visible_name if kind == "name" else visible)(value[:most]) + cut


def _truth(value: Any, _shown: bool) -> Any:
    return value if isinstance(value, bool) else _MISSING


def _real(value: Any, _shown: bool) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return float(value) if is_number and math.isfinite(value) else _MISSING
    except OverflowError:  # an integer beyond every float
        return _MISSING


def _whole(value: Any, shown: bool) -> Any:
    found = _real(value, shown)
    return found if found is _MISSING else int(value)
