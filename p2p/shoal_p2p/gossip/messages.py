"""Pubsub messages under StrictSign, ed25519 only: built, signed and checked here.

py-libp2p verifies with whatever key a message brings, and raises on keys that are no keys; a
peer id that contains its key leaves nothing to parse (pubsub spec, *Message Signing*).
"""

from __future__ import annotations

from shoal_base.bounded import MANY
from shoal_p2p.net.identity import Identity, protobuf_public_key, public_key_from_id_bytes
from shoal_p2p.net.pubsub_pb import rpc_pb2
from shoal_p2p.net.streams import MalformedFrameError
from shoal_wire.keys import is_weak_key
from shoal_wire.signatures import signature_holds
from shoal_wire.verdict import Reason

SIGNING_PREFIX = b"libp2p-pubsub:"
_SEQNO_BYTES = 8
_MAX_PARTS = 4 * MANY
_PART_BYTES = 2
"""The least that a part takes: its tag and its length."""


def message_id(message: rpc_pb2.Message) -> bytes:
    """Return the default message id of pubsub: author and sequence number."""
    return bytes(message.from_id + message.seqno)


def sign_message(
    identity: Identity, id_bytes: bytes, topic: str, data: bytes, seqno: int
) -> rpc_pb2.Message:
    """Return a signed message of this node."""
    message = rpc_pb2.Message(
        from_id=id_bytes, data=data, seqno=seqno.to_bytes(_SEQNO_BYTES, "big"), topicIDs=[topic]
    )
    message.signature = identity.sign(SIGNING_PREFIX + message.SerializeToString())
    message.key = protobuf_public_key(identity.public_key_bytes)
    return message


def fault_of(message: rpc_pb2.Message, max_data_bytes: int) -> Reason | None:
    """Return why a message breaks StrictSign or our caps; None if it holds."""
    if len(message.data) > max_data_bytes:
        return Reason.OVERSIZE_MESSAGE
    if len(message.topicIDs) != 1:
        return Reason.WRONG_SWARM
    public_key = public_key_from_id_bytes(message.from_id)
    if public_key is None:
        return Reason.BAD_SIGNATURE
    if is_weak_key(public_key):
        return Reason.WEAK_KEY
    if len(message.seqno) != _SEQNO_BYTES:
        return Reason.MALFORMED_ENVELOPE
    if message.key and message.key != protobuf_public_key(public_key):
        return Reason.SIGNER_NOT_SENDER
    try:
        unsigned = rpc_pb2.Message(
            from_id=message.from_id,
            data=message.data,
            seqno=message.seqno,
            topicIDs=message.topicIDs,
        )
    except UnicodeDecodeError:  # parsing does not check the text of proto2
        return Reason.MALFORMED_ENVELOPE
    signed = SIGNING_PREFIX + unsigned.SerializeToString()
    holds = signature_holds(message.signature, signed, public_key=public_key)
    return None if holds else Reason.BAD_SIGNATURE


def refuse_hollow(rpc: rpc_pb2.RPC, num_bytes: int) -> None:
    """Raise MalformedFrameError for an RPC of ten thousands of empty parts: two bytes each on the
    wire, fifty in memory.
    """
    if num_bytes < _PART_BYTES * _MAX_PARTS:
        return
    control = rpc.control
    parts = (
        rpc.publish,
        rpc.subscriptions,
        control.ihave,
        control.iwant,
        control.graft,
        control.prune,
        control.idontwant,
    )
    if any(len(part) > _MAX_PARTS for part in parts):
        raise MalformedFrameError(f"an RPC of more than {_MAX_PARTS} parts")
