"""Groups of settings in a command's help, and the settings that people use first."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args, get_origin

from shoal_settings.key import Command
from shoal_settings.schema import LOGS, TASK_PRESETS, Settings
from shoal_settings.strategy import STRATEGY_WORDS

_GENERAL: Final = "where it keeps its data, and its settings"
BEGINNINGS: Final = {
    "data_dir": _GENERAL,
    "listen": "whom it meets",
    "relay": "routers, relays, addresses",
    "swarm_key": "the swarm",
    "buffer_bytes": "what it keeps of others",
    "role": "the model",
    "generator": "a server that answers in its place",
    "local": "a round",
    "learning_rate": "the update",
    "round_seconds": "pace, checkpoints, evaluation",
    "nodes": "the nodes",
    "json_output": "what it prints and logs",
}
"""Groups by their first setting, in the schema's order. A new setting is of the group at whose
place it stands."""
_ELSEWHERE: Final = {
    "threads": "the model",
    "alone": "the model",
    "judge": "the swarm",
}
"""Settings that stand in the schema at another place than in help."""
_PEER: Final = ("data_dir", "listen", "bootstrap", "announce", "relay", "swarm_key", "tasks")
_TRAINER: Final = ("model", "device", "max_new_tokens", "learning_rate", "rounds")
FIRST: Final[dict[Command, tuple[str, ...]]] = {
    "node": ("data_dir", "bootstrap", "swarm_key", "tasks", "role", *_TRAINER),
    "bootstrap": _PEER,
    "trainer": ("data_dir", "tasks", *_TRAINER, "alone"),
    "swarm": ("data_dir", "nodes", "mdns", "tasks", *_TRAINER),
    "debug": ("data_dir",),
}
"""The settings that stand in a command's short help, beside `--print-config` and `--json`."""
ALWAYS_FIRST: Final = ("json_output", "print_config")


def group_of(field: str) -> str:
    """Return the heading under which help has a setting."""
    if field in _ELSEWHERE:
        return _ELSEWHERE[field]
    group = _GENERAL
    for name in Settings.model_fields:
        group = BEGINNINGS.get(name, group)
        if name == field:
            break
    return group


def choices_of(field: str) -> tuple[str, ...]:
    """Return the only words that a setting can have; none where they cannot be listed."""
    annotation: Any = Settings.model_fields[field].annotation
    if get_origin(annotation) is Literal:
        return tuple(map(str, get_args(annotation)))
    words = {"log": LOGS, "strategy": STRATEGY_WORDS, "tasks": TASK_PRESETS}
    return words.get(field, ())


LISTS: Final = ("log", "strategy", "tasks")
"""Settings whose value may be several of their words, or of theirs and others."""
