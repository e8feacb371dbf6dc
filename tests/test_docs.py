"""A command, metric or status key ships with its line in the documentation."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from policy.record.metrics import metric_names
from shoal.__main__ import COMMANDS
from shoal_wire.verdict import Reason

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _read(name: str) -> str:
    return (ROOT / name).read_text()


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_is_in_the_readme(command: str) -> None:
    assert f"shoal {command}" in _read("README.md")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "Makefile"], ids=lambda page: page.name)
def test_every_module_that_is_to_be_run_is_there(page: Path) -> None:
    for module in re.findall(r"python -m (\w+(?:\.\w+)*)", page.read_text()):
        assert importlib.util.find_spec(module) is not None, f"{page.name}: python -m {module}"


def test_metrics_and_their_table_agree() -> None:
    documented = re.findall(r"^\| `([^`]+)` \|", _read("docs/metrics.md"), re.M)
    assert sorted(documented) == sorted(metric_names())


@pytest.mark.parametrize("reason", sorted(set(Reason) - {Reason.VALID}))
def test_every_reason_is_in_the_contract(reason: Reason) -> None:
    assert f"`{reason.value}`" in _read("docs/wire.md")


def test_every_make_target_is_in_its_help() -> None:
    makefile = _read("Makefile")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.M)
    assert phony is not None
    quiet = {"help", "clean", "format", "proto", "trainer", "test-slow"}
    for target in set(phony[1].split()) - quiet:
        assert f"make {target}" in makefile.split("install: $(STAMP)")[0]


def test_links_in_the_documentation_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
