"""Data sets of the Hugging Face Hub, by the library `datasets` (extra `data`). Uses the network."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Final

from shoal_tasks.data.arrow_data import library
from shoal_tasks.errors import FamilyError
from shoal_tasks.json_values import Record

HUB: Final = "hf:"
"""Prefix of a data set on the Hub: `hf:org/name[/config][@revision][:split]`."""

_NAME: Final = re.compile(
    # Not "../name": the library would read a folder of this machine.
    r"(?P<path>\w[\w.-]*/\w[\w.-]*)(?:/(?P<config>[\w.-]+))?(?:@(?P<revision>[\w.-]+))?(?::(?P<split>.+))?"
)

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


def is_pinned(source: str) -> bool:
    """Return whether a source names a data set at one commit, so that its rows never change."""
    named = _NAME.fullmatch(source.removeprefix(HUB)) if source.startswith(HUB) else None
    return named is not None and _COMMIT.fullmatch(named["revision"] or "") is not None


def read_hub(source: str) -> Iterator[Record]:
    """Yield the rows of a data set on the Hub. Raises `FamilyError`."""
    named = _NAME.fullmatch(source.removeprefix(HUB))
    if named is None:
        raise FamilyError(f"{source!r} is not hf:org/name[/config][@revision][:split]")
    datasets = library("datasets", f"{source} is a data set on the Hub")
    split = named["split"] or "train"
    # Both libraries print each retry and step to standard error: the error below is one line.
    datasets.disable_progress_bars()
    for each in ("datasets", "huggingface_hub"):
        logging.getLogger(each).setLevel(logging.CRITICAL)
    try:
        found = datasets.load_dataset(
            named["path"], named["config"], revision=named["revision"], split=split
        )
    except Exception as error:  # noqa: BLE001  the library and its transport raise anything
        is_of_rows = isinstance(error, datasets.exceptions.DatasetGenerationError)
        cause = (error.__cause__ if is_of_rows else None) or error
        why = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
        raise FamilyError(f"cannot load {source}: {why}") from None
    yield from found
