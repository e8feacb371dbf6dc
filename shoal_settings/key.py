"""Declares a setting: its default, its bounds, the commands that read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

Command = Literal["node", "bootstrap", "trainer", "swarm", "debug"]


def checked(check: Callable[[Any], object]) -> AfterValidator:
    """Return what refuses each value for which `check` raises ValueError."""

    def unchanged(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(unchanged)


def auto_or_number(most: int) -> BeforeValidator:
    """Return what takes `auto` or a whole number from 0 to `most`, as their text."""

    def read(value: object) -> str:
        text = "" if isinstance(value, bool) else str(value)
        if text == "auto":
            return text
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= most):
            raise ValueError(f"must be auto or a whole number from 0 to {most}")
        return str(int(text))

    return BeforeValidator(read)


def key(
    default: Any,
    commands: str,
    description: str,
    *,
    off: str | None = None,
    instead: Mapping[str, str] | None = None,
    **bounds: Any,
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
        **bounds,
    )


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
