"""Builds, signs and checks pubsub messages under StrictSign, with ed25519 keys only.

py-libp2p verifies with any key that a message contains, and raises on malformed keys. Here the key
is taken from the peer id, so nothing needs to be parsed (pubsub spec, *Message Signing*).
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
"""Minimum length of a part: its tag and its length."""


def message_id(message: rpc_pb2.Message) -> bytes:
    """Return the default message id of pubsub: author and sequence number."""
    return bytes(message.from_id + message.seqno)


def sign_message(
    identity: Identity, id_bytes: bytes, topic: str, data: bytes, seqno: int
) -> rpc_pb2.Message:
    """Return a message signed by this node."""
    message = rpc_pb2.Message(
        from_id=id_bytes, data=data, seqno=seqno.to_bytes(_SEQNO_BYTES, "big"), topicIDs=[topic]
    )
    message.signature = identity.sign(SIGNING_PREFIX + message.SerializeToString())
    message.key = protobuf_public_key(identity.public_key_bytes)
    return message


def reject_reason(message: rpc_pb2.Message, max_data_bytes: int) -> Reason | None:
    """Return why a message breaks StrictSign or a limit; None if it is authentic."""
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
    except UnicodeDecodeError:  # protobuf does not check proto2 strings when parsing
        return Reason.MALFORMED_ENVELOPE
    signed = SIGNING_PREFIX + unsigned.SerializeToString()
    holds = signature_holds(message.signature, signed, public_key=public_key)
    return None if holds else Reason.BAD_SIGNATURE


def check_num_parts(rpc: rpc_pb2.RPC, num_bytes: int) -> None:
    """Raise MalformedFrameError for an RPC with tens of thousands of empty parts: two bytes each on
    the wire, fifty in memory."""
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
