"""Each py-libp2p fault that is worked around here still exists, and a patch fixes it.

If one of these tests fails, the library has been fixed: remove the script from
docs/contributing/upstream/README.md, and check whether the work-around named there can go.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libp2p
import pytest

from tests.support import site

DOCS = Path(__file__).resolve().parents[3] / "docs"
PATCHES = sorted(p.stem for p in (DOCS / "contributing" / "upstream" / "patches").glob("*.patch"))
SCRIPTS = sorted(
    p.name for p in (DOCS / "contributing" / "upstream").glob("*.py") if p.name != "stock.py"
)
CRASHING = {
    "inbound_slots.py",
    "junk_key.py",
    "long_key.py",
    "malformed_rpc.py",
    "raising_validator.py",
}
"""They end, stall or shut a peer."""


def command(script: str, *flags: str) -> list[str]:
    return [sys.executable, str(DOCS / "contributing" / "upstream" / script), *flags]


def allowed(script: str) -> list[str]:
    return command(script, *(["--crash"] if script in CRASHING else []))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_fault_is_still_there(script: str) -> None:
    done = subprocess.run(
        allowed(script),
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
def test_the_patch_fixes_it(name: str, tmp_path: Path) -> None:
    assert libp2p.__file__ is not None
    shutil.copytree(Path(libp2p.__file__).parent, tmp_path / "libp2p")
    patch = (DOCS / "contributing" / "upstream" / "patches" / f"{name}.patch").read_bytes()
    subprocess.run(["patch", "-p1", "--fuzz=0"], input=patch, cwd=tmp_path, check=True)
    done = subprocess.run(
        allowed(f"{name}.py"),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "fixed: " in done.stdout, done.stderr[-2000:]


def test_scripts_and_their_descriptions_match() -> None:
    text = site.page("contributing/upstream/README.md")
    named = set(re.findall(r"\(([a-z_]+\.py)\)", text))
    assert named == set(SCRIPTS)
    patches = set(re.findall(r"\(patches/([a-z_]+)\.patch\)", text))
    assert patches == set(PATCHES)
    assert {f"{name}.py" for name in PATCHES} <= named


@pytest.fixture(scope="module")
def stock() -> Iterator[Any]:
    """The scripts' common part."""
    sys.path.insert(0, str(DOCS / "contributing" / "upstream"))
    try:
        yield importlib.import_module("stock")
    finally:
        sys.path.remove(str(DOCS / "contributing" / "upstream"))


def refused(stock: Any, crash: str, argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        stock.allow(crash, argv)
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("refused: ")
    return line


STRANGE = (
    *("0.0.0.0", "::", "8.8.8.8", "10.0.0.1", "192.168.1.1", "169.254.1.1", "255.255.255.255"),
    *("126.255.255.255", "128.0.0.0", "224.0.0.1", "2001:db8::1", "fe80::1", "fc00::1", "::2"),
    *("::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1", "::1%lo", "::1/128"),
    *("localhost", "localhost.", "example.org", "127.0.0.1.nip.io", "ip6-localhost", "", " "),
    *("127.1", "127.0.0.1:4001", "0x7f000001", "2130706433", "0177.0.0.1", "127.0.0.01", "[::1]"),
    *("/ip4/127.0.0.1", "/ip4/8.8.8.8/tcp/1", "127.0.0.1 8.8.8.8", "127.0.0.1\n8.8.8.8"),
)


def test_no_script_connects_to_another_address(
    stock: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for address in STRANGE:
        refused(stock, "ends", ["--crash", f"--at={address}"], capsys)


def test_scripts_that_end_a_peer_require_a_flag(
    stock: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--crash does it" in refused(stock, "ends", [], capsys)
    for argv in (["--at=127.0.0.1"], ["--cr"], ["--crash", "8.8.8.8"], ["--crash", "--at"]):
        refused(stock, "ends", argv, capsys)
    refused(stock, "", ["--crash"], capsys)  # a patch that crashes is refused
    stock.allow("ends", ["--crash"])
    stock.allow("", [])


def test_the_scripts_state_their_effect_and_are_ready_to_report() -> None:
    crashes = {
        script
        for script in SCRIPTS
        if re.search(
            r"^run\(.*(crash|dies)=",
            (DOCS / "contributing" / "upstream" / script).read_text(),
            re.M,
        )
    }
    assert crashes == CRASHING
    ready, _, _ = site.page("contributing/upstream/README.md").partition(
        "## Faults that hurt only the user"
    )
    assert set(re.findall(r"\]\(([a-z_]+\.py)\)", ready)) >= CRASHING


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_says_so_itself(script: str) -> None:
    flags = ["--crash", "--at=8.8.8.8"]
    for given in ([], flags) if script in CRASHING else (flags,):
        done = subprocess.run(
            command(script, *given), capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1
