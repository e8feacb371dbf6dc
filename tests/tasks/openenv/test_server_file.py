"""The task file that a joining node gets for an OpenEnv family of its swarm."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from shoal_base.toml_file import read_toml
from shoal_tasks.server_file import SERVER_FILE, server_task_file, write_server_file
from shoal_tasks.spec import OPENENV, FamilySpec, environment
from shoal_tasks.swarm import families_of, families_without_servers
from shoal_tasks.task_file import load_task_file
from shoal_wire.manifest import make_manifest
from tests.support.task_files import task_file
from tests.tasks.openenv.servers import Wire, served


@pytest.mark.parametrize(
    "fields", [{}, {"max_turns": 3, "reward_range": [-1, 2.5], "system": "Play."}, {"title": "G"}]
)
def test_with_an_address_it_is_the_same_family(tmp_path: Path, fields: dict[str, Any]) -> None:
    with served(Wire()) as address:
        file = task_file(tmp_path, "guess", environment=address, **fields)
        spec = load_task_file(file)
        manifest = make_manifest("swarm", families_of([spec]))
        assert families_without_servers(manifest, [str(file)]) == ()
        (missing,) = families_without_servers(manifest, [])
        path = tmp_path / "joiner" / SERVER_FILE
        write_server_file(missing, path)
        path.write_text(path.read_text().replace("ws://127.0.0.1:8000", address))
        assert load_task_file(path).digest == spec.digest
        written = path.read_text()
        write_server_file(missing, path)
        assert path.read_text() == written, "an address that was set stays"


def test_texts_of_a_peer_are_no_other_keys(tmp_path: Path) -> None:
    rng = random.Random(5)
    letters = "a\"'\\\n\r\t\x00\x1f\x7f\x85é\u2028\ud7ff\U0001f600#=[]{}"
    for number in range(300):
        texts = ["".join(rng.choices(letters, k=rng.randrange(12))) for _ in range(5)]
        spec: FamilySpec = environment(
            f"n{texts[0]}", OPENENV,
            {"environment": f"e{texts[1]}", "version": texts[2], "schema_sha256": "", "title": "T",
             "games_sha256": "", "max_turns": 4, "reward_range": [0, 1], "system": texts[3],
             "description": texts[4]}, weight=0.5,
        )  # fmt: skip
        path = tmp_path / f"{number}.toml"
        path.write_text(server_task_file(spec), encoding="utf-8", newline="")
        assert read_toml(path) == {
            "name": spec.name, "environment": "ws://127.0.0.1:8000", "weight": 0.5,
            "max_turns": 4, "reward_range": [0, 1], "system": texts[3], "title": "T",
            "description": texts[4],
        }  # fmt: skip
