"""Reads data sets in common formats as a list of rows: each is a dict from column to value.

    rows = "questions.jsonl"                   JSON: one row per line, or a list rows =
    "questions.csv"                     a text table; its first line names the columns rows =
    "questions.parquet"                 needs pyarrow (extra `data`), as .arrow does rows = "folder"
    written by `save_to_disk` of `datasets` rows = "hf:openai/gsm8k@main:train"        a data set on
    the Hub; needs `datasets` (extra `data`)

Format, encoding and separator are recognised by a file's content, not by its name. Reads the disk
and, for the Hub, the network. Every error is a `FamilyError` with one line.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from shoal_base.files import read_at_most
from shoal_base.git_lfs import is_lfs_pointer
from shoal_tasks.data.arrow_data import (
    ARROW,
    LFS_POINTER,
    PARQUET,
    read_arrow,
    read_parquet,
    read_saved,
)
from shoal_tasks.data.csv_data import read_csv
from shoal_tasks.data.encodings import decode_text, marked_encoding
from shoal_tasks.data.hub_data import HUB, is_pinned, read_hub
from shoal_tasks.data.json_data import read_json
from shoal_tasks.errors import FamilyError
from shoal_tasks.json_values import Placed, Record
from shoal_wire.limits import MAX_TASK_FILE_BYTES

MAX_FILE_BYTES: Final = MAX_TASK_FILE_BYTES
"""Maximum size of a data file and of its rows file, which the task worker holds in memory."""

__all__ = [
    "HUB",
    "MAX_FILE_BYTES",
    "DataFile",
    "DataForm",
    "ReadOptions",
    "is_pinned",
    "read_records",
]

_GZIP: Final = b"\x1f\x8b"
_STREAM: Final = b"\xff\xff\xff\xff"
"""The first bytes of an Arrow stream, as `datasets` writes it."""
_UNREADABLE: Final = (
    (b"PK\x03\x04", "a spreadsheet or a zip archive: save the sheet as CSV"),
    (b"\xd0\xcf\x11\xe0", "an old spreadsheet: save the sheet as CSV"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd: unpack it first, zstd -d FILE"),
    (b"BZh", "compressed by bzip2: unpack it first, bunzip2 FILE"),
    (b"\xfd7zXZ", "compressed by xz: unpack it first, unxz FILE"),
    (b"SQLite format 3", "a database: export the table as CSV"),
    (b"\x80\x04\x95", "a pickle, which may run code: save it as JSON lines"),
)
"""First bytes of formats that are not supported, with what to do."""
_JSON_ENDINGS: Final = (".jsonl", ".json", ".ndjson")
_TABLE_ENDINGS: Final = (".csv", ".tsv", ".txt", ".psv")


class DataForm(StrEnum):
    """The format of a data set, as a user would call it."""

    JSON_LINES = "JSON lines"
    JSON = "JSON"
    TABLE = "CSV"
    PARQUET = "Parquet"
    ARROW = "Arrow"
    FOLDER = "a folder of save_to_disk"
    HUB = "a hub's data set"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The keys of a task file that describe its data's format."""

    encoding: str = ""
    """Python's name of the encoding; empty to detect it."""
    columns: tuple[str, ...] = ()
    """Column names, for a file without them."""
    wanted: frozenset[str] = frozenset()
    """Columns that the task file uses."""

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """Read them from a task file's table."""
        return cls(
            encoding=table.get("encoding", ""),
            columns=_named(table.get("columns", ())),
            wanted=frozenset(table[key] for key in ("question", "answer") if key in table),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A data set, and what was recognised about it."""

    form: DataForm
    records: Iterable[Placed]
    """Each row with its place in words, `line 3` or `row 3`; can be read once."""
    encoding: str = ""
    """Python's name of a text's encoding; empty for other formats."""
    separator: str = ""
    """The separator of a table's cells."""

    @property
    def description(self) -> str:
        """The format in words, with anything unusual about it."""
        parts = [str(self.form)]
        if self.separator in (";", "|", "\t"):
            parts.append("separated by " + ("tabs" if self.separator == "\t" else self.separator))
        if self.encoding not in ("", "utf-8"):
            parts.append(self.encoding.removesuffix("-sig").upper())
        return ", ".join(parts)


def read_records(source: str, folder: Path, options: ReadOptions | None = None) -> Iterator[Placed]:
    """Yield each row with its place in words: `line 3`, or `row 3` if lines do not apply.

    A relative `source` is resolved in `folder`. Raises `FamilyError`.
    """
    yield from recognise(source, folder, options).records


def recognise(source: str, folder: Path, options: ReadOptions | None = None) -> DataFile:
    """Recognise a data set by its content. A relative `source` is resolved in `folder`.

    Raises `FamilyError`, here or while its records are read.
    """
    options = options or ReadOptions()
    if source.startswith(HUB):
        return DataFile(form=DataForm.HUB, records=_numbered(read_hub(source)))
    path = folder / source
    if is_folder(path):
        return DataFile(form=DataForm.FOLDER, records=_numbered(read_saved(path, read_file)))
    data = read_file(path)
    if is_lfs_pointer(path):
        raise FamilyError(f"{path} {LFS_POINTER}")
    if data.startswith(PARQUET) or path.suffix.lower() == ".parquet":
        return DataFile(form=DataForm.PARQUET, records=_numbered(read_parquet(path)))
    if data.startswith((ARROW, _STREAM)):
        return DataFile(form=DataForm.ARROW, records=_numbered(read_arrow(path)))
    if data.startswith(_GZIP):
        data = _unpacked(data, path)
    return _recognise_text(data, path, options)


def _recognise_text(data: bytes, path: Path, options: ReadOptions) -> DataFile:
    for beginning, what in _UNREADABLE:
        if data.startswith(beginning):
            raise FamilyError(f"{path} is {what}")
    if not marked_encoding(data) and _is_binary(data):
        raise FamilyError(
            f"{path} is neither text nor a known data format; save it as JSON lines or CSV"
        )
    text, encoding = decode_text(data, path, options.encoding)
    begins = text.lstrip()[:64]
    if begins.lower().startswith(("<!doctype", "<html")):
        raise FamilyError(f"{path} is a web page, not the data: download the file itself")
    endings = [one.lower() for one in path.suffixes]
    is_table = any(one in _TABLE_ENDINGS for one in endings)
    if begins.startswith(("{", "[")) or any(one in _JSON_ENDINGS for one in endings) or not begins:
        try:
            is_lines, rows = read_json(text, path, options.columns)
        except FamilyError:
            if not is_table:
                raise
        else:
            form = DataForm.JSON_LINES if is_lines else DataForm.JSON
            return DataFile(form=form, records=rows, encoding=encoding)
    table = read_csv(text, path, columns=options.columns, wanted=options.wanted)
    return DataFile(
        form=DataForm.TABLE, records=table.rows, encoding=encoding, separator=table.separator
    )


def _named(columns: Sequence[Any]) -> tuple[str, ...]:
    """Return the names in the key `columns`. Raises `FamilyError`."""
    is_good = all(isinstance(one, str) and one.strip() for one in columns)
    if not is_good or len(set(columns)) < len(columns):
        raise FamilyError('columns must be different names, such as ["question", "answer"]')
    return tuple(columns)


def _numbered(records: Iterable[Record]) -> Iterator[Placed]:
    for number, record in enumerate(records, start=1):
        yield f"row {number}", record


def _is_binary(data: bytes) -> bool:
    """Return whether control characters show that this is not text in any encoding."""
    looked_at = data[:4096]
    controls = sum(looked_at.count(byte) for byte in (*range(1, 8), *range(14, 27)))
    return controls > len(looked_at) // 16


def _unpacked(data: bytes, path: Path) -> bytes:
    """Decompress a gzip file."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacker.decompress(data, MAX_FILE_BYTES + 1)
    except zlib.error:
        raise FamilyError(f"cannot read {path}: its gzip data is damaged") from None
    if len(unpacked) > MAX_FILE_BYTES:
        raise FamilyError(f"cannot read {path}: unpacked it is over {MAX_FILE_BYTES >> 20} MiB")
    if not unpacker.eof:
        raise FamilyError(f"cannot read {path}: its gzip data is truncated")
    return unpacked


def is_folder(path: Path) -> bool:
    """Return whether the path is a folder. An impossible file name is not."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def read_file(path: Path) -> bytes:
    """Return a file's bytes. Raises `FamilyError` if it cannot be read or is too large."""
    try:
        return read_at_most(path, MAX_FILE_BYTES)
    except OSError as error:
        raise FamilyError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        is_name = "null" in str(error)
        why = "a file cannot have this name" if is_name else _too_large(path)
        raise FamilyError(f"cannot read {path}: {why}") from None


def _too_large(path: Path) -> str:
    try:
        size = f"{path.stat().st_size:,} bytes"
    except OSError:
        size = "too large"
    return f"{size}; the limit is {MAX_FILE_BYTES:,} ({MAX_FILE_BYTES >> 20} MiB)"
