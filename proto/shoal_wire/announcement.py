"""Announcements: a large batch is gossiped by digest, and peers that want it pull it."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from shoal_wire.codec import PayloadError
from shoal_wire.fields import Wires
from shoal_wire.limits import (
    DIGEST_BYTES,
    MAX_GROUPS_PER_BATCH,
    MAX_SEQUENCE,
    SCHEMA_MAJOR,
)
from shoal_wire.manifest import Manifest
from shoal_wire.rules import check_time
from shoal_wire.types import BatchId, Digest
from shoal_wire.v1 import fetch_pb2 as pb
from shoal_wire.verdict import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A publisher's statement about a batch that is too large to gossip whole."""

    swarm_digest: Digest
    """32 bytes."""
    sequence: int
    previous_sequence: int
    created_ms: int
    num_groups: int
    batch_id: BatchId
    num_bytes: int
    """Length of the batch's envelope."""
    expires_ms: int
    """Unix time, in milliseconds, after which peers stop trying to pull it."""


_ANNOUNCEMENT = Wires().of(Announcement)


def encode_announcement(announcement: Announcement) -> bytes:
    """Return the payload of an announcement, ready to be sealed."""
    fields = _ANNOUNCEMENT.write(announcement)
    return pb.BatchAnnouncement(schema_major=SCHEMA_MAJOR, **fields).SerializeToString()


def decode_announcement(payload: bytes) -> Announcement:
    """Decode a payload: structure only, as `decode_batch` does.

    Raises:
        PayloadError: with the reason.
    """
    try:
        message = pb.BatchAnnouncement.FromString(payload)
    except DecodeError:
        raise PayloadError(Reason.MALFORMED_PAYLOAD) from None
    if message.schema_major > SCHEMA_MAJOR:
        raise PayloadError(Reason.OTHER_VERSION)
    digests = (message.swarm_digest, message.batch_id)
    if message.schema_major != SCHEMA_MAJOR or any(len(d) != DIGEST_BYTES for d in digests):
        raise PayloadError(Reason.BAD_FIELD)
    announcement: Announcement = _ANNOUNCEMENT.read(message)
    return announcement


def check_announcement(
    announcement: Announcement, manifest: Manifest, *, now_ms: int
) -> Reason | None:
    """Return why an announcement is not acceptable, or None; duplicates and quotas are not here."""
    if announcement.swarm_digest != manifest.digest:
        return Reason.WRONG_SWARM
    late = check_time(announcement.created_ms, manifest.rules, now_ms)
    if late is not None:
        return late
    if not (
        announcement.previous_sequence < announcement.sequence < MAX_SEQUENCE
        and announcement.num_bytes > 0
        and 0 < announcement.num_groups <= MAX_GROUPS_PER_BATCH
    ):
        return Reason.BAD_FIELD
    if announcement.num_bytes > manifest.rules.max_envelope_bytes:
        return Reason.OVERSIZE_PAYLOAD
    return Reason.TOO_OLD if announcement.expires_ms < now_ms else None
