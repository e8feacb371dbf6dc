"""JSON that a person can read, a row a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping


def one_a_line(content: Mapping[str, object], name: str, rows: Iterable[object]) -> str:
    """Return `content` as JSON, and in it, under `name`, `rows`, each on a line of its own.

    Many times quicker than an indented one, which the standard library writes in Python.
    """
    head = [f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in content.items()]
    body = ",\n ".join(map(json.dumps, rows))
    return f"{{{''.join(head)}{json.dumps(name)}: [\n {body}\n]}}\n"
