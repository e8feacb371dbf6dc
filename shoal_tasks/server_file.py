"""A task file for an OpenEnv family of a swarm; a user completes it by a server's address."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Final

from shoal_base.files import create_atomically
from shoal_base.visible import visible_name
from shoal_tasks.spec import ABOUT, SERVER_FIELDS, FamilySpec

SERVER_FILE: Final = "server.toml"
_ADDRESS: Final = "ws://127.0.0.1:8000"
_KEYS: Final = ("max_turns", "reward_range", "system", *sorted(SERVER_FIELDS), *ABOUT)


def server_task_file(spec: FamilySpec) -> str:
    """Return a task file of the same family, for a server on this machine."""
    config = spec.config
    values: dict[str, object] = {"name": spec.name, "environment": _ADDRESS, "weight": spec.weight}
    values |= {key: config[key] for key in _KEYS if key in config}
    which = f"{config['environment']} {config['version']}".strip()
    lines = [
        f"# The swarm's environment is {visible_name(which)}. Start its server, and set",
        "# `environment` to the address. The other keys are part of the family: keep them.",
        *(f"{key} = {_toml(value)}" for key, value in values.items()),
    ]
    return "\n".join(lines) + "\n"


def write_server_file(spec: FamilySpec, path: Path) -> None:
    """Write the task file of a family, unless there is one, which may have an address already.

    Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        create_atomically(path, server_task_file(spec).encode(), mode=0o644)


def _toml(value: object) -> str:
    # JSON's text is TOML's, except for one control character that TOML does not take unescaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
