"""Digests of the contract: each a SHA-256 over length-prefixed fields, so no two inputs collide
by moving a byte from one field to the next."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from shoal_wire.limits import SHORT_DIGEST_BYTES
from shoal_wire.types import BatchId, Digest, GroupId, RolloutGroup

_GROUP_DOMAIN = b"shoal-group-v1"


def sha256(data: bytes) -> Digest:
    """Return the 32-byte SHA-256 of `data`."""
    return Digest(hashlib.sha256(data).digest())


def question_digest(question: str) -> Digest:
    """Return the 16-byte digest by which a batch names a question's text."""
    return Digest(sha256(question.encode())[:SHORT_DIGEST_BYTES])


def batch_id(envelope: bytes) -> BatchId:
    """Return the 32-byte id of a sealed envelope: the SHA-256 of its exact bytes."""
    return BatchId(hashlib.sha256(envelope).digest())


def group_id(group: RolloutGroup) -> GroupId:
    """Return the 16-byte content id of a group.

    It covers the task's coordinates and every completion's text and finish reason, and nothing
    else: a replay in another batch, under another signer or with other claims is the same group.
    Hashed once, however often it is asked for.
    """
    try:
        return group.known_id
    except AttributeError:
        found = _content_id(group)
        group.note("known_id", found)
        return found


def _content_id(group: RolloutGroup) -> GroupId:
    task = group.task
    fields: list[bytes] = [
        _GROUP_DOMAIN,
        task.family.encode(),
        task.config_digest,
        task.seed.to_bytes(8, "big"),
        task.index.to_bytes(8, "big"),
        task.question_digest,
    ]
    for completion in group.completions:
        fields.append(completion.text.encode())
        fields.append(completion.finish_reason.value.encode())
    return GroupId(hashlib.sha256(_joined(fields)).digest()[:SHORT_DIGEST_BYTES])


def _joined(fields: Iterable[bytes]) -> bytes:
    return b"".join(len(field).to_bytes(8, "big") + field for field in fields)
