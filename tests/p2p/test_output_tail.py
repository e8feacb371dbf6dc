"""The end of a process's output, and the line that names its cause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_base.bounded import FEW, LINE_CHARS
from shoal_p2p.output_tail import OutputTail

TRACEBACK = """\
INFO trainer: resumed at round 3
Traceback (most recent call last):
  File "x.py", line 3, in <module>
    raise ValueError("odd")
ValueError: odd
"""


def tail_of(*parts: bytes) -> OutputTail:
    words = OutputTail()
    for part in parts:
        words.feed(part)
    return words


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", ""),
        (TRACEBACK, "ValueError: odd"),
        (TRACEBACK + "sys:1: ResourceWarning: unclosed\n", "ValueError: odd"),
        ("torch.OutOfMemoryError: CUDA\n", "torch.OutOfMemoryError: CUDA"),
        ("BrokenPipeError: [Errno 32] Broken pipe\n", "BrokenPipeError: [Errno 32] Broken pipe"),
        ("shoal trainer: cannot write round-000003\n", "cannot write round-000003"),
        ("ERROR trainer: the disk is gone\nINFO trainer: bye\n", "the disk is gone"),
        ("2026-01-01 10:00:00 ERROR trainer: the disk is gone\n", "the disk is gone"),
        ("Fatal Python error: Aborted\n\nstack\n", "Fatal Python error: Aborted"),
        ("half a line", "half a line"),
    ],
)
def test_the_cause_is_the_last_line_that_is_an_error(text: str, cause: str) -> None:
    assert tail_of(text.encode()).cause() == cause


def test_what_acts_on_a_terminal_is_shown() -> None:
    assert tail_of(b"ValueError: \x1b[2J\xff \xe2\x80\xae\n").cause() == (
        "ValueError: \\x1b[2J\\xff \\u202e"
    )


@given(st.lists(st.binary(max_size=2000), max_size=30))
def test_it_is_bounded_and_printable_however_it_is_cut(parts: list[bytes]) -> None:
    words = tail_of(*parts)
    assert len(words.lines) <= FEW + 1
    assert all(len(line) <= LINE_CHARS and line.isprintable() for line in words.lines)
    assert "\n" not in words.cause()


def test_a_line_without_an_end_is_bounded() -> None:
    words = tail_of(*[b"x" * 100_000] * 100)
    assert sum(map(len, words.lines)) <= LINE_CHARS
    assert tail_of(b"Value", b"Error: od", b"d\n").cause() == "ValueError: odd"
