"""The type of a debug view."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

View = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Makes a view, as JSON values, from its options."""
