"""Conversion of messages to an environment's actions, and of observations to text. Pure.

An OpenEnv environment publishes a JSON schema of both. A message of the policy becomes

    the only required field (or the only field), if that is a text   the message unchanged
    the same, if it is a number or true/false                        the message parsed as JSON
    anything else                                                    the message as a JSON object

and an observation becomes the text of its only field, otherwise JSON of all fields, sorted by name.
A task file may choose the field of either. `metadata`, `reward` and `done` never count as fields of
an observation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from shoal_tasks.errors import FamilyError
from shoal_tasks.spec import canonical_json

_NOT_AN_ACTION_FIELD: Final = frozenset({"metadata"})
_HIDDEN_FIELDS: Final = frozenset({"metadata", "reward", "done"})
_SCALARS: Final = frozenset({"integer", "number", "boolean"})
_ANNOTATIONS: Final = frozenset({"title", "description", "examples", "example", "$comment"})
"""Schema keys without influence on the accepted values: builds may differ in them."""
_MAX_DEPTH: Final = 32
"""Maximum nesting of a schema."""


class NotAnActionError(ValueError):
    """The message is not an action of the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionForm:
    """Converts messages to actions."""

    field: str
    """The field that a message becomes; empty if a message is a whole JSON object."""
    is_text: bool

    def action(self, message: str) -> dict[str, Any]:
        """Return the action of a message. Raises `NotAnActionError`."""
        if self.field and self.is_text:
            return {self.field: message}
        try:
            value = json.loads(message, parse_constant=_refuse)
        except (ValueError, RecursionError):
            raise NotAnActionError from None
        if self.field:
            if isinstance(value, dict | list | str) or value is None:
                raise NotAnActionError
            return {self.field: value}
        if not isinstance(value, dict):
            raise NotAnActionError
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationForm:
    """Converts observations to texts."""

    field: str
    """The field that is shown; empty to show all as JSON."""

    def text(self, observation: Mapping[str, Any]) -> str:
        """Return what the policy sees of an observation."""
        if self.field in observation:
            value = observation[self.field]
            return (
                value if isinstance(value, str) else canonical_json("" if value is None else value)
            )
        return canonical_json(
            {key: value for key, value in observation.items() if key not in _HIDDEN_FIELDS}
        )


def action_form(schema: object, wanted: str = "") -> ActionForm:
    """Return the conversion of messages for this schema; `wanted` is the field to use, if any.

    Raises `FamilyError`: the schema is invalid, or has no such field.
    """
    fields = _fields(schema, _NOT_AN_ACTION_FIELD, "action")
    required = [name for name in _required(schema) if name in fields]
    chosen = wanted or _only(required) or ("" if required else _only(list(fields)))
    if wanted and wanted not in fields:
        raise FamilyError(_no_field("action", wanted, fields))
    kinds = _kinds(fields.get(chosen, {}), schema)
    if "string" in kinds:
        return ActionForm(field=chosen, is_text=True)
    if kinds & _SCALARS:
        return ActionForm(field=chosen, is_text=False)
    if wanted:
        raise FamilyError(f"the action's field {wanted!r} is neither a text nor a number")
    return ActionForm(field="", is_text=False)


def observation_form(schema: object, wanted: str = "") -> ObservationForm:
    """Return the conversion of observations for this schema; `wanted` as in `action_form`."""
    fields = _fields(schema, _HIDDEN_FIELDS, "observation")
    if wanted and wanted not in fields:
        raise FamilyError(_no_field("observation", wanted, fields))
    only = _only(list(fields))
    is_text = "string" in _kinds(fields.get(only, {}), schema)
    return ObservationForm(field=wanted or (only if is_text else ""))


def strip_annotations(schema: object, depth: int = 0) -> Any:
    """Return a schema without titles, descriptions and examples. Raises `FamilyError`."""
    if depth > _MAX_DEPTH:
        raise FamilyError("the server's schema is nested too deeply")
    if isinstance(schema, dict):
        return {
            key: strip_annotations(value, depth + 1)
            for key, value in schema.items()
            # A field may be named `title`: keys below `properties` are field names.
            if key not in _ANNOTATIONS or isinstance(value, dict)
        }
    if isinstance(schema, list):
        return [strip_annotations(one, depth + 1) for one in schema]
    return schema


def _refuse(_constant: str) -> None:
    raise NotAnActionError


def _only(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ""


def _fields(schema: object, without: frozenset[str], what: str) -> dict[str, Any]:
    properties = schema.get("properties", {}) if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        raise FamilyError(f"the server has no JSON schema for its {what}s")
    return {name: field for name, field in properties.items() if name not in without}


def _required(schema: object) -> list[str]:
    names = schema.get("required", []) if isinstance(schema, dict) else []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _kinds(field: object, schema: object) -> set[str]:
    """Return the JSON types that a field accepts, through one `$ref` and `anyOf`."""
    if not isinstance(field, dict):
        return set()
    ref = field.get("$ref")
    if isinstance(ref, str) and isinstance(schema, dict):
        definitions = schema.get("$defs")
        name = ref.rpartition("/")[2]
        field = definitions.get(name) if isinstance(definitions, dict) else None
        if not isinstance(field, dict):
            return set()
    kind, choices = field.get("type"), field.get("anyOf")
    found = {kind} if isinstance(kind, str) else set()
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and isinstance(choice.get("type"), str):
            found.add(choice["type"])
    for value in [field.get("const"), *_listed(field.get("enum"))]:
        if isinstance(value, str):
            found.add("string")
    return found


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _no_field(what: str, wanted: str, fields: Mapping[str, Any]) -> str:
    names = ", ".join(map(repr, fields)) or "none"
    return f"the {what} has no field {wanted!r}; its fields are {names}"
