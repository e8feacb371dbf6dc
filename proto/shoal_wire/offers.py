"""Offers: a member's signed statement that it adds a family to its swarm and shares its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from shoal_wire.digests import sha256
from shoal_wire.envelope import EnvelopeError, open_envelope, seal
from shoal_wire.errors import LocalError, ManifestError, RemoteError
from shoal_wire.limits import (
    DIGEST_BYTES,
    MAX_OFFER_BYTES,
    OFFER_ID_BYTES,
    OFFER_PAYLOAD_TYPE,
    SCHEMA_MAJOR,
)
from shoal_wire.manifest import TaskFamily, family_from_pb, family_to_pb
from shoal_wire.types import Digest, PeerId
from shoal_wire.v1 import tasks_pb2 as pb

OFFER_LIFE_MS: Final = 3_600_000
"""Milliseconds for which an offer holds. Its signer renews it before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOffer:
    """An opened offer."""

    swarm_digest: Digest
    """32 bytes."""
    created_ms: int
    """The signer's clock, milliseconds since the epoch."""
    family: TaskFamily
    signer: PeerId
    envelope: bytes

    @property
    def offer_id(self) -> bytes:
        """The id by which queries name it."""
        return sha256(self.envelope)[:OFFER_ID_BYTES]


def seal_offer(
    family: TaskFamily,
    *,
    swarm_digest: Digest,
    created_ms: int,
    public_key: bytes,
    sign: Callable[[bytes], bytes],
) -> bytes:
    """Return the envelope of an offer. Raises LocalError: it is too long."""
    payload = pb.TaskOffer(
        schema_major=SCHEMA_MAJOR,
        swarm_digest=swarm_digest,
        created_ms=created_ms,
        family=family_to_pb(family),
    ).SerializeToString()
    envelope = seal(payload, public_key=public_key, sign=sign, payload_type=OFFER_PAYLOAD_TYPE)
    if len(envelope) > MAX_OFFER_BYTES:
        raise LocalError(f"an offer of {len(envelope):,} bytes, at most {MAX_OFFER_BYTES:,}")
    return envelope


def open_offer(envelope: bytes) -> TaskOffer:
    """Verify an envelope as an offer. Raises RemoteError: it is none that a peer may pass on."""
    try:
        opened = open_envelope(envelope, payload_types=(OFFER_PAYLOAD_TYPE,))
        message = pb.TaskOffer.FromString(opened.payload)
        family = family_from_pb(message.family)
    except EnvelopeError as error:
        raise RemoteError(f"offer: {error.reason.value}") from None
    except DecodeError:
        raise RemoteError("offer does not parse") from None
    except ManifestError as error:
        raise RemoteError(f"offer: {error}") from None
    if message.schema_major != SCHEMA_MAJOR or len(message.swarm_digest) != DIGEST_BYTES:
        raise RemoteError("offer of another version, or without a swarm")
    return TaskOffer(
        swarm_digest=Digest(message.swarm_digest),
        created_ms=message.created_ms,
        family=family,
        signer=opened.signer,
        envelope=envelope,
    )
