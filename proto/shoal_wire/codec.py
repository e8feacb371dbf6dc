"""Converts types to and from protobuf. Apart from this module, only `announcement`, `envelope`,
`judge`, `manifest`, `peers`, `reach` and `rollout_codec` use `*_pb2`.

Payloads are one zstd frame, whose declared size is checked before any allocation.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import zstandard
from google.protobuf.message import DecodeError

from shoal_wire.errors import RemoteError
from shoal_wire.fields import Wire, Wires, coded
from shoal_wire.halffloat import pack_halves, unpack_halves
from shoal_wire.limits import (
    DIGEST_BYTES,
    MAX_COMPLETIONS,
    MAX_COMPLETIONS_PER_BATCH,
    MAX_GROUPS_PER_BATCH,
    SCHEMA_MAJOR,
)
from shoal_wire.types import Completion, FinishReason, RolloutBatch, RolloutGroup
from shoal_wire.v1 import rollout_pb2 as pb
from shoal_wire.verdict import Reason

_MIN_WINDOW_CAP = 1 << 20
"""Encoders choose windows by level, not by content: smaller caps would refuse honest frames."""

_LEVEL = 12
"""Batches are small: a high level costs well under a millisecond and makes every copy cheaper."""


class _Kept(threading.local):
    """Decompressors of one thread, by window limit: creating one takes four times as long as
    decompressing a small frame."""

    def __init__(self) -> None:
        self.decompressor = lru_cache(maxsize=4)(
            lambda window_cap: zstandard.ZstdDecompressor(max_window_size=window_cap)
        )


_KEPT = _Kept()


class CorruptFrameError(ValueError):
    """Not one whole zstd frame that declares its size."""


class OversizeFrameError(ValueError):
    """The frame declares more content, or a larger window, than the cap."""


def compress(data: bytes) -> bytes:
    """Return `data` as one zstd frame that declares its content size."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True).compress(data)


def declared_size(frame: bytes) -> int:
    """Return the content size that a frame declares; 0 if it declares none."""
    try:
        size = int(zstandard.get_frame_parameters(frame).content_size)
    except zstandard.ZstdError:
        return 0
    return 0 if size in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR) else size


def decompress(frame: bytes, *, max_bytes: int) -> bytes:
    """Return the content of one zstd frame of 1 to `max_bytes` bytes.

    A frame must declare its content size, so that a decompression bomb is refused before any
    allocation; the decoder then fails on any frame with more or less content than declared.

    Raises:
        OversizeFrameError: the declared size or window is over the cap.
        CorruptFrameError: anything else that is not exactly one frame.
    """
    try:
        parameters = zstandard.get_frame_parameters(frame)
    except zstandard.ZstdError as error:
        raise CorruptFrameError(str(error)) from None
    if parameters.content_size in (
        zstandard.CONTENTSIZE_UNKNOWN,
        zstandard.CONTENTSIZE_ERROR,
    ):
        raise CorruptFrameError("frame does not declare its content size")
    if parameters.content_size == 0:
        # The library returns at once on such a header, whatever follows it.
        raise CorruptFrameError("frame is empty")
    if parameters.content_size > max_bytes:
        raise OversizeFrameError(f"{parameters.content_size} bytes declared")
    window_cap = max(max_bytes, _MIN_WINDOW_CAP)
    if parameters.window_size > window_cap:
        raise OversizeFrameError(f"window of {parameters.window_size} bytes declared")
    try:
        content: bytes = _KEPT.decompressor(window_cap).decompress(
            frame, max_output_size=max_bytes, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise CorruptFrameError(str(error)) from None
    if len(content) != parameters.content_size:
        raise CorruptFrameError("content is not of the declared size")
    return content


_FINISH_CODES = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
}
_FINISH = coded(_FINISH_CODES, unknown="no known finish reason")


# Written by hand, since completions are the most numerous: the generic conversion is 20 % slower.
def _write_completion(completion: Completion) -> pb.Completion:
    logprobs = completion.logprobs
    return pb.Completion(
        text=completion.text,
        num_tokens=completion.num_tokens,
        finish_reason=_FINISH_CODES[completion.finish_reason],
        logprobs=b"" if logprobs is None else pack_halves(logprobs),
    )


def _read_completion(message: pb.Completion) -> Completion:
    try:
        logprobs = unpack_halves(message.logprobs) if message.logprobs else None
    except ValueError as error:
        raise RemoteError(f"log-probabilities of {error}") from None
    return Completion(
        text=message.text,
        num_tokens=message.num_tokens,
        finish_reason=_FINISH.read(message.finish_reason),
        logprobs=logprobs,
    )


ROLLOUT_WIRES: Final = MappingProxyType(
    {
        FinishReason: _FINISH,
        Completion: Wire(write=_write_completion, read=_read_completion),
    }
)
"""Conversions of a batch's values that have another form on the wire."""
_WIRES = Wires(ROLLOUT_WIRES)
_BATCH, _GROUP = _WIRES.of(RolloutBatch), _WIRES.of(RolloutGroup)


class PayloadError(RemoteError):
    """A payload that does not decode; `reason` is its row in the verdict table."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


def encode_batch(batch: RolloutBatch) -> bytes:
    """Return the compressed payload of `batch`, ready to be sealed."""
    return compress(batch_to_bytes(batch))


def batch_to_bytes(batch: RolloutBatch) -> bytes:
    """Return the encoding of `batch` before compression, whose size `decode_batch` bounds."""
    message = pb.RolloutBatch(schema_major=SCHEMA_MAJOR, **_BATCH.write(batch))
    for group, encoded in zip(batch.groups, message.groups, strict=True):
        object.__setattr__(group, "known_bytes", encoded.ByteSize())
    return message.SerializeToString()


@dataclass(frozen=True, slots=True, eq=False)
class ParsedBatch:
    """A parsed payload before conversion to dataclasses; it knows how much there is to convert."""

    message: pb.RolloutBatch
    num_completions: int

    @property
    def num_groups(self) -> int:
        """The number of groups in it."""
        return len(self.message.groups)

    def num_logprobs(self) -> int:
        """Count log-probabilities; O(completions)."""
        groups = self.message.groups
        return sum(len(one.logprobs) for group in groups for one in group.completions) // 2


def parse_batch(payload: bytes, *, max_bytes: int) -> ParsedBatch:
    """Parse a compressed payload of at most `max_bytes` once decompressed: the first half of
    `decode_batch`. It runs in C and takes about a microsecond per kilobyte.

    Raises:
        PayloadError: with the reason.
    """
    try:
        message = pb.RolloutBatch.FromString(decompress(payload, max_bytes=max_bytes))
    except OversizeFrameError:
        raise PayloadError(Reason.OVERSIZE_PAYLOAD) from None
    except CorruptFrameError:
        raise PayloadError(Reason.MALFORMED_PAYLOAD) from None
    except DecodeError:
        raise PayloadError(Reason.MALFORMED_PAYLOAD) from None
    if message.schema_major > SCHEMA_MAJOR:
        raise PayloadError(Reason.OTHER_VERSION)
    if message.schema_major != SCHEMA_MAJOR or len(message.swarm_digest) != DIGEST_BYTES:
        raise PayloadError(Reason.BAD_FIELD)
    if len(message.groups) > MAX_GROUPS_PER_BATCH:
        raise PayloadError(Reason.BAD_COUNT)
    counts = [len(group.completions) for group in message.groups]
    num_completions = sum(counts)
    if num_completions > MAX_COMPLETIONS_PER_BATCH or max(counts, default=0) > MAX_COMPLETIONS:
        raise PayloadError(Reason.BAD_COUNT)
    return ParsedBatch(message, num_completions)


def decode_batch(
    payload: bytes, *, max_bytes: int, parsed: ParsedBatch | None = None
) -> RolloutBatch:
    """Decode a compressed payload of at most `max_bytes` once decompressed. `parsed` is the result
    of `parse_batch`, if it is known.

    Checks structure only: lengths of digests, counts against the hard limits, known enum values.
    `shoal_wire.rules` checks what a manifest allows.

    Raises:
        PayloadError: with the reason.
    """
    message = (parsed or parse_batch(payload, max_bytes=max_bytes)).message
    try:
        batch: RolloutBatch = _BATCH.read(message)
    except RemoteError:
        raise PayloadError(Reason.BAD_FIELD) from None
    for group, encoded in zip(batch.groups, message.groups, strict=True):
        object.__setattr__(group, "known_bytes", encoded.ByteSize())
    return batch


def group_to_bytes(group: RolloutGroup) -> bytes:
    """Return a group's uncompressed encoding."""
    return pb.RolloutGroup(**_GROUP.write(group)).SerializeToString()


def group_size(group: RolloutGroup) -> int:
    """Return the length of a group's uncompressed encoding: its size in the buffer.

    The codec caches it for groups of a batch; only other groups are encoded here.
    """
    try:
        return group.known_bytes
    except AttributeError:
        size = pb.RolloutGroup(**_GROUP.write(group)).ByteSize()
        object.__setattr__(group, "known_bytes", size)
        return size
