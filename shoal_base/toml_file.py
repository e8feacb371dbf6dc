"""Reads a TOML file that a person has named, whatever is really there. Blocks."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from shoal_base.files import SMALL_FILE_BYTES, read_at_most


def read_toml(path: Path) -> dict[str, Any]:
    """Return a file's table.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not TOML; one line that names the file.
    """
    try:
        return tomllib.loads(read_at_most(path, SMALL_FILE_BYTES).decode("utf-8"))
    except RecursionError:
        raise ValueError(f"{path} is not TOML: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
