"""The pages of docs/, with the tables that `make tables` generates from the code."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def page(name: str) -> str:
    """Return the text of a page of docs/."""
    return (ROOT / "docs" / name).read_text(encoding="utf-8")
