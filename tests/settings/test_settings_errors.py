"""What is wrong is one line that names the key, the value and where it came from."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_settings.loader import SettingsError
from shoal_settings.schema import Settings, public_name
from tests.settings import settings_cases as case

pytestmark = pytest.mark.usefixtures("empty_folder")
NOBODY = 65534
"""The id of Linux's user `nobody`."""


def error_of_file(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    Path("shoal.toml").write_bytes(data)
    return case.error_of()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lokal = 3", "'lokal' (did you mean 'local'?)"),
        ("qqqqqq = 3", "'qqqqqq'"),
        ("[node]\nlocal = 3", "'node' (did you mean 'nodes'?)"),
        ('"a\\nb" = 3', r"'a\nb'"),
        ("json_output = true", "'json_output'"),
    ],
)
def test_an_unknown_key_of_a_file(text: str, message: str) -> None:
    assert error_of_file(text) == f"shoal.toml: unknown key {message}"


@pytest.mark.parametrize(
    ("name", "message"),
    [("SHOAL_ROUND", "SHOAL_ROUND (did you mean 'rounds'?)"),
     ("SHOAL_JSON_OUTPUT", "SHOAL_JSON_OUTPUT")],
)  # fmt: skip
def test_an_unknown_variable(name: str, message: str) -> None:
    assert case.error_of("node", (), {name: "1"}) == f"unknown variable {message}"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("local", "many"),
        ("local", ""),
        ("local", "-1"),
        ("local", "4097"),
        ("local", "1.5"),
        ("seed", "2147483648"),
        ("nodes", "65"),
        ("learning_rate", "0"),
        ("learning_rate", "nan"),
        ("epsilon_high", "inf"),
        ("mdns", "perhaps"),
        ("log_level", "loud"),
        ("subscribe_shards", "some"),
        ("subscribe_shards", "65"),
        ("subscribe_shards", "²"),
        ("tasks", "difficult"),
        ("listen", "127.0.0.1:4001"),
        ("listen", "/ip4/127.0.0.1/tcp/4001 /ip4/0.0.0.0/tcp/1"),
        ("listen", ""),
        ("bootstrap", "/ip4/127.0.0.1/tcp/4001"),
        ("allow_peers", "bob"),
        ("tasks", "x" * 5000),
        ("data_dir", ""),
        ("data_dir", " "),
        ("buffer_bytes", "64 parsecs"),
        ("archive_bytes", "-1MB"),
        ("buffer_bytes", "1kB"),
    ],
)
def test_a_bad_value_names_key_value_and_origin(variable: str, value: str) -> None:
    name = "SHOAL_" + variable.upper()
    line = case.error_of("node", (), {name: value})
    assert line.startswith(f"{variable} = ")
    assert f"(from {name}): " in line
    assert value[:70] in line
    assert len(line) < 300


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("local", '"many"'),
        ("local", "[1]"),
        ("local", "true"),
        ("learning_rate", "nan"),
        ("learning_rate", "false"),
        ("mdns", "3"),
        ("model", "3"),
        ("listen", "5"),
        ("listen", "[]"),
        ("listen", "[1, 2]"),
        ("listen", '["/ip4/127.0.0.1/tcp/1,/ip4/127.0.0.1/tcp/2"]'),
        ("data_dir", "1979-05-27"),
        ("local", "{ a = 1 }"),
    ],
)
def test_a_value_of_the_wrong_type_names_key_and_file(key: str, text: str) -> None:
    line = error_of_file(f"{key} = {text}")
    assert line.startswith(f"{key} = ")
    assert "(from shoal.toml): " in line


def test_a_size_is_shown_as_it_was_written() -> None:
    line = case.error_of("node", ["--buffer-bytes", "1kB"])
    assert line == "--buffer-bytes '1kB': must be a size from 128KiB to 1024TiB"


def test_a_bad_flag_names_the_flag() -> None:
    line = case.error_of("node", ["--local", "x\ny"])
    assert line.startswith(r"--local 'x\ny': ")
    assert "--bootstrap '/ip4/1.2.3.4/tcp/1': " in case.error_of(
        "node", ["--bootstrap", "/ip4/1.2.3.4/tcp/1"]
    )


def test_the_source_in_force_is_blamed_and_no_other() -> None:
    Path("shoal.toml").write_text("local = 'bad'")
    assert "--local 'worse'" in case.error_of("node", ["--local", "worse"], {"SHOAL_LOCAL": "bad"})
    assert case.loaded("node", ["--local", "3"]).settings.local == 3


def test_a_named_file_that_is_missing() -> None:
    assert case.error_of("node", ["--config", "no.toml"]) == (
        "cannot read no.toml: No such file or directory"
    )
    assert "cannot read also-no.toml" in case.error_of("node", (), {"SHOAL_CONFIG": "also-no.toml"})


def test_a_file_that_is_a_folder() -> None:
    Path("folder").mkdir()
    assert case.error_of("node", ["--config", "folder"]) == "cannot read folder: Is a directory"


def test_a_file_without_permission() -> None:
    Path("shoal.toml").touch(mode=0)
    with _as_unprivileged():
        assert case.error_of() == "cannot read shoal.toml: Permission denied"


@contextlib.contextmanager
def _as_unprivileged() -> Iterator[None]:
    """Run the block as an unprivileged user, because root reads everything."""
    if os.geteuid():
        yield
        return
    Path.cwd().chmod(0o755)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    "text", [b"local", b"local = ", b"a = 1\na = 2", b"\xff\xfe", b"local = '\n'", b"= 1"]
)
def test_a_file_that_is_not_toml(text: bytes) -> None:
    assert error_of_file(text).startswith("shoal.toml is not TOML: ")


@pytest.mark.parametrize(
    "flags", [("--local=0", "--external=0"), ("--local=0", "--external=0", "--questions=4")]
)
def test_rounds_with_nothing_in_them_are_refused(flags: tuple[str, ...]) -> None:
    assert "local and external are both 0" in case.error_of("trainer", flags)


def test_rounds_with_something_in_them_are_taken() -> None:
    for flags in (
        ["--local=0"],
        ["--external=0"],
        ["--role=generate", "--local=0", "--external=0", "--questions=4"],
    ):
        assert case.loaded("trainer", flags).settings.completions


@pytest.mark.parametrize("value", ["nonsense", "-1", "1.5", "1e999", "9" * 5000, "true"])
def test_no_error_has_the_words_of_pydantic(value: str) -> None:
    for field in Settings.model_fields:
        try:
            case.loaded("node", (), {f"SHOAL_{public_name(field).upper()}": value})
        except SettingsError as error:
            line = str(error)
            assert "Input should" not in line and "parse" not in line and "pydantic" not in line
