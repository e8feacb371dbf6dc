"""Every kind of character that controls a terminal, and attacks made from them."""

from __future__ import annotations

import unicodedata

_RANGES = (
    (0x00, 0x1F),  # C0: ESC, CR, BS, BEL, tab
    (0x7F, 0x9F),  # DEL, C1: CSI and OSC in one character, next line
    (0xAD, 0xAD),  # soft hyphen
    (0xA0, 0xA0),  # no-break space
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),  # zero-width characters and direction marks
    (0x2028, 0x202E),  # separators of lines, embeddings, overrides
    (0x2060, 0x206F),  # isolates among them
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xD800, 0xD801),  # lone surrogates
    (0xE000, 0xE001),  # private
    (0xFE00, 0xFE0F),  # variation selectors
    (0xFEFF, 0xFEFF),  # byte order mark
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFB),  # unassigned, annotations
    (0xFFFF, 0xFFFF),
    (0xE0000, 0xE0001),  # tags
    (0xE0100, 0xE0101),
    (0x10FFFF, 0x10FFFF),
)
ACTING = frozenset(chr(p) for first, last in _RANGES for p in range(first, last + 1)) - {"\n"}
"""Characters that shoal must never print; a line feed only where shoal itself breaks a line."""

TRICKS = (
    "\x1b]0;OWNED BY PEER\x1b\\",  # the terminal's title
    "\x1b[2J\x1b[H shoal debug: everything is fine\n",  # a faked screen
    "\x1b]8;;http://evil.example/\x1b\\click\x1b]8;;\x1b\\",
    "\x1b]52;c;ZXZpbA==\x07",  # the clipboard
    "\x9b31mred\x9dtitle\x9c",
    "0.00  wrong\r1.00  right",
    "\u202egpj.exe\u202c",
    "[/x][bold red]loud[/] [link=http://evil.example/]here[/link] :smile:",
    "\\x1b[2J",
    "$ \\mathrm{x}$",
    "| a | <b>cell</b> |",
    "Z" + "\u0301" * 40,
)
ALL_OF_THEM = "".join(sorted(ACTING)) + "".join(TRICKS)
"""One text with all of them."""
ALL_THAT_UTF8_HOLDS = "".join(c for c in ALL_OF_THEM if unicodedata.category(c) != "Cs")
"""The same without lone surrogates, so that it can be sent."""


def acting_in(shown: str) -> set[str]:
    """Return the control characters of a text, independently of the product's own filter."""
    kinds = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    return {c for c in shown if c in ACTING or unicodedata.category(c) in kinds}
