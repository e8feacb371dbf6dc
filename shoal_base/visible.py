r"""Text that only stands: what others wrote, as a terminal, a log or a page may show it. Pure.

A completion, a model's name or an error's text is whatever its author sent. Characters in it that
act on what shows them (move the cursor, clear the screen, turn the direction of writing, hide, or
lie on their neighbours) are written out by their number as Python writes them: ``\x1b``, ``\n``,
``\u202e``. All others stay, so that text in any script can be read.

    visible("a\x1b[2Jb") == r"a\x1b[2Jb"      visible_name("tiny ") == r"tiny\x20"

It stands below the contract between peers because task files and the errors of a model hub are
strangers' text, too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from typing import Final

from shoal_base.bounded import LINE_CHARS

_MOST_MARKS: Final = 4
"""Marks on one letter: no script needs more, and a pile of them runs over other lines."""

_UNSEEN: Final = frozenset(
    chr(point)
    for first, last in (
        (0x034F, 0x034F),  # combining grapheme joiner
        (0x115F, 0x1160),  # Hangul fillers
        (0x17B4, 0x17B5),  # Khmer inherent vowels
        (0x180B, 0x180F),  # Mongolian variation selectors
        (0x2800, 0x2800),  # the Braille pattern without a dot
        (0x3164, 0x3164),  # Hangul filler
        (0xFE00, 0xFE0F),  # variation selectors
        (0xFFA0, 0xFFA0),  # halfwidth Hangul filler
        (0xE0100, 0xE01EF),  # variation selectors
    )
    for point in range(first, last + 1)
)
"""Characters that Python calls printable and nobody sees: Unicode's default-ignorable, a blank."""

_PLAIN: Final = re.compile(r"[!-\[\]-~]*")
"""Printable ASCII without space and backslash."""

_RIGHT_TO_LEFT: Final = frozenset({"R", "AL", "AN"})
"""Bidirectional classes that turn round what stands beside them."""


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, cut where it is very long; else its kind."""
    lines = str(error).strip().splitlines()
    return lines[0][:LINE_CHARS] if lines else type(error).__name__


def acts(character: str) -> bool:
    """Return whether a character does anything but stand in its place.

    So do those of Unicode's categories of controls, formats (the bidirectional and zero-width ones
    among them), surrogates, private and unassigned ones, separators but for the space, and those
    that cannot be seen.
    """
    return not character.isprintable() or character in _UNSEEN


def visible(text: str) -> str:
    r"""Return `text` in one line in which no character acts.

    The same again changes nothing. Two texts look the same where one spells out what the other
    holds (``\x1b`` typed, and an escape); where that matters, see `visible_name`.
    """
    return text if text.isascii() and text.isprintable() else _written(text, also=())


def visible_lines(text: str) -> list[str]:
    """Return the lines of `text`, broken at line feeds alone, each made visible."""
    return [visible(line) for line in text.split("\n")]


def visible_name(name: str) -> str:
    r"""Return a name as it can stand beside others: those that differ are shown differently.

    Beyond `visible`, a backslash is a number, too, and so is a space that cannot be seen to be
    there or to be one. So are letters that are written from right to left: on a terminal that
    reorders text they would change the places of the columns beside them. Letters of different
    scripts that look alike stay. To be applied once.
    """
    if _PLAIN.fullmatch(name):
        return name
    return _written(name, also={place for place in range(len(name)) if _misleads(name, place)})


def numbered(character: str) -> str:
    r"""Return a character's number as Python writes it, from ``\x00`` to ``\U0010ffff``."""
    written = character.encode("unicode_escape").decode("ascii")
    return written if len(written) > 2 or ord(character) < 32 else f"\\x{ord(character):02x}"


def _written(text: str, *, also: Collection[int]) -> str:
    """Return `text` with numbers for what acts, and for the characters at the places `also`."""
    shown: list[str] = []
    num_marks = _MOST_MARKS  # a mark at the start would sit on what stands before the text
    for place, character in enumerate(text):
        if acts(character) or place in also:
            num_marks = _MOST_MARKS
            shown.append(numbered(character))
            continue
        is_mark = unicodedata.category(character) in ("Mn", "Me")
        num_marks = num_marks + 1 if is_mark else 0
        shown.append(character if num_marks <= _MOST_MARKS else numbered(character))
    return "".join(shown)


def _misleads(name: str, place: int) -> bool:
    """Return whether a name's character is not what it seems, or moves what stands beside it."""
    character = name[place]
    if character == " ":
        return place in (0, len(name) - 1) or name[place - 1] == " "
    return character == "\\" or unicodedata.bidirectional(character) in _RIGHT_TO_LEFT
