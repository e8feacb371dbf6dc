"""What README and docs print to be copied can be typed: every command in a block parses."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shoal.test_help import check_parses

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
_PROGRAM = re.compile(r"^(?:\$ )?(?:\S*/)?(shoal .*)$")
_MAKE = re.compile(r"^(?:\$ )?(make .*)$")


def lines_of(page: Path) -> Iterator[str]:
    """Yield the lines of a page's blocks, without what stands behind them."""
    for block in re.findall(r"^```(?:sh|console|bash)?\n(.*?)^```", page.read_text(), re.M | re.S):
        if re.search("[┌─▶]", block):  # a drawing
            continue
        joined = block.replace("\\\n", " ")
        yield from (
            re.sub(r"\s+# .*|(?<=\S)\s{3,}.*", "", line).strip() for line in joined.splitlines()
        )


PRINTED = sorted({m[1] for page in PAGES for line in lines_of(page) if (m := _PROGRAM.match(line))})
MADE = sorted({m[1] for page in PAGES for line in lines_of(page) if (m := _MAKE.match(line))})


def test_there_are_many() -> None:
    assert len(PRINTED) >= 15
    assert len(MADE) >= 10


@pytest.mark.parametrize("line", PRINTED)
def test_a_printed_command_parses(line: str) -> None:
    check(line)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_what_make_would_run_parses() -> None:
    for line in MADE:
        done = subprocess.run(
            ["make", "-n", *shlex.split(line)[1:]],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"]},  # not the ARGS of the command that runs these tests
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (line, done.stderr)
        for run in done.stdout.splitlines():
            if (found := _PROGRAM.match(run)) is not None:
                check(found[1])


def check(line: str) -> None:
    """Fail where a command names what there is not; pipes and what follows are skipped."""
    words = shlex.split(re.split(r" [|>&;] ?", line)[0])
    check_parses(shlex.join(words))
