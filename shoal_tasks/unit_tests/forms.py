"""Unit tests in the formats of published data sets, parsed into one of three kinds. Pure.

    test = "def check(candidate): …", entry_point = "add"                  a program (HumanEval)
    test_list = ["assert add(1, 2) == 3", …], test_setup_code, …          a program (MBPP)
    input_output = '{"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}'        calls (APPS)
    input_output = '{"inputs": ["1 2\\n"], "outputs": ["3\\n"]}'            scripts (APPS, TACO)
    test_cases = [{"input": "1 2", "output": "3"}, …]                      scripts
    public_tests = {"input": […], "output": […]}, private_tests, …         scripts (CodeContests)

A format is recognised by a column's content; the column's name only decides what is tried first.
"""

from __future__ import annotations

import ast
import builtins
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from shoal_tasks.errors import FamilyError
from shoal_tasks.spec import JsonValue
from shoal_tasks.unit_tests.sources import is_python, program, root_of

PROGRAM: Final = "program"
CALLS: Final = "calls"
SCRIPT: Final = "script"

TESTS_COLUMN: Final = "tests"
"""The column of a rows file with the tests, as returned by `read_tests`."""
SOLUTION_COLUMN: Final = "solution"
"""The column of a rows file with a reference solution; it may be missing."""

MAX_TESTS_BYTES: Final = 8 << 20
"""Maximum size of one row's tests, as JSON."""

_TESTS: Final = (
    ("input_output",),
    ("test_list",),
    ("test",),
    ("tests",),
    ("test_cases",),
    ("public_tests", "private_tests", "generated_tests"),
    ("public_test_cases", "private_test_cases"),
    ("verification_info",),
    ("unit_tests",),
    ("test_code",),
    ("assertions",),
    ("reward_model.ground_truth",),
)
"""Columns with tests: the first entry found is read; the columns of one entry are combined."""
_ENTRIES: Final = ("entry_point", "fn_name", "func_name", "function_name")
_SOLUTIONS: Final = (
    "canonical_solution",
    "solution",
    "code",
    "completion",
    "solutions",
    "reference_solution",
    "gold_standard_solution",
)
_SETUPS: Final = ("test_imports", "test_setup_code")
_QUESTIONS: Final = (
    "query",
    "text",
    "prompt",
    "description",
    "problem",
    "problem_statement",
    "question_content",
)
USED_COLUMNS: Final = (
    *(name for names in _TESTS for name in names),
    *(*_ENTRIES, *_SOLUTIONS, *_SETUPS, "metadata"),
)
"""Columns that are read, if present, in addition to the question."""
KEYS: Final = ("tests", "entry_point", "solution")
"""Keys of a task file that name such columns."""
_PYTHON_3: Final = 3
"""The number of Python 3 among CodeContests' languages."""


def read_tests(
    columns: Mapping[str, JsonValue], named: Mapping[str, str], where: str
) -> dict[str, JsonValue]:
    """Return a row's tests: `kind`, and the fields of that kind.

    `named` are the columns that a task file names by its keys ``tests``, ``entry_point`` and
    ``solution``. Raises `FamilyError` that names what was not understood.
    """
    values = _values_of(columns, named, where)
    entry = _entry(columns, named)
    solution = read_solution(columns, named)
    first = values[0]
    if isinstance(first, str) or (isinstance(first, list) and _are_texts(first)):
        return _program(columns, _joined(first), entry, solution, where)
    cases: list[JsonValue] = []
    for value in values:
        found, function = _cases(value, entry, where)
        entry = entry or function
        cases += found
    if not cases:
        raise FamilyError(f"{where}: it has no tests")
    kind = CALLS if entry else SCRIPT
    made = [_call(one, where) if entry else _script(one, where) for one in cases]
    return {"kind": kind, "entry": entry, "prompt": _prompt(columns), "cases": made}


def code_row(
    columns: Mapping[str, JsonValue], named: Mapping[str, str], where: str
) -> dict[str, JsonValue]:
    """Return the columns of a rows file of programs; `named` as in `read_tests`.

    Raises `FamilyError`.
    """
    tests = read_tests(columns, named, where)
    if (size := len(json.dumps(tests))) > MAX_TESTS_BYTES:
        raise FamilyError(
            f"{where}: its tests have {size:,} bytes; at most {MAX_TESTS_BYTES:,} fit"
        )
    row: dict[str, JsonValue] = {TESTS_COLUMN: tests}
    if solution := read_solution(columns, named):
        row[SOLUTION_COLUMN] = solution
    return row


def question_column(columns: Mapping[str, JsonValue], named: str) -> str:
    """Return the column with the question: `named`, otherwise one with a common name."""
    if named in columns:
        return named
    return next((name for name in _QUESTIONS if name in columns), named)


def read_solution(columns: Mapping[str, JsonValue], named: Mapping[str, str]) -> str:
    """Return the row's reference solution, the first in Python; empty if there is none."""
    names = (named["solution"],) if "solution" in named else _SOLUTIONS
    for name in names:
        value = _from_json(look_up(columns, name))
        if isinstance(value, dict):  # CodeContests
            texts = value.get("solution")
            languages = value.get("language")
            if isinstance(texts, list) and isinstance(languages, list):
                value = [
                    text
                    for text, language in zip(texts, languages, strict=False)
                    if language in (_PYTHON_3, "PYTHON3", "python", "python3", "Python")
                ]
        if isinstance(value, list):
            value = next((one for one in value if isinstance(one, str)), None)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def look_up(columns: Mapping[str, JsonValue], name: str) -> JsonValue:
    """Return a column; a dotted name selects a part of one."""
    if name in columns:
        return columns[name]
    value: JsonValue = dict(columns)
    for part in name.split("."):
        value = _from_json(value)
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _values_of(
    columns: Mapping[str, JsonValue], named: Mapping[str, str], where: str
) -> list[JsonValue]:
    groups = ((named["tests"],),) if "tests" in named else _TESTS
    for group in groups:
        values = [_from_json(look_up(columns, name)) for name in group]
        values = [value for value in values if value not in (None, "", [], {})]
        if values:
            return values
    known = f"no column {named['tests']!r}" if "tests" in named else "no tests in a known column"
    raise FamilyError(
        f"{where} has {known}, but {', '.join(map(repr, columns))}: "
        'name the column with the tests, tests = "…"'
    )


def _from_json(value: JsonValue) -> JsonValue:
    """Parse a text that contains JSON; return any other value unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            found: JsonValue = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return found
    return value


def _entry(columns: Mapping[str, JsonValue], named: Mapping[str, str]) -> str:
    names = (named["entry_point"],) if "entry_point" in named else _ENTRIES
    metadata = _from_json(columns.get("metadata"))
    places = [columns, metadata if isinstance(metadata, dict) else {}]
    for place in places:
        for name in names:
            found = look_up(place, name)
            if isinstance(found, str) and found.strip():
                return found.strip()
    return ""


def _prompt(columns: Mapping[str, JsonValue]) -> str:
    """Return the Python code that a row's solution begins with, if its prompt is Python."""
    text = columns.get("prompt")
    return text if isinstance(text, str) and is_python(text) else ""


def _are_texts(values: Sequence[JsonValue]) -> bool:
    return all(isinstance(value, str) for value in values)


def _joined(value: JsonValue) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _program(
    columns: Mapping[str, JsonValue], text: str, entry: str, solution: str, where: str
) -> dict[str, JsonValue]:
    setup = "\n".join(_joined(columns[name] or "") for name in _SETUPS if name in columns)
    try:
        trees = [ast.parse(setup), ast.parse(text)]
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "text", None) or text
        raise FamilyError(
            f"{where}: its tests are not Python: {error}: {line.strip()[:80]!r}"
        ) from None
    prompt = _prompt(columns)
    names, imports = _wanted(trees, program(prompt, solution, entry) if solution else "")
    wanted: list[JsonValue] = [*sorted(names | ({root_of(entry)} if entry else set()))]
    return {
        "kind": PROGRAM,
        "entry": entry,
        "prompt": prompt,
        "setup": "\n".join([*imports, setup]) if imports else setup,
        "program": text,
        "wanted": wanted,
    }


def _wanted(trees: Sequence[ast.Module], solution: str) -> tuple[set[str], list[str]]:
    """Return the names that tests take from the code, and the import lines that they need.

    With a reference solution, these are its definitions and imports. A completion's own `len`,
    `math` or helper function must not change the meaning of a test.
    """
    used: set[str] = set()
    own: set[str] = set()
    imported: set[str] = set()
    for node in _nodes(trees):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else own).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.ImportFrom) and node.module == "solution":
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            own |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    free = used - own
    defined, modules = _top_level(solution)
    if not defined:
        modules = {name: f"import {name}" for name in _MODULES} | {"np": "import numpy as np"}
        defined = free - set(dir(builtins)) - set(modules)
    imports = [line for name, line in modules.items() if name in free and name not in defined]
    wanted = defined if "*" in imported else (free & defined) | imported
    return wanted - {"*"}, imports


def _nodes(trees: Iterable[ast.Module]) -> Iterator[ast.AST]:
    for tree in trees:
        yield from ast.walk(tree)


def _top_level(text: str) -> tuple[set[str], dict[str, str]]:
    """Return the names defined at a program's top level, and the import line of each other name."""
    defined: set[str] = set()
    imports: dict[str, str] = {}
    try:
        statements: list[ast.AST] = list(ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError):
        return defined, imports
    while statements:
        node = statements.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            defined.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                kept = type(node)(**{**vars(node), "names": [alias]})
                imports[(alias.asname or alias.name).partition(".")[0]] = ast.unparse(kept)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif not isinstance(node, ast.Lambda | ast.comprehension):
            statements += ast.iter_child_nodes(node)
    return defined, imports


_MODULES: Final = (
    "bisect", "cmath", "collections", "copy", "datetime", "decimal", "fractions", "functools",
    "heapq", "itertools", "json", "math", "numpy", "operator", "random", "re", "statistics",
    "string", "sys", "typing",
)  # fmt: skip
"""Modules that tests without a solution may use without an import."""


def _cases(value: JsonValue, entry: str, where: str) -> tuple[list[JsonValue], str]:
    """Return inputs with outputs, and the name of their function; empty for a script."""
    value = _from_json(value)
    if isinstance(value, dict) and isinstance(value.get("test_cases"), list):
        value = value["test_cases"]
    if isinstance(value, dict):
        function = next((str(value[name]) for name in _ENTRIES if value.get(name)), "")
        for inputs, outputs in (("inputs", "outputs"), ("input", "output")):
            given, expected = _from_json(value.get(inputs)), _from_json(value.get(outputs))
            if isinstance(given, list) and isinstance(expected, list):
                if len(given) != len(expected):
                    raise FamilyError(
                        f"{where}: its tests have {len(given)} inputs and {len(expected)} outputs"
                    )
                pairs: list[JsonValue] = [
                    [one, other, True] for one, other in zip(given, expected, strict=True)
                ]
                return pairs, function
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        found: list[JsonValue] = []
        function = ""
        for one in value:
            assert isinstance(one, dict)
            names = [name for name in _OUTPUTS if name in one]
            if "input" not in one or not names:
                raise FamilyError(f"{where}: a test has {', '.join(one)}, not input and output")
            function = function or next((str(one[name]) for name in _ENTRIES if one.get(name)), "")
            found.append([one["input"], one[names[0]], False])
        return found, function
    raise FamilyError(
        f"{where}: its tests have no known format; use Python text, a list of assertions, or "
        "inputs with outputs"
    )


_OUTPUTS: Final = ("output", "expected_output")


def _call(case: JsonValue, where: str) -> JsonValue:
    """Return positional and named arguments, the expected value, and whether it may be wrapped."""
    assert isinstance(case, list)
    given, expected, is_of_apps = case
    if isinstance(given, dict):
        return [[], given, expected, is_of_apps]
    if isinstance(given, list):
        return [given, {}, expected, is_of_apps]
    try:  # one argument a line, as JSON (LiveCodeBench)
        arguments = [json.loads(line) for line in str(given).split("\n") if line.strip()]
        expected = json.loads(expected) if isinstance(expected, str) else expected
    except ValueError:
        raise FamilyError(
            f"{where}: the input of a call is not JSON: {str(given)[:80]!r}"
        ) from None
    return [arguments, {}, expected, False]


def _script(case: JsonValue, where: str) -> JsonValue:
    assert isinstance(case, list)
    texts = []
    for value in case[:2]:
        if isinstance(value, list) and _are_texts(value):
            value = "\n".join(map(str, value))
        if not isinstance(value, str):
            raise FamilyError(
                f"{where}: a test's input is {json.dumps(value)[:60]}, not a text, and no function "
                'is named; set entry_point = "…" to the column with its name'
            )
        texts.append(value)
    return list(texts)
