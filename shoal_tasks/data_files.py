"""Data sets as people have them, read as a list of rows: a row is a dict from column to value.

    rows = "questions.jsonl"                   one JSON object a line; also .json, a list of objects
    rows = "questions.csv"                     or .tsv; the first line names the columns
    rows = "questions.parquet"                 needs pyarrow (extra `data`)
    rows = "folder"                            as `datasets` wrote it with `save_to_disk`
    rows = "hf:openai/gsm8k@main:train"        a hub's data set; needs `datasets` (extra `data`)

Reads the disk and, for a hub's name, the network. Everything raises `FamilyError`, one line.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from shoal_base.extras import how_to_get
from shoal_base.files import read_at_most
from shoal_tasks.errors import FamilyError
from shoal_tasks.json_values import Record

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""Largest data file, and largest rows file made of one: the task worker holds it in memory."""

HUB: Final = "hf:"
"""Prefix of a hub's data set: `hf:org/name[/config][@revision][:split]`."""

_HUB_NAME: Final = re.compile(
    r"(?P<path>[\w.-]+/[\w.-]+)(?:/(?P<config>[\w.-]+))?(?:@(?P<revision>[\w.-]+))?(?::(?P<split>.+))?"
)


def read_records(source: str, folder: Path) -> Iterator[tuple[str, Record]]:
    """Yield each row with the words that name its place: `line 3`, or `row 3` where lines say less.

    A relative `source` is looked up in `folder`. Raises `FamilyError`.
    """
    path = folder / source
    is_lines = path.suffix.lower() in (".jsonl", ".ndjson", "") and not is_folder(path)
    if is_lines and not source.startswith(HUB):
        yield from json_lines(read_file(path), path)
        return
    for number, record in enumerate(_rows(source, path), start=1):
        yield f"row {number}", record


def _rows(source: str, path: Path) -> Iterator[Record]:
    if source.startswith(HUB):
        return _from_hub(source)
    if is_folder(path):
        return _from_folder(path)
    match path.suffix.lower():
        case ".json":
            return _from_json(path)
        case ".csv" | ".tsv":
            return _from_csv(path)
        case ".parquet":
            return _from_parquet(path)
    raise FamilyError(
        f"cannot read {path}: {path.suffix.lower()} is no form of data that is known; there are "
        ".jsonl, .json, .csv, .tsv, .parquet, a folder of `save_to_disk`, and hf:org/name"
    )


def is_folder(path: Path) -> bool:
    """Return whether a folder lies there. A name that no file can have names none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def read_file(path: Path) -> bytes:
    """Return a file's bytes. Raises `FamilyError` where it cannot be read or is too large."""
    try:
        return read_at_most(path, MAX_FILE_BYTES)
    except OSError as error:
        raise FamilyError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        is_name = "null" in str(error)
        why = "no file has such a name" if is_name else f"larger than {MAX_FILE_BYTES >> 20} MiB"
        raise FamilyError(f"cannot read {path}: {why}") from None


def json_lines(data: bytes, name: object) -> Iterator[tuple[str, Record]]:
    """Yield the JSON object of each line that is not blank, with the words that name its place.

    Raises `FamilyError` naming the file and the line at fault.
    """
    for number, line in enumerate(data.splitlines(), start=1):
        if line.strip():
            where = f"line {number}"
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                raise FamilyError(f"{name}, {where}: not JSON") from None
            if not isinstance(value, dict):
                raise FamilyError(f"{name}, {where}: not a JSON object")
            yield where, value


def _from_json(path: Path) -> Iterator[Record]:
    try:
        value = json.loads(read_file(path))
    except (ValueError, RecursionError):
        raise FamilyError(f"{path}: not JSON") from None
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise FamilyError(f"{path}: not a list of JSON objects")
    yield from value


def _from_csv(path: Path) -> Iterator[Record]:
    try:
        text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FamilyError(f"{path}: not UTF-8") from None
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                raise FamilyError(f"{path}, line {reader.line_num}: not as many cells as columns")
            yield dict(row)
    except csv.Error as error:
        raise FamilyError(f"{path}, line {reader.line_num}: {error}") from None


def _from_parquet(path: Path) -> Iterator[Record]:
    parquet = _library("pyarrow.parquet", f"{path} is Parquet")
    read_file(path)  # its size, and whether it can be read at all
    with _failures(path):
        for batch in parquet.ParquetFile(path).iter_batches():
            yield from batch.to_pylist()


def _from_folder(path: Path) -> Iterator[Record]:
    """Rows of a folder that `Dataset.save_to_disk` wrote: its state.json names Arrow files."""
    state = path / "state.json"
    if (path / "dataset_dict.json").exists():
        splits = json.loads(read_file(path / "dataset_dict.json")).get("splits", [])
        raise FamilyError(f"{path} holds several splits: name one, such as {path}/{splits[0]}")
    if not state.exists():
        raise FamilyError(f"{path} is a folder, and not one that `save_to_disk` wrote")
    arrow = _library("pyarrow", f"{path} holds Arrow files")
    with _failures(path):
        for file in json.loads(read_file(state))["_data_files"]:
            with arrow.memory_map(str(path / Path(file["filename"]).name)) as data:
                for batch in arrow.ipc.open_stream(data):
                    yield from batch.to_pylist()


def _from_hub(source: str) -> Iterator[Record]:
    named = _HUB_NAME.fullmatch(source.removeprefix(HUB))
    if named is None:
        raise FamilyError(f"{source!r} is not hf:org/name[/config][@revision][:split]")
    datasets = _library("datasets", f"{source} is a data set of a hub")
    split = named["split"] or "train"
    # They tell each retry and each step on standard error: the error below is one line.
    datasets.disable_progress_bars()
    for library in ("datasets", "huggingface_hub"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    try:
        found = datasets.load_dataset(
            named["path"], named["config"], revision=named["revision"], split=split
        )
    except Exception as error:  # noqa: BLE001  the library and its transport raise all kinds
        is_of_rows = isinstance(error, datasets.exceptions.DatasetGenerationError)
        told = (error.__cause__ if is_of_rows else None) or error
        why = str(told).splitlines()[0] if str(told) else type(told).__name__
        raise FamilyError(f"cannot load {source}: {why}") from None
    yield from found


def _library(module: str, why: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise FamilyError(f"{why}, and {package} is not installed: {how_to_get('data')}") from None


@contextlib.contextmanager
def _failures(path: Path) -> Iterator[None]:
    """Within, what pyarrow and a damaged file raise is a `FamilyError` that names the file."""
    try:
        yield
    except FamilyError:
        raise
    except Exception as error:  # noqa: BLE001  pyarrow raises all kinds on a damaged file
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FamilyError(f"cannot read {path}: {why}") from None
