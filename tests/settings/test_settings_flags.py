"""A child process given `to_flags` has the parent's settings, whatever else it can read."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from shoal_settings.loader import to_flags
from shoal_settings.schema import Command, Settings, fields_of
from tests.settings import settings_cases as case

FIELDS = tuple(Settings.model_fields)


pytestmark = pytest.mark.usefixtures("empty_folder")


def read_by(command: Command, chosen: Settings) -> dict[str, Any]:
    return {field: getattr(chosen, field) for field in fields_of(command)}


@pytest.mark.parametrize("command", case.COMMANDS)
def test_every_key_of_every_command_survives(command: Command) -> None:
    chosen = Settings(**{field: case.other_value(field) for field in FIELDS})
    for field in fields_of(command):
        assert getattr(chosen, field) != Settings.model_fields[field].default
    child = case.loaded(command, to_flags(chosen, command))
    assert read_by(command, child.settings) == read_by(command, chosen)


@pytest.mark.parametrize("command", case.COMMANDS)
def test_defaults_survive_an_environment_and_a_file_that_say_otherwise(command: Command) -> None:
    environment = {case.variable(f): case.as_text(case.other_value(f)) for f in FIELDS}
    Path("shoal.toml").write_text('local = 77\nrole = "generate"')
    child = case.loaded(command, to_flags(Settings(), command), environment)
    assert read_by(command, child.settings) == read_by(command, Settings())
    origins = {child.origins[field][:2] for field in fields_of(command)}
    assert origins == {"--"}


def value_of(field: str) -> st.SearchStrategy[Any]:
    annotation = Settings.model_fields[field].annotation
    if annotation is bool:
        return st.booleans()
    if annotation is int:
        return st.integers(0, 2**40) | st.integers(0, 100)
    if annotation is float:
        return st.floats(0, 1e6) | st.floats(0, 1)
    if annotation in (str, Path):
        return st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10)
    return st.just(case.other_value(field))


@example({"model": "--"})
@given(st.fixed_dictionaries({}, optional={field: value_of(field) for field in FIELDS}))
@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_valid_settings_survive(values: dict[str, Any]) -> None:
    valid: dict[str, Any] = {}
    for field, value in values.items():
        with contextlib.suppress(ValidationError):
            valid[field] = getattr(Settings(**{field: value}), field)
    chosen = Settings(**valid)
    for command in case.COMMANDS:
        child = case.loaded(command, to_flags(chosen, command))
        assert read_by(command, child.settings) == read_by(command, chosen)
