"""The examples of docs/contributing/changing.md, applied to a copy of the tree.

Every section has one. With all of its blocks the tests that the section names pass; with any one
block missing they fail. The slow suite checks the second, as it does for mutations.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.support.tree import ROOT, Tree
from tests.threats.runs import Runs, open_runs

pytestmark = pytest.mark.timeout(300)  # the first imports what the tests of every section use

PAGE = (ROOT / "docs" / "contributing" / "changing.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Block:
    """One edit of a file."""

    path: str
    lines: tuple[str, ...]
    """Each behind its mark: a space stays, + comes, - goes."""

    def applied(self, text: str) -> str:
        """Return the file's text after the edit; lines that are only added go to its end."""
        before, after = self._side("-"), self._side("+")
        if not before:
            return text + after
        assert text.count(before) == 1, f"{self.path} does not hold these lines once: {before}"
        return text.replace(before, after)

    def _side(self, mark: str) -> str:
        return "".join(f"{line[1:]}\n" for line in self.lines if line[:1] in (" ", mark, ""))


@dataclass(frozen=True)
class Change:
    """A section of the page that is spelled out in code."""

    title: str
    blocks: tuple[Block, ...]
    tests: tuple[str, ...]


def changes() -> dict[str, Change]:
    found = {}
    for section in PAGE.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        named = re.search(r"^\*\*Tests\*\*: ((?:.+\n)+)", body, re.M)
        if named is not None:
            found[title] = Change(
                title=title,
                blocks=tuple(
                    Block(path=path, lines=tuple(lines.splitlines()))
                    for path, lines in re.findall(r"```diff\n# (\S+)\n(.*?)```", body, re.S)
                ),
                tests=tuple(re.findall(r"`(tests/[^`]+)`", named[1])),
            )
    return found


CHANGES = changes()
SLOWER = (
    "A command",
    "A debug view",
    "A defence",
    "A generator",
    "A loss",
    "A setting",
    "A task family",
)
"""Their tests import the node or a model, or TRL."""
RUN_S = 100
PARTS = [
    pytest.param(
        title,
        number,
        id=f"{title}, {block.path} ({number})",
    )
    for title, change in CHANGES.items()
    for number, block in enumerate(change.blocks)
    # Only a reader misses a test, and a family that is not added.
    if not block.path.startswith("tests/") and len(change.blocks) > 1
]


@contextmanager
def changed(tree: Tree, change: Change, *, leave_out: int | None = None) -> Iterator[None]:
    """Make a change, or all but one block of it, with what is generated; undo it at the end."""
    blocks = [block for number, block in enumerate(change.blocks) if number != leave_out]
    before = {block.path: tree.read(block.path) for block in blocks}
    before |= {name: tree.read(name) for name in tree.generated()}
    after = dict(before)
    for block in blocks:
        after[block.path] = block.applied(after[block.path] or "")
    tree.write(after)
    try:
        tree.generate(block.path for block in blocks)
        yield
    finally:
        tree.write(before)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def runs(tree: Tree) -> Iterator[Runs]:
    quick = [change for title, change in CHANGES.items() if title not in SLOWER]
    with open_runs(tree, [name for change in quick for name in change.tests]) as runs:
        yield runs


def test_every_section_has_code_and_tests() -> None:
    assert list(CHANGES) == re.findall(r"^## (.+)$", PAGE, re.M)
    assert all(change.blocks and change.tests for change in CHANGES.values())


@pytest.mark.parametrize(
    "title",
    [pytest.param(title, marks=pytest.mark.slow if title in SLOWER else ()) for title in CHANGES],
)
def test_a_change_that_is_whole_passes_its_tests(tree: Tree, runs: Runs, title: str) -> None:
    with changed(tree, CHANGES[title]):
        code, output = runs.run(*CHANGES[title].tests, timeout_s=RUN_S)
    assert code == 0, output


@pytest.mark.parametrize("title", SLOWER)
def test_a_change_whose_tests_are_slow_still_finds_its_places(tree: Tree, title: str) -> None:
    """And every name that it uses is there."""
    with changed(tree, CHANGES[title]):
        for block in CHANGES[title].blocks:
            if block.path.endswith(".py"):
                text = tree.read(block.path)
                lint = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", "-"]
                done = subprocess.run(lint, input=text, capture_output=True, text=True, check=False)
                assert done.returncode == 0, f"{block.path}: {done.stdout}"


@pytest.mark.slow
@pytest.mark.parametrize(("title", "number"), PARTS)
def test_a_change_without_one_of_its_blocks_fails_them(
    tree: Tree, runs: Runs, title: str, number: int
) -> None:
    with changed(tree, CHANGES[title], leave_out=number):
        code, output = runs.run(*CHANGES[title].tests, timeout_s=RUN_S)
    assert code not in (0, None), f"nothing misses {CHANGES[title].blocks[number]}: {output}"


def test_the_new_word_is_taken_by_the_trainer(tree: Tree) -> None:
    command = ("shoal", "trainer", "--strategy", "positive+strong", "--print-config")
    refused = tree.run(*command)
    assert refused.returncode == 2
    assert "must be some of" in refused.stderr
    with changed(tree, CHANGES["A strategy word"]):
        assert 'strategy = "positive+strong"' in tree.run(*command).stdout
