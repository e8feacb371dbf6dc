"""Extracts the Python code of a completion, and combines it with the task's prompt. Pure.

"… ```python … ``` …" ──code_in──▶ code ──program──▶ prompt and code as one text of Python
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator
from typing import Final

MAX_CODE_CHARS: Final = 64 * 1024
"""A longer program is never run and counts as wrong."""

_FENCE: Final = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n`]*\n", re.MULTILINE)
_PYTHON: Final = frozenset({"python", "py", "python3", "python2", "py3", ""})
_END_OF_THOUGHT: Final = "</think>"


def fences(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield language, start and end of each closed fenced block, in order."""
    position = 0
    while (opening := _FENCE.search(text, position)) is not None:
        mark = opening[1]
        closing = re.compile(rf"^[ \t]*{re.escape(mark[0])}{{{len(mark)},}}[ \t]*$", re.MULTILINE)
        end = closing.search(text, opening.end())
        if end is None:
            return
        yield opening[2].lower(), opening.end(), end.start()
        position = end.end()


def unscored_around_code(text: str) -> tuple[tuple[int, int], ...] | None:
    """Return the character ranges outside the only Python block; its fences count as inside.

    None if there are several blocks: which of them runs depends on what they define.
    """
    spans = [(first, last) for language, first, last in fences(text) if language in _PYTHON]
    if len(spans) > 1:
        return None
    if not spans:
        return ()
    first, last = spans[0]
    end = text.find("\n", last)
    around = ((0, text.rfind("\n", 0, first - 1) + 1), (len(text) if end < 0 else end, len(text)))
    return tuple((start, stop) for start, stop in around if start < stop)


def code_span(text: str, entry: str = "") -> tuple[int, int]:
    """Return the start and end of a completion's code.

    It is the last Python block that defines `entry`, otherwise the last Python block, otherwise
    everything after the thinking section.
    """
    start = text.rfind(_END_OF_THOUGHT)
    start = start + len(_END_OF_THOUGHT) if start >= 0 else 0
    spans = [
        (first + start, last + start)
        for language, first, last in fences(text[start:])
        if language in _PYTHON
    ]
    if not spans:
        return start, len(text)
    defines = re.compile(rf"^\s*(?:async\s+def|def|class)\s+{re.escape(entry)}\b", re.MULTILINE)
    holding = [(first, last) for first, last in spans if defines.search(text[first:last])]
    return (holding or spans)[-1] if entry else spans[-1]


def extract_code(text: str, entry: str = "") -> str:
    """Return a completion's code, dedented if it is a block; empty if it is too long."""
    first, last = code_span(text, entry)
    code = text[first:last].strip("\n")
    return code if len(code) <= MAX_CODE_CHARS else ""


def root_of(entry: str) -> str:
    """Return the first name of an entry point: `Solution` for `Solution().twoSum`."""
    return re.split(r"\W", entry, maxsplit=1)[0]


def program(prompt: str, code: str, entry: str) -> str:
    """Return the text to run: complete code, or the body that continues `prompt`.

    Parsers have limits of their own, so call it where an exception is handled.
    """
    if not prompt:
        return textwrap.dedent(code)
    whole = textwrap.dedent(code)
    if _defines(whole, root_of(entry)) or not is_python(prompt):
        return f"{prompt}\n{whole}" if is_python(prompt) else whole
    for body in (code, f"    {code}", textwrap.indent(whole, "    ")):
        joined = f"{prompt.rstrip()}\n{body}"
        if _compiles(joined):
            return joined
    # A prompt may end within a line.
    return prompt + code if _compiles(prompt + code) else f"{prompt}\n{whole}"


def is_python(text: str) -> bool:
    """Return whether a text parses as Python with at least one definition."""
    tree = _parsed(text)
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign)
    return tree is not None and any(isinstance(node, kinds) for node in tree.body)


def _defines(text: str, name: str) -> bool:
    tree = _parsed(text)
    if tree is None:
        return False
    return any(
        getattr(node, "name", None) == name
        or (isinstance(node, ast.Assign) and any(_is_named(one, name) for one in node.targets))
        for node in tree.body
    )


def _is_named(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name


def _compiles(text: str) -> bool:
    tree = _parsed(text)
    try:
        return tree is not None and compile(tree, "<code>", "exec") is not None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False  # such as a return outside a function


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
