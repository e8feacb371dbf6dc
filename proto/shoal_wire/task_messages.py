"""Requests and answers of peers over `/shoal/tasks/1`, as plain values."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from shoal_wire.fields import at_most, holding, sized, within
from shoal_wire.limits import (
    DIGEST_BYTES,
    MAX_BUNDLE_FILES,
    MAX_EXAMPLE_BYTES,
    MAX_EXAMPLES,
    MAX_HUB_ROWS_BYTES,
    MAX_KNOWN_OFFERS,
    MAX_OFFER_BYTES,
    MAX_OFFERS,
    MAX_RETRY_MS,
    MAX_ROUND,
    MAX_TASK_FILE_BYTES,
    OFFER_ID_BYTES,
    SHORT_DIGEST_BYTES,
    TASK_PIECE_BYTES,
)
from shoal_wire.types import Digest

MAX_PIECES: Final = MAX_TASK_FILE_BYTES // TASK_PIECE_BYTES

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")


def is_file_name(name: str) -> bool:
    """Return whether a text is a plain file name: no folder, no hidden file, no other script."""
    return _FILE_NAME.fullmatch(name) is not None


_Family = Annotated[Digest, sized(SHORT_DIGEST_BYTES, SHORT_DIGEST_BYTES, "family")]
_SwarmDigest = Annotated[Digest, sized(DIGEST_BYTES, DIGEST_BYTES, "swarm_digest")]
_OfferId = Annotated[bytes, sized(OFFER_ID_BYTES, OFFER_ID_BYTES, "id of an offer")]
_OfferEnvelope = Annotated[bytes, sized(1, MAX_OFFER_BYTES, "length of an offer")]
_Sha256 = Annotated[bytes, sized(DIGEST_BYTES, DIGEST_BYTES, "sha256")]
_FileName = Annotated[str, holding(is_file_name, "file name")]
_Example = Annotated[str, sized(0, MAX_EXAMPLE_BYTES, "example")]
_Examples = Annotated[tuple[_Example, ...], sized(0, MAX_EXAMPLES, "number of examples")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleQuery:
    """Asks which files a family has. Answered by a `Bundle`."""

    family: _Family


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceQuery:
    """Asks for one piece of one file. Answered by a `Piece`."""

    family: _Family
    file: Annotated[int, within(0, MAX_BUNDLE_FILES - 1, "file")]
    piece: Annotated[int, within(0, MAX_PIECES - 1, "piece")]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffersQuery:
    """Asks for the tasks that members add to a swarm. Answered by `Offers`."""

    swarm_digest: _SwarmDigest
    known: Annotated[tuple[_OfferId, ...], sized(0, MAX_KNOWN_OFFERS, "number of offers")] = ()
    """Ids of offers that the asker has."""


TaskQuery = BundleQuery | PieceQuery | OffersQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleFile:
    """One file of a bundle: `pieces` of `TASK_PIECE_BYTES` each, the last one what remains."""

    name: _FileName
    num_bytes: Annotated[int, within(1, MAX_TASK_FILE_BYTES, "num_bytes")]
    sha256: _Sha256
    pieces: Annotated[tuple[_Sha256, ...], sized(1, MAX_PIECES, "number of pieces")]
    """SHA-256 of each piece."""

    def piece_bytes(self, index: int) -> int:
        """Return the length of a piece; raises IndexError where the file has none there."""
        if not 0 <= index < len(self.pieces):
            raise IndexError(index)
        return min(TASK_PIECE_BYTES, self.num_bytes - index * TASK_PIECE_BYTES)


def bundle_file(name: str, data: bytes) -> BundleFile:
    """Return the description of a file that holds `data`."""
    starts = range(0, len(data), TASK_PIECE_BYTES)
    return BundleFile(
        name=name,
        num_bytes=len(data),
        sha256=hashlib.sha256(data).digest(),
        pieces=tuple(hashlib.sha256(data[at : at + TASK_PIECE_BYTES]).digest() for at in starts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The files of one family, and its author's examples for `shoal tasks lint`."""

    files: Annotated[tuple[BundleFile, ...], sized(1, MAX_BUNDLE_FILES, "number of files")]
    good: _Examples = ()
    bad: _Examples = ()
    hub_rows: Annotated[str, sized(0, MAX_HUB_ROWS_BYTES, "length of hub_rows")] = ""
    """If not empty, the first file is not sent: JSON of the keys that make it from a hub's data
    set (`shoal_tasks.hub_rows`)."""

    def is_sent(self, file: int) -> bool:
        """Return whether pieces of the file at this position are sent."""
        return file > 0 or not self.hub_rows

    @property
    def num_bytes(self) -> int:
        """The size of all files together."""
        return sum(one.num_bytes for one in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The bytes of one piece."""

    data: Annotated[bytes, sized(1, TASK_PIECE_BYTES, "length of a piece")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """An added family that the answering peer trains on, by its own word."""

    family: _Family
    reward: Annotated[float, within(0.0, 1.0, "reward")]
    """Mean of its latest groups."""
    groups: Annotated[int, within(0, MAX_ROUND - 1, "number of groups")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """Envelopes of offers (`shoal_wire.offers`), not opened yet."""

    envelopes: Annotated[tuple[_OfferEnvelope, ...], sized(0, MAX_OFFERS, "number of offers")] = ()
    training: Annotated[tuple[Training, ...], sized(0, MAX_OFFERS, "number of families")] = ()


class TaskRefusalReason(StrEnum):
    """The reason why an answer holds nothing."""

    BUSY = "busy"
    NOT_SHARED = "not_shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRefusal:
    """Not now, or not from this peer. No offence."""

    reason: TaskRefusalReason
    retry_after_ms: Annotated[int, at_most(MAX_RETRY_MS)] = 0


TaskAnswer = Bundle | Piece | Offers | TaskRefusal
