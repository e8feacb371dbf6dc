"""Comparison of a script's output with a test's expected output."""

from __future__ import annotations

import pytest

from shoal_tasks.unit_tests.outputs import difference


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("3\n", "3"),
        ("3", "3\n\n"),
        ("1 2  \n3\r\n", "1 2\n3"),
        ("1  2", "1 2"),
        ("", "\n"),
        ("0.3333333", "0.33333333"),
        ("1", "1.0"),
        ("1e-9", "0.0"),
        ("é", "é"),
    ],
)
def test_outputs_that_are_equal(printed: str, expected: str) -> None:
    assert difference(printed.encode(), expected) == ""


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("3", "4"),
        ("3\n4", "3"),
        ("", "3"),
        ("0.334", "0.333"),
        ("1.0", "1"),
        ("nan", "1.0"),
        ("inf", "1.0"),
        ("1_0", "10.0"),
        ("yes", "YES"),
        ("1" * 100, "1." + "1" * 100),
        ("\xff", "x"),
        (" 3", "3 4"),
    ],
)
def test_outputs_that_differ(printed: str, expected: str) -> None:
    line = difference(printed.encode("latin-1"), expected)
    assert line and "\n" not in line
