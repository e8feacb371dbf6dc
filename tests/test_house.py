"""The house's own rules, read off the code: sizes, rooms, whole objects, one-line signs."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (
    "bootstrap", "lab", "p2p", "policy", "proto", "shoal", "shoal_base", "shoal_settings",
    "shoal_tasks",
)  # fmt: skip
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
TOP = {
    ".ci", ".dockerignore", ".gitignore", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md",
    "LICENSE", "Makefile", "README.md", "SECURITY.md", "benchmarks", "bootstrap", "docs", "lab",
    "p2p", "policy", "proto", "pyproject.toml", "shoal", "shoal_base", "shoal_settings",
    "shoal_tasks", "tests",
}  # fmt: skip


def tracked(*under: str) -> list[Path]:
    """Return the tracked files below these folders; all files of a copy without history."""
    command = ["git", "ls-files", *under]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    names = found.stdout.splitlines() or [
        str(path.relative_to(ROOT)) for name in under for path in (ROOT / name).rglob("*.py")
    ]
    return [ROOT / name for name in names]


@cache
def modules(*under: str) -> tuple[tuple[Path, tuple[ast.AST, ...]], ...]:
    """Every module below these folders with all its nodes, without generated code."""
    return tuple(
        (path, tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
        for path in tracked(*under)
        if path.suffix == ".py" and not path.name.endswith("_pb2.py") and path.exists()
    )


def product() -> tuple[tuple[Path, tuple[ast.AST, ...]], ...]:
    """Every product module with all its nodes."""
    return modules(*ROOMS)


def at(path: Path, node: ast.stmt | ast.expr) -> str:
    """Where a node is, for a failure's text."""
    return f"{path.relative_to(ROOT)}:{node.lineno}"


def test_the_top_holds_the_card_and_no_more() -> None:
    found = {path.relative_to(ROOT).parts[0] for path in tracked(".")}
    assert found <= TOP, found - TOP


def test_files_and_functions_are_short() -> None:
    long = []
    for path, nodes in product():
        if len(path.read_text(encoding="utf-8").splitlines()) > MAX_FILE_LINES:
            long.append(str(path.relative_to(ROOT)))
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    long.append(f"{at(path, node)} {node.name}: {lines}")
    assert not long, long


WITHOUT_A_SUBJECT = {
    "as", "by", "for", "from", "how", "of", "that", "those", "to", "what", "when", "where",
    "whether", "which", "who", "whoever", "whom", "whose", "without",
}  # fmt: skip


def _docstrings(nodes: Iterable[ast.AST]) -> Iterator[ast.Constant]:
    """Yield every text that stands alone as a statement: docstrings, and those of fields."""
    for node in nodes:
        text = node.value if isinstance(node, ast.Expr) else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield text


def test_a_docstring_begins_with_what_it_describes() -> None:
    """A noun phrase or a verb, not a clause that lacks its subject."""
    riddles = [
        f"{at(path, text)} {first}"
        for path, nodes in product()
        for text in _docstrings(nodes)
        if (first := re.split(r"\W", str(text.value).strip(), maxsplit=1)[0]).lower()
        in WITHOUT_A_SUBJECT
    ]
    assert not riddles, riddles


BANNED_IN_NAMES = {
    "accuse", "anew", "asking", "baton", "beside", "came", "condemn", "dear", "door", "doors",
    "enciphered", "everybody", "guest", "heard", "hearsay", "heed", "homes", "house", "knock",
    "lately", "learnt", "loot", "mend", "mended", "mends", "narrator", "nobody", "owe", "owes",
    "parting", "said", "sayable", "skirmish", "somebody", "spoilt", "standing", "standings",
    "taught", "tend", "told", "took", "twin", "twins", "whoever", "whom",
}  # fmt: skip
"""Words that no name may contain: CONTRIBUTING.md has the rule, docs/glossary.md the words to use.
"""


def _defined_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node defines: functions, classes, arguments, variables, fields."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.arg(arg=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name


def test_no_name_has_a_banned_word() -> None:
    found = sorted(
        f"{at(path, node)} {name}"  # type: ignore[arg-type]
        for path, nodes in (*product(), *modules("tests"))
        for node in nodes
        for name in _defined_names(node)
        if BANNED_IN_NAMES & set(re.findall(r"[a-z]+", re.sub(r"([A-Z])", r" \1", name).lower()))
    )
    assert not found, f"say it in the field's terms (docs/glossary.md): {found}"


def test_no_attribute_waits_for_its_value() -> None:
    """An object in which everything exists: ``self.part: Part`` without a part is not one."""
    waiting = [
        f"{at(path, node)} {ast.unparse(node)}"
        for path, nodes in product()
        for node in nodes
        if isinstance(node, ast.AnnAssign)
        and node.value is None
        and isinstance(node.target, ast.Attribute)
    ]
    assert not waiting, waiting


def test_no_library_is_changed_from_outside() -> None:
    """A module global of a library that is assigned here is one for all peers of a process."""
    changed = []
    for path, nodes in product():
        libraries = {
            alias.asname or alias.name.partition(".")[0]
            for node in nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
            if _is_foreign(node, alias)
        }
        for node in nodes:
            targets = node.targets if isinstance(node, ast.Assign) else ()
            changed += [
                f"{at(path, node)} {ast.unparse(target)}"  # type: ignore[arg-type]
                for target in targets
                if isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id in libraries
            ]
    assert not changed, changed


def _is_foreign(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> bool:
    module = node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
    return module.partition(".")[0] in ("libp2p", "trio", "multiaddr", "torch", "transformers")


def test_pythons_are_started_in_one_place() -> None:
    """There they are kept from importing what lies in the current folder."""
    own = ROOT / "shoal_base/children.py"
    elsewhere = [
        at(path, node)
        for path, nodes in product()
        for node in nodes
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) in ("sys.executable", "sys._base_executable")
        and path != own
    ]
    assert not elsewhere, elsewhere


def test_what_starts_a_process_gives_it_an_environment() -> None:
    """Another's environment may name the current folder as a place of modules."""
    starts = (
        "subprocess.Popen",
        "subprocess.run",
        "trio.lowlevel.open_process",
        "trio.run_process",
    )
    bare = [
        at(path, node)
        for path, nodes in product()
        for node in nodes
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in starts
        and not any(keyword.arg == "env" for keyword in node.keywords)
    ]
    assert not bare, bare


@pytest.mark.parametrize("room", ROOMS)
def test_every_package_says_in_one_line_what_it_is(room: str) -> None:
    signs = [path for path in tracked(room) if path.name == "__init__.py" and path.exists()]
    silent = [
        str(path.relative_to(ROOT))
        for path in signs
        if path.parent.name != "v1" and not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert not silent, silent


def test_tests_mirror_the_rooms() -> None:
    """A folder of tests below p2p, policy, shoal or lab is named after the room that it tests."""
    areas = {
        "p2p": "p2p/shoal_p2p",
        "policy": "policy/shoal_policy",
        "shoal": "shoal",
        "lab": "lab/shoal_lab",
    }
    cases = {"hostile"}  # a hostile peer against the whole node
    lost = [
        str(folder.relative_to(ROOT))
        for area, rooms in areas.items()
        for folder in {path.parent for path in tracked(f"tests/{area}") if path.suffix == ".py"}
        if folder.name not in cases
        and not (ROOT / rooms / folder.relative_to(ROOT / "tests" / area)).is_dir()
    ]
    assert not lost, lost


MAX_CALLBACKS = 50
"""Parameters of type `Callable` in constructors below `p2p/`: lower it with each that goes."""
MAX_NOTES = 66
"""Methods below `p2p/` called `note…` or `on_…`, also private ones. A handler of events,
`on_event`, is none."""


def test_parts_of_a_node_are_wired_by_events_and_objects() -> None:
    """Who calls whom cannot be read off callbacks: an event (`shoal_p2p.events`) or the object."""
    callbacks, notes = [], []
    for path, nodes in modules("p2p"):
        for node in nodes:
            if not isinstance(node, ast.ClassDef):
                continue
            for method in node.body:
                if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if re.match(r"_?(note(_|$)|on_(?!event$))", method.name):
                    notes.append(f"{at(path, method)} {node.name}.{method.name}")
                if method.name == "__init__":
                    callbacks += [
                        f"{at(path, method)} {node.name}({given.arg})"
                        for given in (*method.args.args, *method.args.kwonlyargs)
                        if given.annotation and "Callable" in ast.unparse(given.annotation)
                    ]
    assert len(callbacks) <= MAX_CALLBACKS, f"{len(callbacks)}: {callbacks}"
    assert len(notes) <= MAX_NOTES, f"{len(notes)}: {notes}"


SPEAKERS = {"lines.py", "terminal.py"}
"""Files of `shoal_base` that write: they make all text visible first."""


def test_every_output_goes_through_visible_text() -> None:
    """Strangers' text may be in anything: what is printed goes through `shoal_base`."""
    past = [
        f"{at(path, node)} {name}"
        for path, nodes in product()
        if not (path.parent.name == "shoal_base" and path.name in SPEAKERS)
        for node in nodes
        if isinstance(node, ast.Call)
        and (name := ast.unparse(node.func)) is not None
        and (
            name in ("print", "input", "Console", "Panel", "Text.from_markup")
            or name.startswith(("sys.stdout.write", "sys.stderr.write", "traceback.print"))
            or (name == "TextColumn" and "markup=False" not in ast.unparse(node))
        )
    ]
    assert not past, past


@given(st.none())
def test_no_example_has_a_deadline(_nothing: None) -> None:
    """Wherever a test lies: what is generated may take as long as a slow machine needs."""
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
    kept = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked("tests")
        if path.suffix == ".py" and path.name not in ("conftest.py", Path(__file__).name)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "deadline=" in line and "@settings" in line
    ]
    assert not kept, kept
