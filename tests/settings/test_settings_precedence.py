"""defaults < TOML file < environment < flags, and every value knows where it came from."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from shoal_settings.key import SIZES, read_size, size_text
from shoal_settings.loader import FOR_LARGE, FOR_TASKS, defaults_line_of, describe, describe_text
from shoal_settings.real_models import ADAPTERS_RATE, LARGE_RATE, REAL_DEFAULTS
from shoal_settings.schema import Settings, fields_of, public_name
from tests.settings import settings_cases as case

FIELDS = tuple(Settings.model_fields)


pytestmark = pytest.mark.usefixtures("empty_folder")


def write(text: str, name: str = "shoal.toml") -> None:
    Path(name).write_text(text, encoding="utf-8")


def toml(value: Any) -> str:
    if isinstance(value, tuple):
        return json.dumps(list(value))
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


def test_with_no_source_every_value_is_its_default() -> None:
    result = case.loaded()
    assert result.settings == Settings()
    assert set(result.origins) == set(FIELDS)
    assert set(result.origins.values()) == {"default"}


def test_each_source_outranks_the_one_before() -> None:
    def local(*flags: str, **environment: str) -> tuple[int, str]:
        result = case.loaded("node", flags, environment)
        return result.settings.local, result.origins["local"]

    assert local() == (4, "default")
    write("local = 5")
    assert local() == (5, "shoal.toml")
    assert local(SHOAL_LOCAL="6") == (6, "SHOAL_LOCAL")
    assert local("--local", "7", SHOAL_LOCAL="6") == (7, "--local")
    # Naming the default is still naming it.
    assert local("--local", "4", SHOAL_LOCAL="6") == (4, "--local")


@pytest.mark.parametrize("field", FIELDS)
def test_every_key_can_come_from_every_source(field: str) -> None:
    value = case.other_value(field)
    command = next(c for c in case.COMMANDS if field in fields_of(c))

    write(f"{public_name(field)} = {toml(value)}")
    result = case.loaded(command)
    assert (getattr(result.settings, field), result.origins[field]) == (value, "shoal.toml")
    Path("shoal.toml").unlink()

    result = case.loaded(command, (), {case.variable(field): case.as_text(value)})
    expected = (value, case.variable(field))
    assert (getattr(result.settings, field), result.origins[field]) == expected

    if value is True:
        flags = [case.flag(field)]
    elif value is False:
        flags = ["--no-" + case.flag(field)[2:]]
    else:
        items = value if isinstance(value, tuple) else (value,)
        flags = [f"{case.flag(field)}={item}" for item in items]
    result = case.loaded(command, flags)
    origin = flags[0].partition("=")[0]
    assert (getattr(result.settings, field), result.origins[field]) == (value, origin)
    others = {name: origin for name, origin in result.origins.items() if name != field}
    if field == "model":  # another model than the embedded ones
        for one in REAL_DEFAULTS:
            if one.setting in others:
                assert others.pop(one.setting) == FOR_LARGE
    assert set(others.values()) == {"default"}


def test_a_commands_own_defaults_rank_below_every_source() -> None:
    result = case.loaded("node", local=9, nodes=2)
    assert (result.settings.local, result.origins["local"]) == (9, "default")
    result = case.loaded("node", (), {"SHOAL_LOCAL": "6"}, local=9)
    assert (result.settings.local, result.origins["local"]) == (6, "SHOAL_LOCAL")


def test_a_file_is_named_by_flag_before_variable_before_folder() -> None:
    write("local = 1")
    write("local = 2", "two.toml")
    write("local = 3", "three.toml")
    assert case.loaded().settings.local == 1
    result = case.loaded("node", (), {"SHOAL_CONFIG": "two.toml"})
    assert (result.settings.local, result.origins["local"]) == (2, "two.toml")
    result = case.loaded("node", ["--config", "three.toml"], {"SHOAL_CONFIG": "two.toml"})
    assert (result.settings.local, result.origins["local"]) == (3, "three.toml")


def test_an_empty_item_clears_a_list() -> None:
    environment = {"SHOAL_BOOTSTRAP": case.PEER}
    assert case.loaded("node", (), environment).settings.bootstrap == (case.PEER,)
    assert case.loaded("node", ["--bootstrap="], environment).settings.bootstrap == ()
    assert case.loaded("node", (), {"SHOAL_BOOTSTRAP": ""}).settings.bootstrap == ()


def test_a_list_in_a_variable_is_split_at_commas() -> None:
    environment = {"SHOAL_LISTEN": "/ip4/127.0.0.1/tcp/1, /ip4/127.0.0.1/tcp/2,"}
    expected = ("/ip4/127.0.0.1/tcp/1", "/ip4/127.0.0.1/tcp/2")
    assert case.loaded("node", (), environment).settings.listen == expected


def test_keys_of_other_commands_are_no_error() -> None:
    write("nodes = 3\nlocal = 1")
    assert case.loaded("bootstrap", (), {"SHOAL_ROUNDS": "5"}).settings.nodes == 3


def test_other_variables_are_left_alone() -> None:
    assert case.loaded("node", (), {"PATH": "/bin", "SHOALS": "x"}).settings == Settings()


@pytest.mark.parametrize("command", case.COMMANDS)
def test_print_config_shows_what_the_command_reads_as_toml(command: Any) -> None:
    write('swarm_name = "über \\"fish\\""\nmodel = "🐟"\nlearning_rate = 1e-5')
    result = case.loaded(command, (), {"SHOAL_DATA_DIR": "/tmp/x"})
    rows = describe(result, command)
    assert set(rows) == {public_name(field) for field in fields_of(command)}
    assert rows["data_dir"] == {"value": "/tmp/x", "origin": "SHOAL_DATA_DIR"}
    text = describe_text(result, command)
    assert tomllib.loads(text) == {key: row["value"] for key, row in rows.items()}
    # What is shown can be saved and loaded: it gives the same settings.
    Path("saved.toml").write_text(text, encoding="utf-8")
    again = case.loaded(command, ["--config", "saved.toml"])
    assert describe(again, command).keys() == rows.keys()
    assert {key: row["value"] for key, row in describe(again, command).items()} == {
        key: row["value"] for key, row in rows.items()
    }


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().local = 3


@pytest.mark.parametrize(
    ("flags", "rate"),
    [
        (["--model", "Qwen/Qwen2.5-0.5B-Instruct"], LARGE_RATE),
        (["--model", "smollm2"], LARGE_RATE),
        (["--model", "smollm2", "--lora-rank", "8"], ADAPTERS_RATE),
        (["--model", "tiny-sparse"], Settings().learning_rate),
        (["--model", "little"], Settings().learning_rate),
        (["--model", "big"], LARGE_RATE),
        (["--model", "smollm2", "--learning-rate", "0.0004"], 4e-4),
    ],
)
def test_a_large_model_has_a_learning_rate_of_its_own(flags: list[str], rate: float) -> None:
    for name, size in (("little", 1000), ("big", 81 << 20)):
        Path(name).mkdir()
        with (Path(name) / "model.safetensors").open("wb") as file:
            file.truncate(size)
    result = case.loaded("node", flags)
    assert result.settings.learning_rate == rate
    chosen = rate != Settings().learning_rate
    assert (result.origins["learning_rate"] == FOR_LARGE) is chosen


def test_a_large_model_has_defaults_of_its_own_and_says_so() -> None:
    result = case.loaded("node", ["--model", "smollm2", "--eval-every", "7"])
    settings = result.settings
    assert (settings.max_new_tokens, settings.eval_every) == (64, 7)
    assert (
        case.loaded("node", ["--model", "org/m", "--tasks", "paper"]).settings.max_new_tokens == 256
    )
    chosen = {field for field, origin in result.origins.items() if origin == FOR_LARGE}
    assert chosen == {one.setting for one in REAL_DEFAULTS} - {"eval_every"}
    message = defaults_line_of(result)
    assert "\n" not in message and "--learning-rate 1e-05, --max-new-tokens 64" in message
    assert "eval" not in message
    assert defaults_line_of(case.loaded("node")) == ""


@pytest.mark.parametrize("command", ["node", "trainer", "swarm"])
def test_games_that_one_embedded_model_plays_are_played_by_it(command: Any) -> None:
    result = case.loaded(command, ["--tasks", "games-1"])
    assert (result.settings.model, result.origins["model"]) == ("tiny-games", FOR_TASKS)
    assert (result.settings.learning_rate, result.origins["learning_rate"]) == (2e-4, FOR_LARGE)
    assert "--learning-rate 0.0002 (docs/models.md says why)" in defaults_line_of(result)
    own = case.loaded(command, ["--model", "tiny-games", "--learning-rate", "1e-4"])
    assert own.settings.learning_rate == 1e-4
    typed = case.loaded(command, ["--tasks", "games-1", "--model", "tiny"])
    assert (typed.settings.model, typed.origins["model"]) == ("tiny", "--model")
    assert typed.settings.learning_rate == Settings().learning_rate
    assert case.loaded(command, ["--tasks", "games"]).settings.model == "tiny"


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("256MB", 256_000_000),
        ("256MiB", 256 * 1024**2),
        ("1.5 gib", 3 * 1024**3 // 2),
        ("262144", 262_144),
        ("256k", 256_000),
    ],
)
def test_a_size_has_a_unit_or_is_a_number_of_bytes(text: str, num_bytes: int) -> None:
    assert case.loaded("node", ["--buffer-bytes", text]).settings.buffer_bytes == num_bytes
    environment = {"SHOAL_BUFFER_BYTES": text}
    assert case.loaded("node", (), environment).settings.buffer_bytes == num_bytes
    assert read_size(size_text(num_bytes)) == num_bytes


@pytest.mark.parametrize("text", ["256Mb", "1.5 Gib", "8Kb"])
def test_a_size_in_bits_is_refused_with_the_size_in_bytes(text: str) -> None:
    with pytest.raises(ValueError, match=f"is in bits: write {text[:-1]}B for bytes"):
        read_size(text)


def test_every_size_among_the_settings_is_listed() -> None:
    named = {name for name in Settings.model_fields if name.endswith("_bytes")}
    assert set(SIZES) == named
    for name in SIZES:
        assert case.loaded("node", [f"{case.flag(name)}=2MB"]).settings.model_dump()[name] == 2e6


def test_lr_is_the_learning_rate() -> None:
    loaded = case.loaded("trainer", ["--lr", "1e-3"])
    assert loaded.settings.learning_rate == 1e-3
    assert loaded.origins["learning_rate"] == "--learning-rate"


@pytest.mark.parametrize(
    ("flags", "preset", "files"),
    [
        ([], "easy", ()),
        (["--tasks", "paper"], "paper", ()),
        (["--tasks", "a/mine.toml"], "none", ("a/mine.toml",)),
        (["--tasks", "easy,mine.toml"], "easy", ("mine.toml",)),
        (
            ["--tasks", "b.toml", "--tasks", "chat", "--tasks", "a.toml"],
            "chat",
            ("b.toml", "a.toml"),
        ),
        (["--tasks", "none"], "none", ()),
    ],
)
def test_tasks_are_a_preset_and_files(
    flags: list[str], preset: str, files: tuple[str, ...]
) -> None:
    settings = case.loaded("node", flags).settings
    assert (settings.task_preset, settings.task_files) == (preset, files)
