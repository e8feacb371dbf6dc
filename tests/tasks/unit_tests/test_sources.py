"""The code of a completion: which block it is, and what it continues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_tasks.unit_tests.sources import (
    MAX_CODE_CHARS,
    extract_code,
    fences,
    program,
    unscored_around_code,
)

PROMPT = 'def f(a):\n    """ Doc. """\n'


@pytest.mark.parametrize(
    ("text", "entry", "code"),
    [
        ("x = 1", "", "x = 1"),
        ("Sure:\n```python\nx = 1\n```\nDone.", "", "x = 1"),
        ("```\nx = 1\n```", "", "x = 1"),
        ("```py\nx = 1\n```\n```python\nx = 2\n```", "", "x = 2"),
        ("```python\ndef f(): pass\n```\nUse it:\n```python\nf()\n```", "f", "def f(): pass"),
        ("```python\nclass S: pass\n```\n```bash\nls\n```", "S", "class S: pass"),
        ("```bash\nls\n```", "", "```bash\nls\n```"),
        ("<think>\n```python\nx = 1\n```\n</think>\n```python\nx = 2\n```", "", "x = 2"),
        ("~~~python\nx = '''```'''\n~~~", "", "x = '''```'''"),
        ("````python\n```\n````", "", "```"),
        ("```python\nx = 1", "", "```python\nx = 1"),
        ("- item\n  ```python\n  x = 1\n  ```", "", "  x = 1"),
        ("```python title=\"a\"\nx = 1\n```", "", "x = 1"),
        ("x" * (MAX_CODE_CHARS + 1), "", ""),
    ],
)  # fmt: skip
def test_the_code_of_a_completion(text: str, entry: str, code: str) -> None:
    assert extract_code(text, entry) == code


@pytest.mark.parametrize(
    "code",
    [
        "    return a + 1",
        "return a + 1",
        "    b = a\n    return b + 1",
        "b = a\nreturn b + 1",
        "def f(a):\n    return a + 1",
        "    def f(a):\n        return a + 1",
        "f = lambda a: a + 1",
        "from math import pi\n\ndef f(a):\n    return a + 1",
        "    return g(a)\n\n\ndef g(a):\n    return a + 1\n",
        " return a + 1",
    ],
)
def test_a_continuation_or_a_whole_function_is_the_same_program(code: str) -> None:
    names: dict[str, object] = {}
    exec(program(PROMPT, code, "f"), names)
    assert names["f"](1) == 2  # type: ignore[operator]


@given(st.text(st.sampled_from("`~\n py#x ")))
def test_blocks_are_parts_of_the_text_in_order(text: str) -> None:
    position = 0
    for _, first, last in fences(text):
        assert position <= first <= last <= len(text)
        position = last
    for first, last in unscored_around_code(text) or ():
        assert 0 <= first < last <= len(text)


def test_what_stands_around_the_only_block_is_unread() -> None:
    text = "Hidden.\n```python\nx = 1\n```\nHidden too."
    spans = unscored_around_code(text)
    assert spans is not None
    assert [text[first:last] for first, last in spans] == ["Hidden.\n", "\nHidden too."]
    assert unscored_around_code("```\n1\n```\n```\n2\n```") is None
    assert unscored_around_code("x = 1") == ()
