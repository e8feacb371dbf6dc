"""What a user could once type is taken today, or refused in one line that says what replaced it.

`once_taken.json` lists the settings of commit aeb55a9 and the other flags of commit 1bdb8eb. A row
of `shoal_settings/removed.py` is what allows one to go; `test_removed.py` plays those rows.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from shoal.__main__ import main
from shoal.parsers import all_parsers
from shoal_settings.removed import removed_flag, removed_setting
from shoal_settings.schema import Settings, public_name

ONCE = json.loads((Path(__file__).parent.parent / "fixtures/once_taken.json").read_text())
KNOWN = {public_name(field) for field in Settings.model_fields}


def test_every_setting() -> None:
    gone = {key for key in ONCE["settings"] if removed_setting(key) is not None}
    assert set(ONCE["settings"]) - gone <= KNOWN
    assert not gone & KNOWN


@pytest.mark.parametrize("command", ONCE["flags"])
def test_every_other_flag(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    parsers = {" ".join(words): parser for words, parser in all_parsers()}
    if command not in parsers:  # a view that is part of another one by now
        assert main(command.split()) == 2
        assert re.fullmatch(r".* is part of another: shoal debug \w+\n", capsys.readouterr().err)
        return
    taken = {name for action in parsers[command]._actions for name in action.option_strings}
    gone = {flag for flag in ONCE["flags"][command] if removed_flag(command, flag) is not None}
    assert set(ONCE["flags"][command]) - gone <= taken
