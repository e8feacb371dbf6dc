"""What README and docs print to be copied can be typed: every command in a block parses."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.parsers import parser_for
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


def printed_by_the_program() -> Iterator[tuple[Path, str]]:
    """Yield each command in backticks of the program's texts, with what it stands for filled in."""
    for package in ("shoal", "p2p", "policy", "bootstrap", "shoal_settings", "shoal_tasks"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for found in ast.walk(ast.parse(path.read_text())):
                if isinstance(found, ast.Constant) and isinstance(found.value, str):
                    text = " ".join(found.value.split())
                    yield from ((path, line) for line in re.findall(r"`(shoal [^`{…@]*)`", text))


PEER = "12D3KooWJvLVS1xjT31deqxHxz4bhhnYacJUn2USvGKognpgREoz"
STANDS_FOR = {
    "ADDRESS": f"/ip4/127.0.0.1/tcp/4001/p2p/{PEER}",
    "PEER": PEER,
    "LINE": "shoal1",
    "NAME": "words",
    "FILE": "mine.toml",
    "DATA": "mine.jsonl",
    "DIR": "folder",
    "M": "tiny",
    "FOLDER": "folder",
    "GAME": "guess_number",
    "FAMILY": "gcd",
    "COMMAND": "node",
    "VIEW": "peers",
}


def test_every_command_in_a_message_parses() -> None:
    lines = {line: path for path, line in printed_by_the_program()}
    assert len(lines) > 40
    for line, path in lines.items():
        words = [STANDS_FOR.get(word, word) for word in line.split()]
        assert not [one for one in words[1:] if one.isupper()], (path, line)
        try:
            check_name_and_flags(words)
        except SystemExit:
            pytest.fail(f"{path}: {line}")


def check_name_and_flags(words: list[str]) -> None:
    """Fail where a command or a flag does not exist; what a message leaves to the reader may."""
    parser = parser_for([*words[1:3]] if words[1] != "join" else ["node"])
    assert parser is not None, words
    known = {flag for action in parser._actions for flag in action.option_strings}
    flags = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert flags <= known | {"--help"}, words
