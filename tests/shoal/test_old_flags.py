"""What could be typed at an earlier commit can be typed now, and means the same.

The record was made by that commit's own parsers, in its tree, by the program of
`tests/support/flags.py`: ``python flags.py p2p.cli.entry``.  A flag may be added, none may go.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from shoal.__main__ import main
from shoal_settings.removed import REMOVED, removed_flag, removed_setting
from tests.support import flags

RECORD = json.loads((Path(__file__).parent.parent / "fixtures/flags_1bdb8eb.json").read_text())


DEFAULTS_CHANGED = {"external": 8}
"""On purpose, each with a line in CHANGELOG.md."""


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SHOAL_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def present() -> dict[str, Any]:
    return flags.flags(main)


@pytest.mark.parametrize("command", RECORD["flags"])
def test_every_argument_is_still_taken_and_means_the_same(
    command: str, present: dict[str, Any]
) -> None:
    for name, was in RECORD["flags"][command].items():
        if removed_flag(command, name) is not None:
            continue
        assert name in present[command], f"shoal {command} {name}"
        now = present[command][name]
        assert {**now, "choices": None} == {**was, "choices": None}, f"shoal {command} {name}"
        choices = set(now.get("choices", was.get("choices", ())))
        gone = {one for one in was.get("choices", ()) if f"{name[2:]}={one}" in REMOVED}
        assert set(was.get("choices", ())) - gone <= choices


def test_nothing_new_is_required(present: dict[str, Any]) -> None:
    for command, arguments in present.items():
        known = RECORD["flags"].get(command)
        if known is not None:
            required = {name for name, row in arguments.items() if "required" in row}
            assert required <= set(known), command


@pytest.mark.parametrize("command", RECORD["settings"])
def test_every_setting_has_the_default_that_it_had(command: str) -> None:
    assert set(RECORD["settings"]) == set(flags.WITH_SETTINGS)
    now = flags.settings(main)[command]
    was = RECORD["settings"][command]
    was = {key: row for key, row in was.items() if removed_setting(key) is None}
    changed = {key: value for key, value in DEFAULTS_CHANGED.items() if key in was}
    assert {key: now.get(key) for key in was} == was | {
        key: {**was[key], "value": value} for key, value in changed.items()
    }
    changes = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
    assert all(f"`{key}`" in changes for key in changed)
