"""Every class of settings or limits states the ranges of its fields, and checks them."""

from __future__ import annotations

import ast
import importlib
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import ValidationError

from shoal_base.ranges import Range, Ranged, Seconds, hints_of
from shoal_p2p.fair.buckets import Rate
from shoal_p2p.net.swarm import SwarmSettings
from shoal_settings.key import range_of, rule_of
from shoal_settings.node_settings import NodeSettings
from shoal_settings.schema import Settings

ROOT = Path(__file__).parents[2]
ROOMS = ("bootstrap", "lab", "p2p", "policy", "proto", "shoal", "shoal_*")
NUM_RANDOM = 8
"""Values tried inside each range, in addition to those at its bounds and beyond them."""


def found() -> Iterator[type]:
    """Every class of the product whose name ends in Settings or Limits, and `Rate`."""
    yield Rate
    for path in (path for room in ROOMS for top in ROOT.glob(room) for path in top.rglob("*.py")):
        text = path.read_text()
        if "Settings" not in text and "Limits" not in text:
            continue
        names = [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
        for name in names:
            if name.endswith(("Settings", "Limits")):
                yield getattr(_imported(path), name)


def _imported(path: Path) -> Any:
    parts = path.relative_to(ROOT).with_suffix("").parts
    first = next(
        k for k in range(len(parts)) if (ROOT.joinpath(*parts[: k + 1], "__init__.py")).exists()
    )
    return importlib.import_module(".".join(parts[first:]))


CLASSES = tuple(found())
RANGED = tuple(one for one in CLASSES if issubclass(one, Ranged))


def unstated(hint: Any, before: list[str]) -> str | None:
    """Return what a field's declaration lacks; None if it states type, unit and range.

    `before` are the fields declared before it, which its bounds may name.
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Union:
        return unstated(parts[0], before)
    if origin is Annotated:
        kind, note = parts
        if isinstance(note, Range):
            names = [bound for bound in (note.least, note.most) if isinstance(bound, str)]
            return next(
                (f"{name} is not declared before it" for name in names if name not in before), None
            )
        return None if issubclass(kind, Ranged) and isinstance(note, str) else "a unit"
    if origin is Literal or hint is bool:
        return None
    if isinstance(hint, type) and issubclass(hint, Ranged):
        return "a unit: Annotated[Rate, …]" if hint is Rate else None
    return "a range and a unit: Annotated[…, Range(…)]"


def test_the_walk_finds_the_classes_of_every_package() -> None:
    rooms = {one.__module__.split(".")[0] for one in CLASSES}
    assert rooms == {"shoal_lab", "shoal_p2p", "shoal_settings", "shoal_tasks"}
    assert len(CLASSES) >= 30


@pytest.mark.parametrize("one", CLASSES, ids=lambda one: one.__name__)
def test_each_field_states_its_range_and_unit(one: type) -> None:
    if issubclass(one, NodeSettings):
        lacks = {
            name: "a range and a unit"
            for name, field in one.model_fields.items()
            if field.annotation in (int, float) and range_of(field) is None
        }
    else:
        assert issubclass(one, Ranged), "its base class must be shoal_base.ranges.Ranged"
        hints = hints_of(one)
        assert list(hints) == [field.name for field in fields(one)]  # type: ignore[arg-type]
        names = list(hints)
        lacks = {
            name: lack
            for name, hint in hints.items()
            if (lack := unstated(hint, names[: names.index(name)]))
        }
    assert not lacks


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare(Ranged):
    number: float = 1.0
    rate: Rate
    later: Annotated[int, Range("steps", 0, "most")] = 0
    most: int = 1
    text: str = ""


def test_a_declaration_without_a_range_is_seen() -> None:
    assert [name for name, hint in hints_of(Bare).items() if unstated(hint, [])] == list(
        hints_of(Bare)
    )


def _range_of_hint(hint: Any) -> tuple[Any, Range] | None:
    """Return the type and the range of a field; None if it has no range of its own."""
    if get_origin(hint) is Union:
        hint = get_args(hint)[0]
    if get_origin(hint) is Annotated and isinstance(get_args(hint)[1], Range):
        kind, note = get_args(hint)
        return kind, note
    return None


def _middle(hint: Any) -> Any:
    """Return a value for a field without a default."""
    ranged = _range_of_hint(hint)
    if ranged is None:
        return hint()
    kind, note = ranged
    return kind(note.most)


def example(one: type[Ranged]) -> dict[str, Any]:
    """Return values of all fields that are accepted."""

    def value(field: Field[Any]) -> Any:
        if field.default is not MISSING:
            return field.default
        if field.default_factory is not MISSING:
            return field.default_factory()
        return _middle(hints_of(one)[field.name])

    return {field.name: value(field) for field in fields(one)}  # type: ignore[arg-type]


def _of_length(kind: Any, length: int) -> Any:
    items = [f"{number}" for number in range(length)]
    made = {
        bytes: bytes(length),
        str: "a" * length,
        tuple: tuple(items),
        frozenset: frozenset(items),
    }
    return made.get(get_origin(kind) or kind, dict.fromkeys(items, ""))


def tried(kind: Any, note: Range, owner: object, rng: random.Random) -> Iterator[tuple[Any, bool]]:
    """Values in, at and beyond the bounds of a field, each with whether it is accepted."""
    least: Any
    most: Any
    least, most = (
        getattr(owner, bound) if isinstance(bound, str) else bound
        for bound in (note.least, note.most)
    )
    yield None, False
    if kind not in (int, float):
        lengths = {least: True, most: True, most + 1: False, least - 1: False}
        for length, is_right in lengths.items():
            if length >= 0:
                yield _of_length(kind, length), is_right
        return
    step = 1 if kind is int else max(abs(least), abs(most)) * 1e-9
    yield from [
        (least, not note.is_open),
        (most, True),
        (least - step, False),
        (most + step, False),
    ]
    for value in (math.nan, math.inf, -math.inf, True, False, "1", b"1", [1], 10**400, -(10**400)):
        yield value, False
    if kind is int:
        yield float(most), False
        yield from ((rng.randint(least, most), True) for _ in range(NUM_RANDOM))
    else:
        yield from ((rng.uniform(least + step, most), True) for _ in range(NUM_RANDOM))


def _cases(one: type[Ranged]) -> Iterator[tuple[str, Any, Range, Any, bool]]:
    owner, rng = one(**example(one)), random.Random(one.__name__)
    for name, hint in hints_of(one).items():
        if ranged := _range_of_hint(hint):
            for value, is_right in tried(*ranged, owner, rng):
                optional = value is None and get_origin(hint) is Union
                yield name, *ranged, value, is_right or optional


@pytest.mark.parametrize("one", RANGED, ids=lambda one: one.__name__)
def test_values_in_at_and_beyond_each_bound(one: type[Ranged]) -> None:
    """All classes together are some 3,700 cases, and the settings another 700."""
    values = example(one)
    owner = one(**values)
    for name, kind, note, value, is_right in _cases(one):
        try:
            one(**{**values, name: value})
        except ValueError as error:
            line, rule = str(error), note.rule(kind, owner)
            if is_right:  # then it is the bound of another field
                assert f"{name} (" in line, (name, value)
                continue
            shown = f"{len(value)} bytes" if isinstance(value, bytes) else f"{value!r:.80}"
            assert line == f"{one.__name__}.{name} = {shown}: {rule}"
            assert "\n" not in line
        else:
            assert is_right, (name, value)


@pytest.mark.parametrize("one", RANGED, ids=lambda one: one.__name__)
def test_values_of_another_type_than_the_field_are_refused(one: type[Ranged]) -> None:
    values = example(one)
    for name, hint in hints_of(one).items():
        if _range_of_hint(hint) is None:
            with pytest.raises(ValueError, match=rf"^{one.__name__}\.{name} = \[\]: must be "):
                one(**{**values, name: []})


NUMBERS = {name: field for name, field in Settings.model_fields.items() if range_of(field)}


@pytest.mark.parametrize("name", NUMBERS)
def test_values_in_at_and_beyond_each_bound_of_a_setting(name: str) -> None:
    field = NUMBERS[name]
    note, kind = range_of(field), field.annotation
    assert note is not None
    for value, is_right in tried(kind, note, None, random.Random(name)):
        if isinstance(value, str | bytes) or (kind is int and value == float(note.most)):
            continue  # settings are read from text, and 3.0 of a TOML file is 3
        others: Mapping[str, Any] = {} if name in ("local", "external") else {"local": 1}
        try:
            Settings(**{**others, name: value})
        except ValidationError as error:
            first = error.errors()[0]
            is_own = first["type"] == "value_error"
            assert not is_right, (name, value)
            assert not is_own or first["msg"] == f"Value error, {rule_of(field)}"
        else:
            assert is_right, (name, value)


def test_a_key_is_not_in_the_error() -> None:
    with pytest.raises(
        ValueError, match=r"^SwarmSettings\.key = 6 bytes: must have a length from 32 "
    ):
        SwarmSettings(key=b"secret")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses(Ranged):
    first_s: Seconds = 1.0
    tries: Annotated[int, Range("tries", 1, 100)] = 5
    kind: Literal["slow", "fast"] = "slow"


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"first_s": 0}, "first_s = 0: must be a number above 0, at most 31,536,000 s"),
        ({"tries": 0}, "tries = 0: must be a whole number from 1 to 100 tries"),
        ({"tries": "x" * 99}, f"tries = '{'x' * 79}: must be a whole number from 1 to 100 tries"),
        ({"kind": "odd"}, "kind = 'odd': must be one of slow, fast"),
    ],
)
def test_the_line(values: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=r"^Pauses\.") as caught:
        Pauses(**values)
    assert str(caught.value) == f"Pauses.{line}"
