"""Settings that record which of them are read."""

from __future__ import annotations

from typing import Any

from shoal_settings.schema import Settings

Read = set[str]
"""The names of the settings read so far."""


def reading(known: Settings) -> tuple[Settings, Read]:
    """Return equal settings, and the set that collects the names of those read."""
    read: Read = set()

    class Noting(Settings):
        def __getattribute__(self, name: str) -> Any:
            if name in Settings.model_fields:
                read.add(name)
            return super().__getattribute__(name)

    return Noting(**known.model_dump()), read
