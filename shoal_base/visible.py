r"""Escapes untrusted text for a terminal, a log or a page. Pure.

A completion, a model's name or an error's text is untrusted. Characters that affect the display
(move the cursor, clear the screen, reverse the writing direction, are invisible, or overlap their
neighbours) are escaped as in Python: ``\x1b``, ``\n``, ``\u202e``. All others stay, so that text in
any script is readable.

    visible("a\x1b[2Jb") == r"a\x1b[2Jb"      visible_name("tiny ") == r"tiny\x20"

It is below the wire protocol in the layers, because task files and a model hub's errors are
untrusted, too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from typing import Final

from shoal_base.bounded import LINE_CHARS

_MOST_MARKS: Final = 4
"""Most combining marks on one letter: no script needs more, and a stack overlaps other lines."""

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
"""Characters that are printable for Python but invisible: Unicode's default-ignorable, a blank."""

_PLAIN: Final = re.compile(r"[!-\[\]-~]*")
"""Printable ASCII without space and backslash."""

_RIGHT_TO_LEFT: Final = frozenset({"R", "AL", "AN"})
"""Bidirectional classes that reorder neighbouring text."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, shortened; its type's name if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0][:LINE_CHARS] if lines else type(error).__name__


def acts(character: str) -> bool:
    """Return whether a character affects the display beyond its own place.

    True for Unicode's controls, formats (bidirectional and zero-width ones among them), surrogates,
    private and unassigned characters, separators except the space, and invisible characters.
    """
    return not character.isprintable() or character in _UNSEEN


def visible(text: str) -> str:
    r"""Return `text` as one line with all such characters escaped.

    It is idempotent. A text with an escape character looks like one with the four characters
    ``\x1b``; if that matters, use `visible_name`.
    """
    return text if text.isascii() and text.isprintable() else _written(text, also=())


def visible_lines(text: str) -> list[str]:
    """Return the lines of `text`, split at line feeds only, each escaped."""
    return [visible(line) for line in text.split("\n")]


def visible_name(name: str) -> str:
    r"""Return a name for display next to other names: names that differ are shown differently.

    In addition to `visible`, it escapes backslashes, spaces that are leading, trailing or
    repeated, and right-to-left letters, which would reorder neighbouring columns on some
    terminals. Letters of different scripts that look alike stay. Apply it only once.
    """
    if _PLAIN.fullmatch(name):
        return name
    return _written(name, also={place for place in range(len(name)) if _misleads(name, place)})


def numbered(character: str) -> str:
    r"""Return a character's escape as in Python, from ``\x00`` to ``\U0010ffff``."""
    written = character.encode("unicode_escape").decode("ascii")
    return written if len(written) > 2 or ord(character) < 32 else f"\\x{ord(character):02x}"


def _written(text: str, *, also: Collection[int]) -> str:
    """Escape the characters that `acts` names, and those at the places `also`."""
    shown: list[str] = []
    num_marks = _MOST_MARKS  # a mark at the start would combine with the text before
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
    """Return whether a name's character is ambiguous, or reorders its neighbours."""
    character = name[place]
    if character == " ":
        return place in (0, len(name) - 1) or name[place - 1] == " "
    return character == "\\" or unicodedata.bidirectional(character) in _RIGHT_TO_LEFT
