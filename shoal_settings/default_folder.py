"""The default folder of a run, named after its model, tasks and swarm before any is loaded.

shoal node                                                 .shoal/node
shoal node --model smollm2 --tasks chat-1                  .shoal/node-smollm2-chat-1
shoal node --model tiny --tasks my.toml                    .shoal/node-my
shoal join shoal1…                                         .shoal/node-1a2b3c4d
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shoal_base.node_folders import TOY, folders_for, name_of, numbered, with_names
from shoal_settings.loader import PLAYS
from shoal_settings.schema import Settings

DEFAULT_PRESET: Final = "easy"
_ID_CHARS: Final = 8
"""Characters of a swarm's digest in a folder's name."""


def default_folders(settings: Settings) -> Iterator[Path]:
    """Yield the candidate folders of a node that trains; it uses the first free one."""
    return folders_for(settings.model, default_folder(settings))


def default_folders_without_model(settings: Settings) -> Iterator[Path]:
    """Yield the candidate folders of a peer that trains nothing."""
    return numbered(default_folder(settings, by_model=False))


def default_folder(settings: Settings, *, by_model: bool = True) -> Path:
    """Return the first candidate folder."""
    names = []
    if by_model and settings.model not in (TOY, PLAYS.get(settings.task_preset)):
        names.append(name_of(settings.model))
    return with_names(settings.data_dir, [*names, *_swarm_names(settings)])


def _swarm_names(settings: Settings) -> Iterator[str]:
    """Yield the parts of a swarm's name that differ from the defaults."""
    if settings.swarm_id != "none":
        yield settings.swarm_id[:_ID_CHARS]
        return
    if settings.swarm_name != _default("swarm_name"):
        yield name_of(settings.swarm_name)
    has_own = settings.task_preset == "none" and settings.task_files
    if settings.task_preset != DEFAULT_PRESET and not has_own:
        yield settings.task_preset
    yield from (name_of(Path(file).stem) for file in settings.task_files)


def _default(key: str) -> object:
    return Settings.model_fields[key].default
