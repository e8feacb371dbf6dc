"""The page's own files, read once: what is not among them cannot be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFile:
    """One file."""

    content: bytes
    media_type: str


def static_files() -> dict[str, StaticFile]:
    """Return the files by their path below ``static``. Reads them."""
    found = sorted(path for path in _FOLDER.rglob("*") if path.suffix in _TYPES)
    return {
        path.relative_to(_FOLDER).as_posix(): StaticFile(
            content=path.read_bytes(), media_type=_TYPES[path.suffix]
        )
        for path in found
    }
