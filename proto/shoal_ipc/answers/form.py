"""Writes an answer as JSON, and reads it in a program of any version. Pure.

    node: dataclass ──to_json──▶ socket, file ──read──▶ the same: debug, watch, page, metrics

Every field has a default, so that an older node's answer can be read; unknown fields are skipped,
so that a newer node's can. A value of another type counts as missing. What was read is safe to
show: control characters are escaped, and no text is longer than its limit.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
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
"""A name shown next to other names: names that differ are shown differently."""
Lines = Annotated[str, "lines"]
"""A text that may have line breaks."""

MAX_TEXT_CHARS: Final = 64 * 1024
"""Longest multi-line text that is shown, in characters: twice a swarm's longest completion."""
MAX_NAME_CHARS: Final = 4096
"""Longest single line that is shown, in characters: that of an error may be long."""
MAX_ROWS: Final = 65_536
"""Rows of a list that are read; no answer of a node has more."""
_CUT: Final = "… (cut)"
_MISSING: Final = object()


@dataclass(frozen=True, kw_only=True)  # no slots: it is mixed into types that have some
class Versioned:
    """An answer with the version of its keys. Within a version, keys are only added."""

    schema_version: Literal[1] = 1


def absent(**about: Any) -> Any:
    """Return a field that only some peers have: None, and left unwritten, in all others."""
    return field(default=None, metadata={"absent": True, **about})


def measured(metric: str, help: str, **how: Any) -> Any:
    """Return a field that is exported to Prometheus as `metric`, with the HELP text `help`.

    `how` has the `default` and, for an answer within this one, the `key` of the exported field.
    """
    key = how.pop("key", None)
    return field(
        **(how or {"default": None}), metadata={"metric": metric, "help": help, "key": key}
    )


def labelled(label: str, by: str = "", **how: Any) -> Any:
    """Return a field of rows whose metrics have a label: the row's field `by`, or else its key."""
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
    """Parse another process's answer; without `shown`, texts are not escaped."""
    given = value if isinstance(value, Mapping) else {}
    known = ((name, hint) for name, hint in _hints(cast("Hashable", kind)).items() if name in given)
    found = {name: _value(hint, given[name], shown) for name, hint in known}
    return kind(**{name: one for name, one in found.items() if one is not _MISSING})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {one.name: hints[one.name] for one in fields(kind)}


def _value(hint: Any, value: Any, shown: bool) -> Any:
    """Return a value parsed as its type, or _MISSING."""
    if hint is str:
        return _text(value, "line" if shown else "")
    if hint in (int, float, bool):
        return _number(hint, value)
    origin, inside = _form(hint)
    if origin in (Union, UnionType):
        (only,) = (one for one in inside if one is not NoneType)
        return None if value is None else _value(only, value, shown)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return _MISSING
        rows = (_value(inside[0], one, shown) for one in value[:MAX_ROWS])
        return tuple(one for one in rows if one is not _MISSING)
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            return _MISSING
        kind = "name" if shown else ""
        named = {_text(key, kind): _value(inside[1], one, shown) for key, one in value.items()}
        return {key: one for key, one in named.items() if one is not _MISSING}
    if origin is Literal:
        return value if value in inside and type(value) is not bool else _MISSING
    if origin is Annotated:
        return _text(value, inside[1] if shown else "")
    return read(hint, value, shown=shown) if isinstance(value, Mapping) else _MISSING


@cache
def _form(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


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


def _number(kind: type, value: Any) -> Any:
    if isinstance(value, bool) or kind is bool:
        return value if isinstance(value, bool) and kind is bool else _MISSING
    try:
        is_number = isinstance(value, int | float) and math.isfinite(value)
        return kind(float(value)) if is_number else _MISSING
    except OverflowError:  # an integer beyond every float
        return _MISSING
