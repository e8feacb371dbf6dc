"""Declares a setting: its default, the commands that read it, its range."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.fields import FieldInfo

from shoal_base.ranges import Range

Command = Literal["node", "bootstrap", "trainer", "swarm", "debug"]


def checked(check: Callable[[Any], object]) -> AfterValidator:
    """Return a validator that refuses each value for which `check` raises ValueError."""

    def unchanged(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(unchanged)


def auto_or_number(most: int) -> BeforeValidator:
    """Return a validator for `auto` or a whole number from 0 to `most`; it returns their text."""

    def read(value: object) -> str:
        text = "" if isinstance(value, bool) else str(value)
        if text == "auto":
            return text
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= most):
            raise ValueError(f"must be auto or a whole number from 0 to {most}")
        return str(int(text))

    return BeforeValidator(read)


_SIZE: Final = re.compile(r"(\d{1,18}(?:\.\d{1,9})?) ?([kmgt]i?)?b?", re.IGNORECASE | re.ASCII)
_UNITS: Final = {
    "": 1,
    **{name: 1000**power for power, name in enumerate("kmgt", 1)},
    **{f"{name}i": 1024**power for power, name in enumerate("kmgt", 1)},
}


def read_size(value: object) -> object:
    """Return a size as a number of bytes: `256MB` is 256,000,000 and `256MiB` is 268,435,456.

    A value that is no text is left to the check of its type. Raises ValueError for another text,
    and for `256Mb`, which means megabits.
    """
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value.strip())
    if found is None:
        raise ValueError("must be a size, such as 256MB, 1.5GiB or a number of bytes")
    unit = found[2] or ""
    if not unit.islower() and value.strip().endswith("b"):
        raise ValueError(f"is in bits: write {value.strip()[:-1]}B for bytes")
    return round(Decimal(found[1]) * _UNITS[unit.lower()])


def size_text(num_bytes: int) -> str:
    """Return a size as `read_size` reads it, in the largest unit that it is a whole number of."""
    units = sorted(_UNITS.items(), key=lambda row: -row[1])
    unit, factor = next((u, f) for u, f in units if (num_bytes and num_bytes % f == 0) or f == 1)
    return f"{num_bytes // factor}{unit[:1].upper()}{unit[1:]}{'B' * bool(unit)}"


Size = Annotated[int, BeforeValidator(read_size)]
"""Type of a setting that is a number of bytes."""
SIZES: Final = ("buffer_bytes", "archive_bytes")
"""Settings of that type."""


def key(
    default: Any,
    commands: str,
    description: str,
    *,
    off: str | None = None,
    instead: Mapping[str, str] | None = None,
) -> Any:
    """Return a field that `commands` (names, with spaces) read.

    `off` is the value that ``--no-…`` stands for, of a key that is no switch. `instead` is the
    description in the help of a command for which the key means something else. It is empty where
    the key does nothing: the command takes the flag, and its help leaves it out.
    """
    return Field(
        default,
        description=description,
        json_schema_extra={
            "commands": list(commands.split()),
            "off": off,
            "instead": dict(instead or {}),
        },
    )


def range_of(field: FieldInfo) -> Range | None:
    """Return the range of a setting that is a number; None for another."""
    return next((one for one in field.metadata if isinstance(one, Range)), None)


def rule_of(field: FieldInfo) -> str:
    """Return what a setting that is a number must be; empty for another."""
    allowed = range_of(field)
    if allowed is None:
        return ""
    if allowed.unit == "bytes":
        least, most = int(allowed.least), int(allowed.most)
        return f"must be a size from {size_text(least)} to {size_text(most)}"
    return allowed.rule(field.annotation)


def _of(commands: str) -> Callable[..., Any]:
    def of(default: Any, description: str, **more: Any) -> Any:
        return key(default, commands, description, **more)

    return of


of_peers: Final = _of("node bootstrap")
"""Returns a key of every peer that takes part in a network."""
of_swarms: Final = _of("node bootstrap swarm")
"""Returns a key that `shoal swarm` hands on to the peers that it starts."""
of_trainers: Final = _of("node trainer swarm")
"""Returns a key of the trainer, which its node and `shoal swarm` hand on."""
