"""The table of threats, and for each test that misses a defence, that defence taken out.

The files `*.mutations` of this folder hold it, a section of docs/threats.md each, which the site
makes of them:

    threat Half-opens a connection
    defence a ping has a deadline

    test tests/p2p/net/test_host.py::test_a_half_open_connection_is_closed
    # a peer's silence is not noticed
    in shoal_p2p.net.yamux:KeepaliveYamux._ping
    - not pong.is_set() and self._last_heard < asked
    + asked < 0

A threat's tests follow it. `in` names a function (or a class, or a module alone). What stands
behind `-` is an expression or statements, found there once whatever their layout; what stands
behind `+` comes in their place. Without a `-`, the whole body of the function is replaced. A file
that is no Python is named by `file`, and its lines stand as they are. More blocks of one mutation
follow each other; another `test` line begins the next mutation, and a test may have several. A `#`
line says what is taken out.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.rooms import HOLDERS

FOLDER = Path(__file__).parent
_ROOT = FOLDER.parent.parent
Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change of one file."""

    path: str
    scope: str
    """The qualified name of a function or class; empty for all of the file."""
    before: str
    after: str

    def applied(self, text: str) -> str:
        """Return a file's text with the defence taken out. Raises ValueError where it is not."""
        if not self.path.endswith(".py"):
            if not self.before or text.count(self.before) != 1:
                raise ValueError(f"{self.path} does not hold these lines once:\n{self.before}")
            return text.replace(self.before, self.after)
        found = list(self._places(text))
        if len(found) != 1:
            where = f"{self.path}:{self.scope}"
            raise ValueError(f"{where} holds this {len(found)} times:\n{self.before}")
        start, end, new = found[0]
        raw = text.encode()
        return (raw[: _offset(raw, start)] + new.encode() + raw[_offset(raw, end) :]).decode()

    def _places(self, text: str) -> Iterator[tuple[tuple[int, int], tuple[int, int], str]]:
        """Yield start, end and new text of each place that is meant."""
        scopes = list(_scopes(ast.parse(text), self.scope))
        if not self.before:
            for scope in scopes:
                yield _place(scope.body, self.after)
            return
        old, new = _expression(self.before), _expression(self.after)
        for scope in scopes:
            if old is not None and new is not None:
                wanted = ast.dump(old)
                for node in ast.walk(scope):
                    if isinstance(node, ast.expr) and ast.dump(node) == wanted:
                        one_line = " ".join(self.after.split("\n"))
                        yield (*_span(node, node), f"({one_line})")
                continue
            run = [ast.dump(one) for one in ast.parse(self.before).body]
            for body in _bodies(scope):
                for at in range(len(body) - len(run) + 1):
                    part = body[at : at + len(run)]
                    if [ast.dump(one) for one in part] == run:
                        yield _place(part, self.after)


def _scopes(tree: ast.Module, name: str) -> Iterator[Scope]:
    if not name:
        yield tree
        return
    inside: list[ast.AST] = [tree]
    for part in name.split("."):
        inside = [one for outer in inside for one in _definitions(outer) if one.name == part]
    for one in inside:
        assert isinstance(one, Scope)
        yield one


def _definitions(node: ast.AST) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield what is defined right in a node, under `if` and `try` as well."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        else:
            yield from _definitions(child)


def _bodies(scope: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(scope):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                yield body


def _expression(text: str) -> ast.expr | None:
    try:
        return ast.parse(f"({text})", mode="eval").body if text else None
    except SyntaxError:
        return None


def _place(run: Sequence[ast.stmt], new: str) -> tuple[tuple[int, int], tuple[int, int], str]:
    start, end = _span(run[0], run[-1])
    decorators = getattr(run[0], "decorator_list", [])
    if decorators:
        start = (decorators[0].lineno, decorators[0].col_offset - 1)
    indented = textwrap.indent(new or "pass", " " * run[0].col_offset).lstrip(" ")
    return start, end, indented


def _span(
    first: ast.expr | ast.stmt, last: ast.expr | ast.stmt
) -> tuple[tuple[int, int], tuple[int, int]]:
    assert last.end_lineno is not None
    assert last.end_col_offset is not None
    return (first.lineno, first.col_offset), (last.end_lineno, last.end_col_offset)


def _offset(raw: bytes, place: tuple[int, int]) -> int:
    """Return where in a file a node's row and column of bytes are."""
    row, column = place
    return sum(map(len, raw.splitlines(keepends=True)[: row - 1])) + column


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One defence less, and the test that has to miss it."""

    test: str
    """``path::name``."""
    edits: tuple[Edit, ...]
    number: int
    """Among those of the same test, from 1."""

    @property
    def name(self) -> str:
        """Short, for the test's id."""
        name = self.test.rpartition("::")[2].removeprefix("test_")
        return name if self.number == 1 else f"{name}-{self.number}"


def mutations() -> list[Mutation]:
    """Return the whole table. Raises ValueError: a file is not written as it has to be."""
    found: list[Mutation] = []
    for path in sorted(FOLDER.glob("*.mutations")):
        for block in f"\n{path.read_text(encoding='utf-8')}".split("\ntest ")[1:]:
            test, _, rest = block.partition("\n")
            number = 1 + sum(one.test == test for one in found)
            found.append(Mutation(test=test, edits=_edits(rest, path.name), number=number))
    return found


def _edits(block: str, where: str) -> tuple[Edit, ...]:
    edits, path, scope = [], "", ""
    lines: list[str] = []
    for line in [*block.split("\n"), "in "]:
        kind, _, named = line.partition(" ")
        if kind in ("threat", "defence"):
            continue
        if kind not in ("in", "file"):
            if line and line[0] not in "+-#":
                raise ValueError(f"{where}: {line!r}")
            lines += [line] if line and line[0] in "+-" else []
            continue
        if path:
            edits.append(_edit(path, scope, lines))
        lines = []
        module, _, scope = named.partition(":")
        path = module if kind == "file" else _path_of(module) if module else ""
    if not edits:
        raise ValueError(f"{where}: a mutation without a place")
    return tuple(edits)


def _edit(path: str, scope: str, lines: list[str]) -> Edit:
    if path.endswith(".py"):
        before, after = ("\n".join(line[2:] for line in lines if line[0] == mark) for mark in "-+")
        return Edit(path=path, scope=scope, before=before, after=after)
    before, after = ("".join(f"{line[1:]}\n" for line in lines if line[0] == mark) for mark in "-+")
    return Edit(path=path, scope="", before=before, after=after)


def _path_of(module: str) -> str:
    parts = Path(*module.split("."))
    for top in (Path(), *map(Path, HOLDERS)):
        for file in (top / parts.with_suffix(".py"), top / parts / "__init__.py"):
            if (_ROOT / file).exists():
                return file.as_posix()
    raise ValueError(f"no module {module}")
