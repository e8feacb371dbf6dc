"""Every warning of a process, and every finding, has its entry in the troubleshooting page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_policy.record.learning import Check

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
_SERIOUS = {"warning", "error", "critical"}
_LOGGERS = {"log", "logger"}
_PLACE = re.compile(r"%[-+0-9.]*[a-z]")


def _sources() -> Iterator[Path]:
    for top in ("bootstrap", "p2p", "policy", "shoal", "shoal_tasks"):
        yield from sorted((ROOT / top).rglob("*.py"))


def _warnings() -> Iterator[tuple[str, str]]:
    """Yield where each stands, and its text; what is made elsewhere (`%s` alone) is found there."""
    for path in _sources():
        source = path.read_text()
        if not any(f".{name}(" in source for name in _SERIOUS):
            continue  # to parse every file cost each process that collects the tests a second
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = node.func.value
            if node.func.attr not in _SERIOUS or not isinstance(owner, ast.Name):
                continue
            if owner.id in _LOGGERS:
                text = ast.literal_eval(node.args[0])
                if _PLACE.sub("", text).strip(" :"):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def _checks() -> set[str]:
    return {
        first.value
        for path in (ROOT / "p2p" / "shoal_p2p" / "ipc" / "checks").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "found"
        for first in node.args[:1]
        if isinstance(first, ast.Constant) and isinstance(first.value, str)
    } | {"learning"}


def _entries(of: str) -> set[str]:
    """Return what the first cells of the tables between a heading and the next name."""
    section = PAGE.partition(f"\n## {of}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.+?) \|", section, re.M)
    return {named for cell in cells for named in re.findall(r"`([^`]+)`", cell)}


WARNINGS = list(_warnings())
LINES = _entries("Lines of a log")
FINDINGS = _entries("What the doctor finds") | _entries("Findings about learning")


def _shown(text: str) -> str:
    return _PLACE.sub("…", text).replace("%%", "%").replace("`", "")


@pytest.mark.parametrize(("where", "text"), WARNINGS, ids=[where for where, _ in WARNINGS])
def test_every_warning_has_one_entry(where: str, text: str) -> None:
    found = [words for words in LINES if words in _shown(text)]
    assert len(found) == 1, f"{where} writes: {_shown(text)} ({found})"


def test_the_findings_are_those_of_the_code() -> None:
    assert _checks() | set(Check) == FINDINGS


def test_no_entry_is_of_a_warning_that_is_gone() -> None:
    lines = [_shown(text) for _, text in WARNINGS]
    assert not [words for words in LINES if not any(words in line for line in lines)]


def test_there_are_warnings() -> None:
    assert len(WARNINGS) > 40
