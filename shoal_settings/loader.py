"""defaults < TOML file < environment < flags, with the origin of every value.

Errors are for people: one line that names the key, where it came from and what is allowed.
"""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from shoal_base.lines import readable_json
from shoal_base.toml_file import read_toml
from shoal_settings.groups import LISTS, choices_of, group_of
from shoal_settings.key import SIZES, rule_of, size_text
from shoal_settings.parser import did_you_mean
from shoal_settings.real_models import fill_in, sentence
from shoal_settings.schema import ALIASES, Command, Settings, fields_of, public_name

ENV_PREFIX = "SHOAL_"
CONFIG_VARIABLE = "SHOAL_CONFIG"
DEFAULT_CONFIG = Path("shoal.toml")
EMBEDDED = ("tiny", "tiny-sparse", "tiny-games")
FOR_LARGE = "default for a model of this size"
FOR_TASKS = "default for these tasks"
PLAYS = {"games-1": "tiny-games"}
"""Presets for which another embedded model is the default: the others know none of their games."""
RATES = {"tiny-games": 2e-4}
"""Learning rates of embedded models, if the default is not the best (docs/models.md)."""
_SMALL_BYTES = 80 << 20  # some 20 million float32 weights


class SettingsError(Exception):
    """An invalid setting. The message is one line for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Settings, and the origin of each."""

    settings: Settings
    origins: Mapping[str, str]
    """Field name to `default`, `FOR_LARGE`, `FOR_TASKS`, a file, a variable or a flag."""


def add_flags(
    parser: argparse.ArgumentParser,
    command: Command,
    defaults: Mapping[str, Any] | None = None,
    *,
    name: str = "",
) -> None:
    """Add `command`'s flags, `--config` and `--print-config` to `parser`.

    `defaults` are the command's own, which its help shows instead of the schema's. `name` is what
    the user types, where that is another word than `command`.
    """
    groups: dict[str, argparse._ArgumentGroup] = {}
    for field in fields_of(command):
        info, title = Settings.model_fields[field], group_of(field)
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        text = described(field, name or command)
        _add_flag(groups[title], field, text, (defaults or {}).get(field, info.default))
        if field == "data_dir":
            _add_config(groups[title])


def _add_config(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--config", metavar="FILE", help="TOML file of settings (default: ./shoal.toml, if any)"
    )
    group.add_argument(
        "--print-config", action="store_true", help="show every setting and its origin, and exit"
    )


def load(
    command: Command,
    arguments: argparse.Namespace,
    environment: Mapping[str, str],
    *,
    overrides: Mapping[str, Any] | None = None,
) -> Loaded:
    """Merge all sources for `command`.

    Raises:
        SettingsError: one line saying what is wrong and where it came from.
    """
    values: dict[str, Any] = dict(overrides or {})
    origins: dict[str, str] = dict.fromkeys(values, "default")
    for layer in (
        _file_layer(arguments, environment),
        _environment_layer(environment),
        _flag_layer(command, arguments),
    ):
        for field, (value, origin) in layer.items():
            values[field] = value
            origins[field] = origin
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise SettingsError(_explain(error, values, origins)) from None
    if "model" not in origins and settings.task_preset in PLAYS:
        settings = settings.model_copy(update={"model": PLAYS[settings.task_preset]})
        origins["model"] = FOR_TASKS
    if "learning_rate" not in origins and settings.model in RATES:
        settings = settings.model_copy(update={"learning_rate": RATES[settings.model]})
        origins["learning_rate"] = FOR_LARGE
    if not is_small(settings.model):
        settings, filled = fill_in(settings, origins)
        origins |= dict.fromkeys(filled, FOR_LARGE)
    return Loaded(
        settings=settings,
        origins={field: origins.get(field, "default") for field in Settings.model_fields},
    )


def defaults_line_of(loaded: Loaded) -> str:
    """Return a line with the defaults for a large model that apply; empty if none do."""
    filled = [field for field, origin in loaded.origins.items() if origin == FOR_LARGE]
    return sentence(loaded.settings, filled) if filled else ""


def is_small(model: str) -> bool:
    """Return whether a model is an embedded one, or a folder with less than some 20 M weights.

    Any other name may be of any size, and counts as large.
    """
    if model in EMBEDDED:
        return True
    with contextlib.suppress(OSError):
        weights = [path.stat().st_size for path in Path(model).glob("*.safetensors")]
        return bool(weights) and sum(weights) <= _SMALL_BYTES
    return False


def to_flags(
    settings: Settings, command: Command, *, only: Container[str] | None = None
) -> list[str]:
    """Return flags that give `command` these settings, for a child process, or `only` some.

    Defaults are spelled out too: the child reads the same file and environment as we did, and
    only a flag outranks them.
    """
    flags: list[str] = []
    for field in fields_of(command):
        if only is not None and field not in only:
            continue
        value = getattr(settings, field)
        if isinstance(value, bool):
            flags.append(_flag(field) if value else _negative_flag(field))
        elif isinstance(value, tuple):
            # One empty item means an empty list.
            flags += [f"{_flag(field)}={item}" for item in value or ("",)]
        else:
            flags.append(f"{_flag(field)}={value}")
    return flags


def describe(loaded: Loaded, command: Command) -> dict[str, dict[str, Any]]:
    """Return the content of `--print-config`: key → value and origin."""
    dumped = loaded.settings.model_dump(mode="json")
    return {
        public_name(field): {"value": dumped[field], "origin": loaded.origins[field]}
        for field in fields_of(command)
    }


def describe_text(loaded: Loaded, command: Command) -> str:
    """Return `--print-config` as TOML lines, with origins in comments."""
    lines = []
    for key, row in describe(loaded, command).items():
        shown = readable_json(row["value"])
        lines.append(f"{key} = {shown}  # {row['origin']}")
    return "\n".join(lines)


def described(field: str, command: str) -> str:
    """Return a setting's description for a command or `judge`; empty if it has no effect there."""
    info = Settings.model_fields[field]
    instead: Any = info.json_schema_extra["instead"]  # type: ignore[index]
    return str(instead.get(command, info.description or ""))


def _add_flag(parser: argparse._ArgumentGroup, field: str, text: str, default: object) -> None:
    info, flag = Settings.model_fields[field], _flag(field)
    flags = [flag, *ALIASES.get(field, ())]
    description, shown = text.replace("%", "%%"), _shown_default(field, default)
    help_text = f"{description} (default: {shown})" if shown else description
    common: dict[str, Any] = {
        "dest": field,
        "default": None,
        "help": help_text if text else argparse.SUPPRESS,
    }
    if info.annotation is bool:
        action = argparse.BooleanOptionalAction if info.default else "store_true"
        parser.add_argument(flag, action=action, **common)
        if not info.default:
            # Not listed: it only overrides a file or variable that turned it on.
            off = common | {"help": argparse.SUPPRESS}
            parser.add_argument(_negative_flag(field), action="store_false", **off)
    elif _is_tuple(info):
        parser.add_argument(*flags, action="append", metavar=_metavar(field), **common)
    else:
        parser.add_argument(*flags, metavar=_metavar(field), **common)
    if (nothing := off_value(info)) is not None:
        common["help"] = f"the same as {flag}={nothing}"
        parser.add_argument(_negative_flag(field), action="store_const", const=nothing, **common)


def off_value(info: FieldInfo) -> str | None:
    """Return the value that ``--no-…`` sets; None if a setting has no such flag."""
    extra = info.json_schema_extra
    value = extra.get("off") if isinstance(extra, dict) else None
    return value if isinstance(value, str) else None


def _flag(field: str) -> str:
    return "--" + public_name(field).replace("_", "-")


def _negative_flag(field: str) -> str:
    name = public_name(field).replace("_", "-")
    return "--no-" + name


def _metavar(field: str) -> str:
    names = {"local": "I", "external": "J", "completions": "L", "data_dir": "DIR"}
    names |= dict.fromkeys(("listen", "bootstrap", "announce", "judge"), "MULTIADDR")
    names |= {"http": "HOST:PORT", "http_name": "NAME"}
    names |= {"swarm_key": "FILE", "tasks": "NAME|FILE"}
    names |= dict.fromkeys(SIZES, "SIZE")
    if (choices := choices_of(field)) and field not in LISTS:
        return f"{{{','.join(choices)}}}"
    return names.get(
        field, "N" if Settings.model_fields[field].annotation in (int, float) else "VALUE"
    )


def _shown_default(field: str, default: object) -> str:
    if isinstance(default, bool):
        return "on" if default else ""
    if isinstance(default, tuple):
        return ", ".join(default)
    if field in SIZES and isinstance(default, int):
        return size_text(default)
    return str(default)


def _is_tuple(info: FieldInfo) -> bool:
    annotation = info.annotation
    return get_origin(annotation) is tuple or any(
        get_origin(arg) is tuple for arg in get_args(annotation)
    )


_Layer = dict[str, tuple[Any, str]]


def _file_layer(arguments: argparse.Namespace, environment: Mapping[str, str]) -> _Layer:
    named = getattr(arguments, "config", None) or environment.get(CONFIG_VARIABLE)
    path = Path(named) if named else DEFAULT_CONFIG
    if not named and not path.exists():
        return {}
    try:
        table = read_toml(path)
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(str(error)) from None
    known = _known_names()
    for key in table:
        if key not in known:
            raise SettingsError(f"{path}: unknown key {key!r}{did_you_mean(key, known)}")
    return {known[key]: (value, str(path)) for key, value in table.items()}


def _environment_layer(environment: Mapping[str, str]) -> _Layer:
    known = _known_names()
    layer: _Layer = {}
    for variable, value in environment.items():
        if not variable.startswith(ENV_PREFIX) or variable == CONFIG_VARIABLE:
            continue
        key = variable.removeprefix(ENV_PREFIX).lower()
        if key not in known:
            raise SettingsError(f"unknown variable {variable}{did_you_mean(key, known)}")
        layer[known[key]] = (value, variable)
    return layer


def _flag_layer(command: Command, arguments: argparse.Namespace) -> _Layer:
    layer: _Layer = {}
    for field in fields_of(command):
        value = getattr(arguments, field, None)
        if value is not None:
            # Joined as in a variable, so that commas and empty items mean the same in both.
            joined = ",".join(value) if isinstance(value, list) else value
            layer[field] = (joined, _given_flag(field, value))
    return layer


def _given_flag(field: str, value: Any) -> str:
    return _negative_flag(field) if value is False else _flag(field)


def _known_names() -> dict[str, str]:
    return {public_name(field): field for field in Settings.model_fields}


_PLAIN = {
    "bool_parsing": "must be on or off",
    "bool_type": "must be on or off",
}
"""Messages for invalid values, by pydantic's type of error."""


def _explain(error: ValidationError, values: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    field = str(first["loc"][0]) if first["loc"] else "?"
    origin = origins.get(field, "default")
    message = first["msg"].replace("Input should be", "must be").removeprefix("Value error, ")
    message = _PLAIN.get(first["type"], message)
    if first["type"] != "value_error" and field in Settings.model_fields:
        message = rule_of(Settings.model_fields[field]) or message
    given = values[field] if field in SIZES else first.get("input")  # a size as it was written
    shown = ",".join(given) if isinstance(given, tuple) else str(given)
    message += _meant(field, shown)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    if origin.startswith("--"):
        return f"{origin} {shown!r}: {message}"
    return f"{public_name(field)} = {shown!r} (from {origin}): {message}"


def _meant(field: str, given: str) -> str:
    """Return a suggestion for a word that the setting does not know; empty without one."""
    known = [word for word in choices_of(field) if word not in ("none", "auto")]
    wrong = [word for word in re.split("[,+]", given) if word not in known]
    return did_you_mean(wrong[0], known) if known and wrong else ""
