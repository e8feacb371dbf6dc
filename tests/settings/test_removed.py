"""What earlier versions took is refused, with what replaced it, from every source."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from shoal.__main__ import main
from shoal_lab.experiment import flags as experiment
from shoal_settings.removed import REMOVED
from shoal_settings.schema import Settings, public_name
from tests.settings import settings_cases as case

KNOWN = {public_name(field) for field in Settings.model_fields}
SETTINGS = [row for row in REMOVED if "=" not in row and " " not in row]
WORDS = [tuple(row.split("=")) for row in REMOVED if "=" in row]
FLAGS = [tuple(row.rsplit(" ", 1)) for row in REMOVED if " --" in row]


pytestmark = pytest.mark.usefixtures("empty_folder")


def test_every_row_is_of_one_kind_and_has_a_sentence() -> None:
    assert len(SETTINGS) + len(WORDS) + len(FLAGS) == len(REMOVED)
    assert not KNOWN & set(SETTINGS)
    assert {key for key, _ in WORDS} <= KNOWN
    for sentence in REMOVED.values():
        assert sentence.isprintable() and not sentence.endswith(".")


def test_no_advice_is_to_use_what_was_removed() -> None:
    flags = re.compile("|".join(rf"--{key.replace('_', '-')}\b(?!-)" for key in SETTINGS))
    top = Path(__file__).parents[2]
    for path in (*top.glob("docs/*.md"), *top.glob("p*/**/*.py"), *top.glob("shoal*/**/*.py")):
        assert path.name == "removed.py" or not flags.findall(path.read_text()), path


def refused_by_parser(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as raised:
        case.parse("node", words)
    assert raised.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("key", SETTINGS)
def test_a_removed_setting(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = key.replace("_", "-")
    opposite = name.removeprefix("no-") if name.startswith("no-") else f"no-{name}"
    for words in ([f"--{name}=1"], [f"--{name}", "1"], [f"--{name}"], [f"--{opposite}"]):
        assert REMOVED[key] in refused_by_parser(words, capsys)
    assert REMOVED[key] in case.error_of("debug", (), {case.variable(key): "1"})
    Path("shoal.toml").write_text(f"{key} = 1")
    assert REMOVED[key] in case.error_of("trainer")
    with pytest.raises(experiment.UsageError, match="was removed"):
        experiment._settings([f"{key}=1"])


@pytest.mark.parametrize(("key", "word"), WORDS)
def test_a_removed_word(key: str, word: str) -> None:
    sentence = REMOVED[f"{key}={word}"]
    assert sentence in case.error_of("node", [f"{case.flag(key)}={word}"])
    assert sentence in case.error_of("node", (), {case.variable(key): word})
    Path("shoal.toml").write_text(f"{key} = {json.dumps(word)}")
    assert sentence in case.error_of("node")
    with pytest.raises(experiment.UsageError, match="any more"):
        experiment._settings([f"{key}={word}"])


def test_a_removed_word_among_others() -> None:
    line = case.error_of("node", ["--strategy", "positive+bare"])
    assert line.startswith("--strategy 'positive+bare': has no word 'bare'")


@pytest.mark.parametrize(("command", "flag"), FLAGS)
def test_a_removed_flag(command: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main([*command.split(), flag])
    assert raised.value.code == 2
    assert REMOVED[f"{command} {flag}"] in capsys.readouterr().err
