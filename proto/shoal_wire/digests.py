"""Digests of the protocol, each a SHA-256 over length-prefixed fields, so that moving a byte from
one field to the next changes the digest."""

from __future__ import annotations

import hashlib

from shoal_wire.limits import SHORT_DIGEST_BYTES
from shoal_wire.types import BatchId, Digest, FinishReason, GroupId, RolloutGroup


def _framed(field: bytes) -> bytes:
    return len(field).to_bytes(8, "big") + field


_DOMAIN = _framed(b"shoal-group-v1")
_REASONS = {reason: _framed(reason.value.encode()) for reason in FinishReason}


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
        found = _content_id(group)
        group.note("known_id", found)
        return found


def _content_id(group: RolloutGroup) -> GroupId:
    task = group.task
    framed = [
        _DOMAIN,
        _framed(task.family.encode()),
        _framed(task.config_digest),
        _framed(task.seed.to_bytes(8, "big")),
        _framed(task.index.to_bytes(8, "big")),
        _framed(task.question_digest),
    ]
    for completion in group.completions:
        text = completion.text.encode()
        framed += (len(text).to_bytes(8, "big"), text, _REASONS[completion.finish_reason])
    return GroupId(hashlib.sha256(b"".join(framed)).digest()[:SHORT_DIGEST_BYTES])
