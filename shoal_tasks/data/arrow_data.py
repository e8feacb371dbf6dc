"""Parquet, Arrow files and folders saved by `datasets`, read by pyarrow (extra `data`)."""

from __future__ import annotations

import contextlib
import importlib
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from shoal_base.extras import how_to_get
from shoal_base.git_lfs import is_lfs_pointer
from shoal_tasks.errors import FamilyError
from shoal_tasks.json_values import Record

PARQUET: Final = b"PAR1"
ARROW: Final = b"ARROW1"
"""The first bytes of Parquet and of Arrow files."""

LFS_POINTER: Final = "is a Git LFS pointer, not the data: `git lfs pull` in its folder gets it"

_Conversion = Callable[[Any], Any]


def read_parquet(path: Path) -> Iterator[Record]:
    """Yield the rows of a Parquet file. Raises `FamilyError`."""
    parquet = library("pyarrow.parquet", f"{path} is Parquet")
    with _failures(path):
        for batch in parquet.ParquetFile(path).iter_batches():
            yield from _rows(batch)


def read_arrow(path: Path) -> Iterator[Record]:
    """Yield the rows of an Arrow file or stream. Raises `FamilyError`."""
    arrow = library("pyarrow", f"{path} is an Arrow file")
    with _failures(path), arrow.memory_map(str(path)) as data:
        is_file = data.read(len(ARROW)) == ARROW
        data.seek(0)
        if is_file:
            reader = arrow.ipc.open_file(data)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        else:
            batches = arrow.ipc.open_stream(data)
        for batch in batches:
            yield from _rows(batch)


def read_saved(path: Path, read: Callable[[Path], bytes]) -> Iterator[Record]:
    """Yield the rows of a folder that `Dataset.save_to_disk` wrote: state.json names Arrow files.

    Raises `FamilyError`.
    """
    if (path / "dataset_dict.json").exists():
        splits = json.loads(read(path / "dataset_dict.json")).get("splits", [])
        raise FamilyError(f"{path} holds several splits: name one, such as {path}/{splits[0]}")
    if not (path / "state.json").exists():
        files = sorted(one.name for one in path.iterdir() if one.is_file())
        hint = f"; name one of its files, such as {path}/{files[0]}" if files else ""
        raise FamilyError(f"{path} is a folder, but was not written by `save_to_disk`{hint}")
    with _failures(path):
        state = json.loads(read(path / "state.json"))
        names = [Path(file["filename"]).name for file in state["_data_files"]]
    for name in names:
        if is_lfs_pointer(path / name):
            raise FamilyError(f"{path / name} {LFS_POINTER}")
        yield from read_arrow(path / name)


def library(module: str, why: str) -> Any:
    """Import an optional library. Raises `FamilyError` with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise FamilyError(f"{why}, but {package} is not installed: {how_to_get('data')}") from None


def _rows(batch: Any) -> Iterator[Record]:
    """Yield a batch's rows, with short floats rounded to their shortest decimal."""
    conversions = {
        one.name: convert
        for one in batch.schema
        if (convert := _conversion_of(one.type)) is not None
    }
    for row in batch.to_pylist():
        for name, convert in conversions.items():
            row[name] = convert(row[name])
        yield row


def _conversion_of(kind: Any) -> _Conversion | None:
    """Return the conversion of a type's values to the decimals as written; None if not needed."""
    types = importlib.import_module("pyarrow.types")
    if types.is_float32(kind):
        return lambda value: _shortest(value, "f")
    if types.is_float16(kind):
        return lambda value: _shortest(value, "e")
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = _conversion_of(kind.value_type)
        if inner is not None:
            return lambda value: None if value is None else list(map(inner, value))
    if types.is_struct(kind):
        fields = {
            one.name: convert for one in kind if (convert := _conversion_of(one.type)) is not None
        }
        if fields:
            return lambda value: (
                value
                and {
                    name: fields[name](one) if name in fields else one
                    for name, one in value.items()
                }
            )
    return None


def _shortest(value: Any, code: str) -> Any:
    """Return the shortest decimal that gives this 16- or 32-bit float.

    So 0.333 stays 0.333, which would be 0.3333333432674408 as a 64-bit float.
    """
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return value
    packed = struct.pack(code, value)
    for digits in range(1, 10):
        short = float(f"{value:.{digits}g}")
        with contextlib.suppress(OverflowError):
            if struct.pack(code, short) == packed:
                return short
    return value


@contextlib.contextmanager
def _failures(path: Path) -> Iterator[None]:
    """Convert read errors to a `FamilyError` that names the file."""
    try:
        yield
    except FamilyError:
        raise
    except Exception as error:  # noqa: BLE001  pyarrow raises anything on a damaged file
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FamilyError(f"cannot read {path}: it is damaged ({why})") from None
