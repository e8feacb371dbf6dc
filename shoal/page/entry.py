"""The door to `shoal page`: says what to install where the page's libraries are missing."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from shoal_base.extras import missing_for_page
from shoal_settings.exits import fail


def main(argv: Sequence[str]) -> int:
    """Run `shoal page`; return the exit code."""
    if (missing := missing_for_page()) is not None:
        return fail("page", missing).code
    code: int = importlib.import_module("shoal.page.command").main(argv)
    return code
