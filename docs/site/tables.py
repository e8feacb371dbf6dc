"""Writes the tables that are generated from the code into the pages of docs/: `make tables`.

With ``--check`` it only compares, and exits with 1 if a page is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hooks import with_tables

DOCS = Path(__file__).resolve().parents[1]


def main() -> int:
    """Write or compare every page, and return the exit code."""
    only_check = "--check" in sys.argv
    stale = []
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        generated = with_tables(text)
        if generated == text:
            continue
        stale.append(str(page.relative_to(DOCS)))
        if not only_check:
            page.write_text(generated, encoding="utf-8")
    if stale and only_check:
        print(
            f"tables out of date in docs/: {', '.join(stale)}."
            " Run `make tables` (or python docs/site/tables.py) and commit the result."
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
