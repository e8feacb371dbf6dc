"""Each fault of py-libp2p that is worked around here is still there, and a patch mends it.

When one of these fails, the library has been mended: take the script out of docs/upstream.md, and
see whether the work-around named beside it can go.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import libp2p
import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"
PATCHES = sorted(p.stem for p in (DOCS / "upstream" / "patches").glob("*.patch"))
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


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("patch") is None, reason="there is no patch here")
@pytest.mark.parametrize("name", PATCHES)
def test_the_patch_mends_it(name: str, tmp_path: Path) -> None:
    assert libp2p.__file__ is not None
    shutil.copytree(Path(libp2p.__file__).parent, tmp_path / "libp2p")
    patch = (DOCS / "upstream" / "patches" / f"{name}.patch").read_bytes()
    subprocess.run(["patch", "-p1", "--fuzz=0"], input=patch, cwd=tmp_path, check=True)
    done = subprocess.run(
        [sys.executable, str(DOCS / "upstream" / f"{name}.py")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "fixed: " in done.stdout, done.stderr[-2000:]


def test_every_script_is_written_up_and_every_one_written_up_is_there() -> None:
    text = (DOCS / "upstream.md").read_text()
    named = set(re.findall(r"\(upstream/([a-z_]+\.py)\)", text))
    assert named == set(SCRIPTS)
    patches = set(re.findall(r"\(upstream/patches/([a-z_]+)\.patch\)", text))
    assert patches == set(PATCHES)
    assert {f"{name}.py" for name in PATCHES} <= named
