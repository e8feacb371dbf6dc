"""Decoding of files: by the byte order mark, or by the encoding that the user names. Pure.

byte order mark (UTF-8, UTF-16, UTF-32) ─▶ that encoding
NULs at every other byte                ─▶ UTF-16 without a mark
valid UTF-8                             ─▶ UTF-8
anything else                           ─▶ refused: the file does not show its encoding
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from shoal_tasks.errors import FamilyError

_MARKS: Final = (
    # UTF-32's mark begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
_LOOKED_AT_BYTES: Final = 1 << 16
_ONE_SIDED: Final = 0.9
"""Fraction of a file's NULs at odd, or even, positions above which it is UTF-16."""
_LONG_RUN: Final = 2.5
"""Mean length of runs of non-ASCII letters above which a text is not in a western language."""
_SIGNS: Final = "\u2018\u2019\u201c\u201d\u2013\u2014\u2026€°²³½«»§·©®±×÷\xa0"
_SHOWN_CHARS: Final = 40


def decode_text(data: bytes, name: object, encoding: str = "") -> tuple[str, str]:
    """Return a file's text, without a byte order mark, and the name of its encoding.

    `encoding` is the one that the user names, if any. Raises `FamilyError`, one line that names
    the file.
    """
    found = encoding or marked_encoding(data) or _unmarked_utf16(data) or "utf-8"
    try:
        text = data.decode(found)
    except LookupError:
        raise FamilyError(
            f"{name}: Python knows no encoding {encoding!r}; use one such as cp1252, latin-1, "
            "shift_jis or gb18030"
        ) from None
    except UnicodeDecodeError as error:
        raise FamilyError(f"{name}: {_why(data, found, error, is_stated=bool(encoding))}") from None
    except UnicodeError as error:
        raise FamilyError(f"{name}: not {found.upper()}: {error}") from None
    return text.removeprefix("\ufeff"), found


def marked_encoding(data: bytes) -> str:
    """Return the encoding of the byte order mark; empty without a mark."""
    return next((name for mark, name in _MARKS if data.startswith(mark)), "")


def _unmarked_utf16(data: bytes) -> str:
    """Return the byte order of UTF-16 without a mark; empty for anything else.

    Every data file has some ASCII, which in UTF-16 has a NUL in each pair of bytes.
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
        return f"not {encoding.upper()}: {where} is not one of its characters"
    valid = len(re.findall(rb"[\xc3-\xf4][\x80-\xbf]+", data[:_LOOKED_AT_BYTES]))
    if valid > len(re.findall(rb"[\x80-\xff]", data[:_LOOKED_AT_BYTES])) // 3:
        return (
            f"{where} is not UTF-8, but the rest of the file is: the text was cut or damaged there"
        )
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
    """Return whether the bytes above ASCII are short runs of Windows-1252 letters or signs."""
    runs = re.findall(rb"[\x80-\xff]+", data[:_LOOKED_AT_BYTES])
    text = b"".join(runs).decode("cp1252", errors="replace")
    num_western = sum(char.isalpha() or char in _SIGNS for char in text)
    return len(text) <= _LONG_RUN * len(runs) and num_western >= _ONE_SIDED * len(text)
