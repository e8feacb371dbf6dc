"""Every setting of shoal, with its default, its bounds and the commands that read it.

One flat set of keys serves a TOML file, the environment (`SHOAL_` + the key in capitals) and
flags (`--` + the key with dashes). `docs/settings.md` lists them; a test compares the two.
"""

from __future__ import annotations

from typing import Annotated, Literal

from shoal_base.ranges import Range
from shoal_settings.key import Command, checked, key, of_swarms, of_trainers
from shoal_settings.node_settings import DEFAULT_LISTEN, TASK_PRESETS
from shoal_settings.trainer_settings import TrainerSettings
from shoal_settings.web_address import AUTO, NONE, parse_web_address, parse_web_name

__all__ = ["DEFAULT_LISTEN", "TASK_PRESETS", "Command", "Settings", "fields_of", "public_name"]

LOGS = ("auto", "none", "tensorboard", "wandb", "trackio")


def _known_logs(value: str) -> None:
    if not set(value.split(",")) <= set(LOGS):
        raise ValueError(f"must be some of {', '.join(LOGS)}")


class Settings(TrainerSettings):
    """All settings. Frozen; unknown keys are refused."""

    # Swarm command
    nodes: Annotated[int, Range("nodes", 1, 64)] = key(4, "swarm", "Nodes to start.")
    # Output
    http: Annotated[str, checked(parse_web_address)] = of_swarms(
        AUTO,
        "Where the web page of this peer is served, HOST:PORT; auto is 127.0.0.1:7462, or a free "
        "port where that is taken; none is no page.",
        instead={
            "swarm": "Where one web page of all its peers is served, HOST:PORT; auto is "
            "127.0.0.1:7462, or a free port where that is taken; none is no page."
        },
        off=NONE,
    )
    http_name: Annotated[str, checked(parse_web_name)] = of_swarms(
        "",
        "Name under which browsers reach the web page: this machine's name in its network, or "
        "https://NAME of a proxy in front of it.",
    )
    json_output: bool = key(
        False, "node bootstrap trainer swarm debug", "Print JSON for programs, one object a line."
    )
    log: Annotated[str, checked(_known_logs)] = of_trainers(
        "auto",
        "Where metrics go besides metrics.jsonl, separated by commas: tensorboard, wandb, "
        "trackio, none; auto is tensorboard if it is installed.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = key(
        "info", "node bootstrap trainer swarm", "Show log lines of this level and above."
    )
    log_json: bool = key(
        False, "node bootstrap trainer swarm", "Log lines are JSON objects, for programs."
    )


ALIASES = {"learning_rate": ("--lr",)}
"""Second flags of settings: names that other trainers have made common."""
FLAG_NAMES = {"json_output": "json"}
"""Keys whose flag (and TOML key, and variable) is not their own name."""


def public_name(field: str) -> str:
    """Return a field's public key: the TOML key and, in capitals, the variable."""
    return FLAG_NAMES.get(field, field)


def fields_of(command: Command) -> tuple[str, ...]:
    """Return the settings that `command` reads, in the schema's order."""
    return tuple(
        name
        for name, info in Settings.model_fields.items()
        if isinstance(info.json_schema_extra, dict)
        and command in info.json_schema_extra["commands"]  # type: ignore[operator]
    )
