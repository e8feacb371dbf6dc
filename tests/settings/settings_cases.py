"""Loading as the commands do it, and a value off its default for every key."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from shoal_settings.loader import Loaded, SettingsError, add_flags, load
from shoal_settings.parser import Parser
from shoal_settings.schema import Command, Settings, public_name

COMMANDS: tuple[Command, ...] = get_args(Command)
PEER = "/ip4/192.0.2.1/tcp/4001/p2p/12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV"

STRANGE_VALUES: dict[str, Any] = {
    # Values that a shell, a TOML file or argparse could take for something else.
    "data_dir": Path("-some where/ü"),
    "accept_tasks": "20MB,some words,ü",
    "listen": ("/ip4/127.0.0.1/tcp/4001", "/ip6/::1/tcp/0"),
    "bootstrap": (PEER, PEER.replace("4001", "4002")),
    "swarm_name": "--school of 'fish' = 1",
    "swarm_id": "0123456789abcdef" * 4,
    "tasks": ("paper", "mine.toml", "yours.toml"),
    "subscribe_shards": "7",
    "relay_client": "off",
    "announce": ("/ip4/192.0.2.7/tcp/4001", "/dns4/host.example/tcp/4002"),
    "swarm_key": "my swarm.key",
    "allow_peers": tuple(PEER.rpartition("/")[2] for _ in range(2)),
    "model": "-org/model name",
    "shots": "3",
    "device": "cuda:1",
    "dtype": "bfloat16",
    "prompt": "plain",
    "generator": "openai",
    "base_url": "https://[::1]:1/v1?a=b c",
    "remote_model": "-their/model name",
    "loss_type": "dr_grpo",
    "http": "[::1]:7463",
    "http_name": "https://box.example:8443",
    "log": "wandb,trackio",
    "strategy": "uniform",
    "publisher_sampling": "uniform",
    "role": "generate",
    "log_level": "error",
    "judge": PEER,
}


def other_value(field: str) -> Any:
    """Return a valid value of `field` that is not its default."""
    info = Settings.model_fields[field]
    if field in STRANGE_VALUES:
        return STRANGE_VALUES[field]
    if info.annotation is bool:
        return not info.default
    if info.annotation is int:
        return info.default + 1
    assert info.annotation is float, f"give {field} a case in STRANGE_VALUES"
    return info.default / 2 + 1 / 3


def parse(command: Command, flags: Sequence[str]) -> argparse.Namespace:
    """Parse flags as `command` does."""
    parser = Parser(prog="shoal")
    add_flags(parser, command)
    return parser.parse_args(flags)


def loaded(
    command: Command = "node",
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    **overrides: Any,
) -> Loaded:
    """Load settings from flags, an environment, and ./shoal.toml or what `--config` names."""
    return load(command, parse(command, flags), environment or {}, overrides=overrides)


def error_of(
    command: Command = "node",
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> str:
    """Return the one line with which loading fails."""
    with pytest.raises(SettingsError) as raised:
        loaded(command, flags, environment)
    line = str(raised.value)
    assert "\n" not in line
    assert line
    return line


def as_text(value: Any) -> str:
    """Return `value` as an environment variable holds it."""
    return ",".join(value) if isinstance(value, tuple) else str(value)


def variable(field: str) -> str:
    """Return the environment variable of `field`."""
    return "SHOAL_" + public_name(field).upper()


def flag(field: str) -> str:
    """Return the flag of `field`."""
    return "--" + public_name(field).replace("_", "-")
