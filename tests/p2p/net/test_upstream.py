"""Each fault of py-libp2p that is worked around here is still there.

When one of these fails, the library has been mended: take the script out of docs/upstream.md, and
see whether the work-around named beside it can go.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"
SCRIPTS = sorted(p.name for p in (DOCS / "upstream").glob("*.py") if p.name != "stock.py")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_fault_is_still_there(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(DOCS / "upstream" / script)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "broken: " in done.stdout, done.stderr[-2000:]
    assert done.returncode == 1


def test_every_script_is_written_up_and_every_one_written_up_is_there() -> None:
    named = set(re.findall(r"\(upstream/([a-z_]+\.py)\)", (DOCS / "upstream.md").read_text()))
    assert named == set(SCRIPTS)
