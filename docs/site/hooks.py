"""Hooks of mkdocs: the menu is the index page's, and links out of docs/ become plain names.

One list of pages is enough: `docs/README.md` has it, and what it leaves out is in no menu.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

_HEADING = re.compile(r"^## (.+)$", re.M)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Make the menu of the sections of the index page and the links in them."""
    _, *parts = _HEADING.split(Path(config.docs_dir, "README.md").read_text(encoding="utf-8"))
    menu: list[Any] = [{"Welcome": "README.md"}]
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        pages = [
            {name[0].upper() + name[1:]: target}
            for name, target, _ in _LINK.findall(text)
            if target.endswith(".md") and {name: target} not in menu
        ]
        menu.append({title: pages})
    config.nav = menu
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leave of a link to a file outside docs/ its words: the site does not have that file."""

    def link(found: re.Match[str]) -> str:
        name, target, _section = found.groups()
        if not target or ":" in target:
            return found[0]
        place = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), target))
        return name if place.startswith("../") else found[0]

    return _LINK.sub(link, markdown)
