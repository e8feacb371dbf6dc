"""Groups of settings in a command's help, and the settings that people use first."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args, get_origin

from shoal_settings.key import Command
from shoal_settings.schema import LOGS, TASK_PRESETS, Settings
from shoal_settings.strategy import STRATEGY_WORDS

_GENERAL: Final = "data and settings"
BEGINNINGS: Final = {
    "data_dir": _GENERAL,
    "listen": "peers",
    "relay": "routers, relays, addresses",
    "swarm_key": "the swarm",
    "buffer_bytes": "external groups",
    "role": "the model",
    "generator": "a server that answers in its place",
    "local": "a round",
    "learning_rate": "the update",
    "round_seconds": "pace, checkpoints, evaluation",
    "nodes": "the nodes",
    "json_output": "what it prints and logs",
}
"""Groups by their first setting, in the schema's order. A new setting belongs to the group that it
is placed in."""
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
"""The settings in a command's short help, in addition to `--print-config` and `--json`."""
ALWAYS_FIRST: Final = ("json_output", "print_config")


def group_of(field: str) -> str:
    """Return the heading of a setting in the help."""
    if field in _ELSEWHERE:
        return _ELSEWHERE[field]
    group = _GENERAL
    for name in Settings.model_fields:
        group = BEGINNINGS.get(name, group)
        if name == field:
            break
    return group


def choices_of(field: str) -> tuple[str, ...]:
    """Return the only values of a setting; empty if they cannot be listed."""
    annotation: Any = Settings.model_fields[field].annotation
    if get_origin(annotation) is Literal:
        return tuple(map(str, get_args(annotation)))
    words = {"log": LOGS, "strategy": STRATEGY_WORDS, "tasks": TASK_PRESETS}
    return words.get(field, ())


LISTS: Final = ("log", "strategy", "tasks")
"""Settings whose value may combine several of these values, or also have others."""
