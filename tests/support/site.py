"""The pages of docs/ as the site shows them: with the tables that it makes of the code."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SPEC = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs/site/hooks.py")
assert _SPEC is not None
assert _SPEC.loader is not None
_HOOKS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_HOOKS)


def page(name: str) -> str:
    """Return the text of a page of docs/, with its tables."""
    text: str = _HOOKS.expanded((ROOT / "docs" / name).read_text(encoding="utf-8"))
    return text
