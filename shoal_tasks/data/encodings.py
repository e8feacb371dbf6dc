"""Text from bytes: an encoding is read off the file's mark, or the user names it. Pure.

mark (UTF-8, UTF-16, UTF-32) ─▶ as it says
NULs at every other byte     ─▶ UTF-16 without a mark
valid UTF-8                  ─▶ UTF-8
anything else                ─▶ refused: nothing in the file says what it is
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from shoal_tasks.errors import FamilyError

_MARKS: Final = (
    # The mark of UTF-32 begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
_LOOKED_AT_BYTES: Final = 1 << 16
_ONE_SIDED: Final = 0.9
"""Share of a file's NULs that lie at odd, or even, places if it is UTF-16."""
_LONG_RUN: Final = 2.5
"""Mean length of runs of letters above ASCII from which on a text is in no western language."""
_SIGNS: Final = "\u2018\u2019\u201c\u201d\u2013\u2014\u2026€°²³½«»§·©®±×÷\xa0"
_SHOWN_CHARS: Final = 40


def decode_text(data: bytes, name: object, encoding: str = "") -> tuple[str, str]:
    """Return a file's text, without a mark, and the name of its encoding.

    `encoding` is what the user says it is. Raises `FamilyError`, one line that names the file.
    """
    found = encoding or marked_encoding(data) or _unmarked_utf16(data) or "utf-8"
    try:
        text = data.decode(found)
    except LookupError:
        raise FamilyError(
            f"{name}: {encoding!r} is no encoding that Python knows; cp1252, latin-1, shift_jis "
            "and gb18030 are some"
        ) from None
    except UnicodeDecodeError as error:
        raise FamilyError(f"{name}: {_why(data, found, error, is_stated=bool(encoding))}") from None
    except UnicodeError as error:
        raise FamilyError(f"{name}: not {found.upper()}: {error}") from None
    return text.removeprefix("\ufeff"), found


def marked_encoding(data: bytes) -> str:
    """Return the encoding that the byte order mark names; empty without a mark."""
    return next((name for mark, name in _MARKS if data.startswith(mark)), "")


def _unmarked_utf16(data: bytes) -> str:
    """Return the byte order of UTF-16 without a mark; empty for anything else.

    ASCII, which every data file has some of, then has a NUL in each pair.
    """
    looked_at = data[:_LOOKED_AT_BYTES]
    even, odd = looked_at[::2].count(0), looked_at[1::2].count(0)
    if not even + odd or len(data) % 2:
        return ""
    if odd >= _ONE_SIDED * (even + odd):
        return "utf-16-le"
    return "utf-16-be" if even >= _ONE_SIDED * (even + odd) else ""


def _why(data: bytes, encoding: str, error: UnicodeDecodeError, *, is_stated: bool) -> str:
    """Return what is wrong at an undecodable byte, and what to do."""
    line = data.count(b"\n", 0, error.start) + 1
    where = f"byte 0x{data[error.start]:02X} in line {line}"
    if is_stated or encoding != "utf-8":
        return f"not {encoding.upper()}: {where} is none of its characters"
    valid = len(re.findall(rb"[\xc3-\xf4][\x80-\xbf]+", data[:_LOOKED_AT_BYTES]))
    if valid > len(re.findall(rb"[\x80-\xff]", data[:_LOOKED_AT_BYTES])) // 3:
        return f"{where} is not UTF-8, though the file is: its text was cut or damaged there"
    start = data.rfind(b"\n", 0, error.start) + 1
    shown = data[start : error.start + _SHOWN_CHARS].split(b"\n")[0][-2 * _SHOWN_CHARS :]
    if not _looks_western(data):
        return (
            f'not UTF-8: {where}. Name its encoding, encoding = "…" (cp1251, shift_jis, gb18030, '
            "euc_kr …), or save the file as UTF-8"
        )
    text = shown.decode("cp1252", errors="replace").strip()
    return (
        f"not UTF-8: {where}. It looks like Windows-1252 ({text!r}): if that reads well, say "
        'encoding = "cp1252" in the task file, or convert it: iconv -f CP1252 -t UTF-8'
    )


def _looks_western(data: bytes) -> bool:
    """Return whether bytes above ASCII are few in a row, and letters or signs of Windows-1252."""
    runs = re.findall(rb"[\x80-\xff]+", data[:_LOOKED_AT_BYTES])
    text = b"".join(runs).decode("cp1252", errors="replace")
    num_western = sum(char.isalpha() or char in _SIGNS for char in text)
    return len(text) <= _LONG_RUN * len(runs) and num_western >= _ONE_SIDED * len(text)
