"""The one function that makes strangers' text visible: any text, and the characters that act."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_base.visible import acts, numbered, visible, visible_lines, visible_name
from tests.support.hostile_text import ACTING, ALL_OF_THEM, acting_in

TEXTS = st.text(st.characters(codec=None) | st.sampled_from(sorted(ACTING)))
"""Lone surrogates and unassigned code points among them."""
CLEAN = st.text(st.characters(categories=["L", "N", "P", "S"])).filter(
    lambda text: not any(map(acts, text))
)


@given(TEXTS)
def test_any_text_becomes_one_line_that_a_terminal_only_shows(text: str) -> None:
    for shown in (visible(text), visible_name(text)):
        assert shown == "" or shown.isprintable()
        assert not acting_in(shown)
        shown.encode("utf-8")


@given(TEXTS)
def test_the_same_again_changes_nothing(text: str) -> None:
    assert visible(visible(text)) == visible(text)
    assert visible(visible_name(text)) == visible_name(text)


@given(CLEAN)
def test_clean_text_in_any_script_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@given(TEXTS)
def test_a_name_can_be_read_back(name: str) -> None:
    shown = visible_name(name)
    spelled = shown.encode("latin-1", "backslashreplace")
    assert spelled.decode("unicode_escape") == name


@given(TEXTS)
def test_a_name_does_not_reverse_the_neighbouring_columns(name: str) -> None:
    directions = {unicodedata.bidirectional(character) for character in visible_name(name)}
    assert not directions & {"R", "AL", "AN"}


@given(TEXTS)
def test_lines_are_broken_at_line_feeds_alone(text: str) -> None:
    assert visible_lines(text) == [visible(line) for line in text.split("\n")]


@pytest.mark.parametrize("character", sorted(ACTING), ids=lambda c: f"{ord(c):04x}")
def test_each_control_character_is_shown_as_its_number(character: str) -> None:
    assert acts(character)
    assert visible(f"a{character}b") == f"a{numbered(character)}b"
    assert numbered(character).encode("ascii").decode("unicode_escape") == character


def test_all_of_unicode() -> None:
    """Nothing passes of the categories that act: what a new Python calls printable is looked at."""
    refused = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    for point in range(sys.maxunicode + 1):
        character = chr(point)
        if not acts(character):
            assert unicodedata.category(character) not in refused, hex(point)
            assert character == " " or not character.isspace(), hex(point)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("50 %\rdone", r"50 %\rdone"),
        ("two\nlines\tand a tab", r"two\nlines\tand a tab"),
        ("\x7f\x85\x9b", r"\x7f\x85\x9b"),
        ("\u202etxt.exe", r"\u202etxt.exe"),
        ("\U000e0041", r"\U000e0041"),
        ("\ud800", r"\ud800"),
        ("grüße, 你好, שלום, 👋", "grüße, 你好, שלום, 👋"),
        (r"C:\new", r"C:\new"),
        ("[/x] :smile:", "[/x] :smile:"),
        ("a" + "\u0301" * 6, "a" + "\u0301" * 4 + r"\u0301\u0301"),
        ("\u0301 on what is before", r"\u0301 on what is before"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("a person", "a person"),
        ("tiny ", r"tiny\x20"),
        (" tiny", r"\x20tiny"),
        ("a  b", r"a \x20b"),
        (r"a\x1b", r"a\x5cx1b"),
        ("שלום", r"\u05e9\u05dc\u05d5\u05dd"),
        ("modèle 模型", "modèle 模型"),
    ],
)
def test_how_a_name_is_shown(name: str, shown: str) -> None:
    assert visible_name(name) == shown


def test_the_hostile_text_of_all_tests_holds_every_kind() -> None:
    assert acting_in(ALL_OF_THEM) == ACTING | {"\n"}
