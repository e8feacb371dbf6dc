"""A command, metric or status key ships with its line in the documentation."""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from shoal.__main__ import COMMANDS
from shoal.view.metrics import METRICS
from shoal_policy.record.metrics import held_out_metrics, metric_name
from shoal_policy.record.progress import RoundRecord
from tests.support import site as shown
from tests.support.rooms import HOLDERS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
MADE = {".shoal"}
"""What shoal makes where it runs: names in it are of files that are not there yet."""
TOPS = {
    path.name for folder in (ROOT, *map(ROOT.joinpath, HOLDERS)) for path in folder.iterdir()
} - MADE
SOURCES = {
    path.name
    for top in (
        "benchmarks",
        "bootstrap",
        "lab",
        "p2p",
        "policy",
        "proto",
        "shoal",
        "shoal_base",
        "shoal_settings",
        "shoal_tasks",
        "tests",
    )
    for path in (ROOT / top).rglob("*.py")
}


TABLE = r"(?ms)^<!-- table: [^>]+ -->\n.*?^<!-- end of table -->\n"
"""A table that `make tables` generates from the code."""


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
    of_rounds, _, _ = shown.page("metrics.md").partition("## Prometheus")
    documented = re.findall(r"^\| `([^`]+)` \| [^|\s]", of_rounds, re.M)
    documented += re.findall(r"^`(\w+)` \(TRL\)", of_rounds, re.M)
    held_out = {"round": 1, "pass@1": 0, "reward": 0, "num_items": 0, "seconds": 0}
    names = [metric_name(one.name) for one in fields(RoundRecord)]
    names += ["num_tokens", *held_out_metrics({**held_out, "families": {"<family>": 0}})]
    names += ["judge/score", "judge/mean_score", "judge/number"]
    names.remove("round")  # of an evaluation, as of a round
    assert sorted(documented) == sorted(names)


def test_scraped_metrics_and_their_list_agree() -> None:
    _, _, scraped = shown.page("metrics.md").partition("## Prometheus")
    documented = re.findall(r"^\| `(\w+)` \| (.*?) ?\| [^|\s]", scraped, re.M)
    assert documented == [(metric.name, ", ".join(metric.labels)) for metric in METRICS]


def test_every_make_target_is_in_its_help() -> None:
    makefile = _read("Makefile")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.M)
    assert phony is not None
    quiet = {"help", "clean", "format", "proto", "trainer", "test-slow", "test-tools"}
    for target in set(phony[1].split()) - quiet:
        assert f"make {target}" in makefile.split("install: $(STAMP)")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_in_the_documentation_lead_somewhere(page: Path) -> None:
    for target, section in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
        path = page.parent / target if target else page
        assert path.exists(), f"{page.name} links to {target}"
        assert not section or section in _sections(path), f"{page.name} links to #{section}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation as `make docs` builds it, warnings being errors."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    config = str(ROOT / "docs/site/mkdocs.yml")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", config, "-d"]
    built = subprocess.run(
        [*command, str(folder)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_generated_tables_are_up_to_date() -> None:
    check = subprocess.run(
        [sys.executable, str(ROOT / "docs/site/tables.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, check.stdout + check.stderr
    tables = [one for page in PAGES for one in re.findall(TABLE, page.read_text())]
    assert len(tables) > 20
    for table in tables:
        assert re.search(r"^\|(?: --- \|)+\n\|", table, re.M), table[:80]


def test_the_site_has_every_page_in_its_menu_and_its_search(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text())
    found = {row["location"].partition("#")[0] for row in index["docs"]}
    menu = (site / "glossary/index.html").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix("").as_posix()
        place = name.removesuffix("README")
        place += "/" if place and not place.endswith("/") else ""
        assert place in found, f"no page links to {name}"
        in_menu = f'href="../{place}"' in menu or place in ("", "glossary/")  # itself: ./
        assert in_menu or place.startswith("contributing/upstream/"), name


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"""<(?:script|link|img)[^>]* (?:src|href)="([^"]+)""", page.read_text()
        )
        assert not [url for url in loaded if "//" in url], page


def _sections(page: Path) -> set[str]:
    """Return a page's headings as links name them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_is_named_is_there(page: Path) -> None:
    missing = [
        named
        for named in re.findall(r"`([\w./*-]+)(?:::\w+)?`", page.read_text())
        if (_is_path(named) and not _found(named)) or (_is_source(named) and named not in SOURCES)
    ]
    assert not missing, missing


def _is_path(named: str) -> bool:
    return "/" in named and named.partition("/")[0] in TOPS


def _is_source(named: str) -> bool:
    return named.endswith(".py") and "/" not in named and "*" not in named


def _found(named: str) -> bool:
    return any(
        any(folder.glob(named.rstrip("/"))) for folder in (ROOT, ROOT / "proto", ROOT / "lab")
    )


PLAN = "docs/contributing/architecture.md"


def test_what_the_plan_places_in_a_file_is_there() -> None:
    """`FILE` `Class.method` on a line: the file defines it."""
    placed = re.findall(r"`([\w/]+\.py)` `(\w+(?:\.\w+)?)`", _read(PLAN))
    assert len(placed) > 20
    for path, name in placed:
        assert name in _defined(ROOT / path), f"{name} is not in {path}"


def _defined(path: Path) -> set[str]:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    tops = [node for node in ast.parse(path.read_text()).body if isinstance(node, kinds)]
    return {node.name for node in tops} | {
        f"{node.name}.{part.name}" for node in tops for part in node.body if isinstance(part, kinds)
    }


def test_the_plans_bounds_and_deadlines_are_those_of_the_code() -> None:
    """`FILE`: `NAME` = 5, `OTHER` = 2.0 on a line: the file says so."""
    stated = re.findall(r"`([\w/]+\.py)`: ((?:`\w+` = [\d.]+(?:, )?)+)", _read(PLAN))
    assert len(stated) > 15
    for path, values in stated:
        source = (ROOT / path).read_text()
        for name, value in re.findall(r"`(\w+)` = ([\d.]+)", values):
            found = re.search(rf"^\s*{name}\b[^=\n]*= ([\w. *<]+?),?(?:  #.*)?$", source, re.M)
            assert found is not None, f"{name} is not in {path}"
            assert _number(found[1], source) == float(value), f"{name} of {path} is {found[1]}"


def _number(text: str, source: str) -> float:
    """Return what a product of numbers, and of constants of the same file, is."""
    factors = map(str.strip, text.split("*"))
    return math.prod(
        _number(re.findall(rf"^{factor} = (.+)$", source, re.M)[0], source)
        if factor.isidentifier()
        else float(factor.replace("_", ""))
        for factor in factors
    )


@pytest.mark.parametrize("top", ["shoal_p2p", "shoal_policy", "shoal"])
def test_the_plan_has_every_room(top: str) -> None:
    rooms = re.search(
        rf"^\*\*Rooms of `{top}`\*\*.*?(?=^\*\*Rooms|^The contracts let)",
        shown.page("contributing/architecture.md"),
        re.M | re.S,
    )
    assert rooms is not None
    for path in (
        ROOT / top.removeprefix("shoal_") / top if top != "shoal" else ROOT / top
    ).iterdir():
        if path.suffix == ".py" or (path / "__init__.py").exists():
            assert path.stem == "__init__" or f"`{path.stem}`" in rooms[0], path


MAX_WORDS = 2_000
"""The most words of a page: one that a reader finishes in ten minutes."""
OTHER_LIMITS = {"wire.md": 4_500, "results.md": 1_200}
"""The wire contract states every field. The results are what a newcomer decides by."""


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_a_page_stays_short(page: Path) -> None:
    words = re.sub(TABLE, "", page.read_text()).split()
    count = sum(any(map(str.isalnum, word)) for word in words)
    limit = OTHER_LIMITS.get(page.name, MAX_WORDS)
    assert count <= limit, f"{page.name} has {count} words, and may have {limit}"


def test_the_index_leads_to_every_page() -> None:
    index = _read("docs/README.md")
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").as_posix()
        if name != "README.md" and not name.startswith("contributing/upstream/"):
            assert f"({name})" in index, name
