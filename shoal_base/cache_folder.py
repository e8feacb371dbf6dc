"""The folder for what shoal has converted once and can make again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """Return shoal's folder `name` in this user's cache (XDG basedir specification 0.8).

    Raises:
        LookupError: this user has no home folder; one line that says what to set.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    except RuntimeError:
        raise LookupError("this user has no home folder: set XDG_CACHE_HOME") from None
    return root / "shoal" / name
