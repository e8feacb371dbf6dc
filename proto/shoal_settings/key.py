"""How a setting is declared: its default, its bounds, the commands that read it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

Command = Literal["node", "bootstrap", "trainer", "swarm", "debug"]


def key(
    default: Any, commands: str, description: str, *, off: str | None = None, **bounds: Any
) -> Any:
    """Return a field that `commands` (names, with spaces) read.

    `off` is the value that ``--no-…`` stands for, of a key that is no switch.
    """
    return Field(
        default,
        description=description,
        json_schema_extra={"commands": list(commands.split()), "off": off},
        **bounds,
    )
