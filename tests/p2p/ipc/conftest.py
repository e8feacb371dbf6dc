"""A node in the test's own loop, and `shoal debug` asked of one that runs in a thread."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shoal.__main__ import main
from shoal.view.node import words_of
from tests.support.local_node import LocalNode, open_local_node
from tests.support.running_node import RunningNode
from tests.support.schemas import check


class Debug:
    """Runs `shoal debug` at a node."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, node: RunningNode, *words: str) -> tuple[int, str, str]:
        """Return its exit code, its output, and what it says on standard error."""
        self._capsys.readouterr()
        code = main([*words_of(*words), "--data-dir", str(node.data_dir)])
        return code, *self._capsys.readouterr()

    def json(self, node: RunningNode, *words: str) -> tuple[int, dict[str, Any]]:
        """Return its exit code and its answer for programs."""
        code, out, _ = self.run(node, *words, "--json")
        (line,) = out.splitlines()
        answer: dict[str, Any] = json.loads(line)
        assert answer["schema_version"] == 1
        return code, answer

    def shown(self, node: RunningNode, view: str, *words: str) -> dict[str, Any]:
        """Return a view as it is for programs."""
        code, answer = self.json(node, view, *words)
        assert code == 0
        check(" ".join(words_of(view)), answer)
        return answer

    def text(self, node: RunningNode, *words: str) -> str:
        """Return a view as it is for people."""
        code, out, _ = self.run(node, *words)
        assert code == 0
        return out


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[LocalNode]:
    """A node behind its socket, in the test's own loop."""
    async with open_local_node(tmp_path) as made:
        yield made


@pytest.fixture
def debug(capsys: pytest.CaptureFixture[str]) -> Debug:
    """`shoal debug` at a node."""
    return Debug(capsys)
