"""How a setting is declared: its default, its bounds, the commands that read it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

Command = Literal["node", "bootstrap", "trainer", "swarm", "debug"]


def key(default: Any, commands: str, description: str, **bounds: Any) -> Any:
    """Return a field that `commands` (names, with spaces) read."""
    return Field(
        default,
        description=description,
        json_schema_extra={"commands": list(commands.split())},
        **bounds,
    )
