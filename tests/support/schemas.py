"""Compares a command's --json output with its schema: all the keys it names, and no others."""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema

from shoal.schema import schema_of

OPEN = ("RoundEvent", "Config", "ExperimentOutput")
"""Types whose keys other pages list."""


def check(words: str, printed: Any) -> None:
    """Fail if `printed` does not match a command's schema, or has additional keys."""
    assert printed["schema_version"] >= 1
    _validator(words).validate(printed)


@cache
def _validator(words: str) -> jsonschema.Draft202012Validator:
    schema = schema_of(words)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(_closed(schema))


def _closed(schema: Any) -> Any:
    """Return a schema that accepts only the keys that it names."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("title") not in OPEN:
        made.setdefault("additionalProperties", False)
    return made
