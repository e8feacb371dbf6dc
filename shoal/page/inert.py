r"""Answers as a browser gets them: no character in them acts, whoever wrote it. Pure.

The page puts text into the document as text alone; what is left is that a text turns round, hides
or floods what stands beside it: `shoal_base.visible` sees to the first two, bounds to the last.
"""

from __future__ import annotations

from typing import Any, Final

from shoal_base.visible import visible, visible_lines

LONG_TEXTS: Final = frozenset({"text", "question", "expected"})
"""Keys of texts that may have lines."""
MAX_TEXT_CHARS: Final = 64 * 1024
MAX_NAME_CHARS: Final = 4096
_MAX_DEPTH: Final = 16
_CUT: Final = "… (cut)"


def inert(value: Any, *, key: str = "", depth: int = 0) -> Any:
    """Return JSON values whose every text, keys included, only stands there and is bounded."""
    if isinstance(value, str):
        return _long(value) if key in LONG_TEXTS else _short(value)
    if depth >= _MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return {
            _short(str(name)): inert(part, key=str(name), depth=depth + 1)
            for name, part in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [inert(part, key=key, depth=depth + 1) for part in value]
    if isinstance(value, float) and value - value != 0:  # JSON has no such numbers
        return None
    return value if isinstance(value, (int, float, bool)) or value is None else None


def _short(text: str) -> str:
    return visible(text[:MAX_NAME_CHARS]) + (_CUT if len(text) > MAX_NAME_CHARS else "")


def _long(text: str) -> str:
    cut = _CUT if len(text) > MAX_TEXT_CHARS else ""
    return "\n".join(visible_lines(text[:MAX_TEXT_CHARS])) + cut
