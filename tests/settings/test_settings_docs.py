"""docs/settings.md has, on the site, one row for every key with what the schema says of it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from shoal_settings.groups import BEGINNINGS, group_of
from shoal_settings.key import SIZES, rule_of, size_text
from shoal_settings.loader import off_value
from shoal_settings.schema import ALIASES, Settings, fields_of, public_name
from tests.settings import settings_cases as case
from tests.support.site import page

ROOT = Path(__file__).parents[2]
TEXT = page("settings.md")
FIELDS = tuple(Settings.model_fields)


def expected_row(field: str) -> str:
    """Return the row that documents `field`."""
    info = Settings.model_fields[field]
    flag = f"`{case.flag(field)}`"
    if info.annotation is bool and info.default:
        flag += f", `--no-{case.flag(field)[2:]}`"
    if off_value(info) is not None:
        flag += f", `--no-{case.flag(field)[2:]}`"
    flag += "".join(f", `{alias}`" for alias in ALIASES.get(field, ()))
    rule = rule_of(info).removeprefix("must be ")
    cells = (
        f"`{public_name(field)}`",
        flag,
        _default(size_text(info.default) if field in SIZES else info.default),
        f"{info.description} ({rule})" if rule else str(info.description),
    )
    return "| " + " | ".join(cells) + " |"


def _default(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value) or "none"
    return f"`{value}`"


def rows() -> dict[str, list[str]]:
    """Return the rows by the heading that they stand below."""
    _, *sections = re.split(r"^#+ ", TEXT, flags=re.M)
    found = {
        title: re.findall(r"^\| `[a-z_]+` \|.*", text, re.M)
        for title, _, text in (section.partition("\n") for section in sections)
    }
    return {title: below for title, below in found.items() if below}


@pytest.fixture(scope="module")
def product() -> str:
    """The code that may read settings."""
    rooms = ("bootstrap", "p2p", "policy", "shoal")
    return "".join(path.read_text() for room in rooms for path in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("field", FIELDS)
def test_a_key_is_read(field: str, product: str) -> None:
    read = "task_preset" if field == "tasks" else field
    assert re.search(rf"settings\.{read}\b", product), "nothing reads it"


@pytest.mark.parametrize("field", FIELDS)
def test_a_key_is_described(field: str) -> None:
    description = Settings.model_fields[field].description
    assert description
    assert description[-1] == "."
    assert "|" not in description
    assert any(field in fields_of(command) for command in case.COMMANDS)


def test_the_document_lists_every_key_and_no_other_in_the_groups_of_help() -> None:
    expected: dict[str, list[str]] = {}
    for group in BEGINNINGS.values():
        below = [expected_row(field) for field in FIELDS if group_of(field) == group]
        expected[group[0].upper() + group[1:]] = below
    assert list(rows().items()) == list(expected.items())


def test_the_document_names_no_flag_or_variable_that_does_not_exist() -> None:
    flags = {case.flag(field) for field in FIELDS} | {"--config", "--print-config", "--lr"}
    for named in re.findall(r"`(--[a-z][a-z-]*)", TEXT):
        positive = {"--" + named.removeprefix("--no-"), "--no-" + named.removeprefix("--")}
        assert named in flags or positive & flags, named
    variables = {case.variable(field) for field in FIELDS} | {"SHOAL_CONFIG"}
    assert set(re.findall(r"SHOAL_[A-Z_]+", TEXT)) <= variables


def test_the_example_file_loads(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    path = tmp_path / "shoal.toml"
    path.write_text(example, encoding="utf-8")
    result = case.loaded("node", ["--config", str(path)])
    keys = set(tomllib.loads(example))
    from_file = {name for name, origin in result.origins.items() if origin == str(path)}
    assert {public_name(field) for field in from_file} == keys
    # An example that repeats the defaults would teach nothing.
    for field in from_file:
        assert getattr(result.settings, field) != Settings.model_fields[field].default, field
