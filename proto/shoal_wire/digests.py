"""Digests of the protocol, each a SHA-256 over length-prefixed fields, so that moving a byte from
one field to the next changes the digest."""

from __future__ import annotations

import hashlib

from shoal_wire.limits import SHORT_DIGEST_BYTES
from shoal_wire.types import BatchId, Digest, FinishReason, GroupId, RolloutGroup


def _framed(*fields: bytes) -> bytes:
    return b"".join([part for field in fields for part in (len(field).to_bytes(8, "big"), field)])


_DOMAIN = b"shoal-group-v1"
_REASONS = {reason: reason.value.encode() for reason in FinishReason}


def sha256(data: bytes) -> Digest:
    """Return the 32-byte SHA-256 of `data`."""
    return Digest(hashlib.sha256(data).digest())


def question_digest(question: str) -> Digest:
    """Return the 16-byte digest of a question's text, as in batches."""
    return Digest(sha256(question.encode())[:SHORT_DIGEST_BYTES])


def batch_id(envelope: bytes) -> BatchId:
    """Return the 32-byte id of a sealed envelope: the SHA-256 of its exact bytes."""
    return BatchId(hashlib.sha256(envelope).digest())


def group_id(group: RolloutGroup) -> GroupId:
    """Return the 16-byte content id of a group.

    It covers only the task's coordinates and every completion's text and finish reason: a replay in
    another batch, under another signer or with other claims is the same group. It is cached.
    """
    try:
        return group.known_id
    except AttributeError:
        pass
    task = group.task
    fields = [
        _DOMAIN,
        task.family.encode(),
        task.config_digest,
        task.seed.to_bytes(8, "big"),
        task.index.to_bytes(8, "big"),
        task.question_digest,
    ]
    for completion in group.completions:
        fields += (completion.text.encode(), _REASONS[completion.finish_reason])
    found = GroupId(hashlib.sha256(_framed(*fields)).digest()[:SHORT_DIGEST_BYTES])
    object.__setattr__(group, "known_id", found)
    return found
