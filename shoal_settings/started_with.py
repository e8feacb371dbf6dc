"""The settings that a peer or a swarm was last started with, kept in its folder.

start ──▶ started-with.json ──▶ the command that starts it again; the settings that the page shows

A stopped run can thus be continued with the words it had, and a folder with a swarm's nodes is not
taken for a node's.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shoal_base.files import SMALL_FILE_BYTES, read_at_most, write_atomically
from shoal_base.visible import visible, visible_name
from shoal_settings.loader import FOR_LARGE, FOR_TASKS, Loaded, describe, to_flags
from shoal_settings.schema import Command

STARTED_WITH_FILE: Final = "started-with.json"
_NOT_CHOSEN: Final = ("default", FOR_LARGE, FOR_TASKS)
_OF_ONE_START: Final = frozenset(
    {"data_dir", "json_output", "rounds", "new_run", "resume", "log_json"}
)
"""Settings that a later start does not need, or that would end it at once or begin a new run."""


class StartedWithError(Exception):
    """The folder is that of another command, or cannot be written. One line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedWith:
    """A recorded start of a peer or a swarm."""

    name: str
    """The command: node, bootstrap, judge or swarm."""
    flags: tuple[str, ...]
    """Flags that the user chose, without the folder."""
    settings: Mapping[str, str]
    """All settings by key, in words."""

    def command(self, program: str, folder: Path) -> str:
        """Return the command that continues it, to be pasted."""
        words = [self.name, *self.flags, "--data-dir", str(folder)]
        return f"{program} {shlex.join(words)}"


def check_command(folder: Path, name: str) -> None:
    """Raise StartedWithError if another command than `name` was started in a folder."""
    earlier = started_with(folder)
    if earlier is not None and earlier.name != name:
        again = continuation(folder, "shoal")
        raise StartedWithError(
            f"{folder} is the folder of a {earlier.name}: `{again}` continues it; name another "
            "--data-dir"
        )


def save_started_with(loaded: Loaded, folder: Path, name: str, command: Command) -> None:
    """Record a start of the command `name` in its locked folder. Raises StartedWithError."""
    chosen = {
        field
        for field, origin in loaded.origins.items()
        if origin not in _NOT_CHOSEN and field not in _OF_ONE_START
    }
    rows = describe(loaded, command)
    document = {
        "command": name,
        "flags": to_flags(loaded.settings, command, only=chosen),
        "settings": {key: _words(row["value"]) for key, row in rows.items()},
    }
    try:
        write_atomically(folder / STARTED_WITH_FILE, json.dumps(document).encode(), mode=0o600)
    except OSError as error:
        raise StartedWithError(f"cannot write in {folder}: {error.strerror}") from None


def continuation(folder: Path, program: str) -> str:
    """Return the command that continues what ran in a folder: of a swarm's node, the swarm.

    Empty where no start is on record: another command would begin a new run, or start an untrained
    peer next to a swarm's.
    """
    own, around = started_with(folder), started_with(folder.parent)
    if around is not None and around.name == "swarm":
        return around.command(program, folder.parent)
    return "" if own is None else own.command(program, folder)


def started_with(folder: Path) -> StartedWith | None:
    """Return what was started last in a folder; None if that is not known."""
    document: Any = None
    with suppress(OSError, ValueError, RecursionError):
        document = json.loads(read_at_most(folder / STARTED_WITH_FILE, SMALL_FILE_BYTES))
    if not isinstance(document, dict) or not isinstance(document.get("command"), str):
        return None
    flags, settings = document.get("flags"), document.get("settings")
    return StartedWith(
        name=visible_name(document["command"]),
        flags=tuple(map(visible, map(str, flags))) if isinstance(flags, list) else (),
        settings={visible_name(str(k)): visible(str(v)) for k, v in settings.items()}
        if isinstance(settings, dict)
        else {},
    )


def _words(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
