"""Pubsub messages and RPCs on the wire: signed, checked, converted to `rpc.Rpc` and to frames.

Messages follow StrictSign, with ed25519 keys only. py-libp2p verifies with any key that a message
contains, and raises on malformed keys. Here the key is taken from the peer id, so nothing needs to
be parsed (pubsub spec, *Message Signing*).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shoal_base.bounded import MANY
from shoal_p2p.gossip.control import SPAM_ENTRIES
from shoal_p2p.gossip.delivery_lag import sent_s_from_seqno
from shoal_p2p.gossip.rpc import Message, Rpc
from shoal_p2p.gossip.settings import GossipLimits
from shoal_p2p.net.address import peer_id_of_bytes
from shoal_p2p.net.identity import Identity, protobuf_public_key, public_key_from_id_bytes
from shoal_p2p.net.pubsub_pb import rpc_pb2
from shoal_p2p.net.streams import FRAMES_PER_TURN, MalformedFrameError, add_length_prefix
from shoal_wire.signatures import is_weak_key, signature_holds
from shoal_wire.types import PeerId
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


MAX_RPC_BYTES = 1024 * 1024
"""Largest pubsub RPC that other libp2p implementations accept, in bytes."""
_MAX_ENTRIES = SPAM_ENTRIES + 1
"""Control entries of each kind that are decoded. This number already counts as spam."""


def encode_frame(rpc: rpc_pb2.RPC) -> bytes:
    """Return `rpc` as a frame: a varint length and the message."""
    return add_length_prefix(rpc.SerializeToString())


def encode(rpc: Rpc) -> bytes:
    """Return a frame with subscriptions and control messages."""
    encoded = rpc_pb2.RPC(
        subscriptions=[
            rpc_pb2.RPC.SubOpts(subscribe=joins, topicid=topic)
            for topic, joins in rpc.subscriptions
        ]
    )
    if rpc.num_entries:
        encoded.control.CopyFrom(
            rpc_pb2.ControlMessage(
                ihave=[rpc_pb2.ControlIHave(topicID=t, messageIDs=ids) for t, ids in rpc.ihave],
                iwant=[rpc_pb2.ControlIWant(messageIDs=ids) for ids in rpc.iwant],
                graft=[rpc_pb2.ControlGraft(topicID=topic) for topic in rpc.graft],
                prune=[rpc_pb2.ControlPrune(topicID=t, backoff=s) for t, s in rpc.prune],
                idontwant=[rpc_pb2.ControlIDontWant(messageIDs=ids) for ids in rpc.idontwant],
            )
        )
    return encode_frame(encoded)


def pack(message: Message) -> bytes:
    """Return the frame that sends a message."""
    # Any forwarder can add unknown fields, and peers that verify every byte would blame the next
    # forwarder.
    message.signed.DiscardUnknownFields()
    return encode_frame(rpc_pb2.RPC(publish=[message.signed]))


def to_message(signed: rpc_pb2.Message) -> Message:
    """Convert a protobuf message. Raises UnicodeDecodeError if a topic is not valid UTF-8."""
    return Message(
        id=message_id(signed),
        author=_author(signed.from_id),
        topics=tuple(signed.topicIDs),
        data=signed.data,
        signed=signed,
        sent_s=sent_s_from_seqno(int.from_bytes(signed.seqno[:8], "big")),
    )


def _author(from_id: bytes) -> PeerId:
    # Encode only ids that contain a key: base58 of a megabyte takes minutes.
    return peer_id_of_bytes(from_id) if public_key_from_id_bytes(from_id) else PeerId("")


def decode(raw: bytes, limits: GossipLimits) -> Iterator[Rpc]:
    """Yield a peer's RPC, a long one in parts so that other tasks can run between them.

    Raises:
        DecodeError, UnicodeDecodeError, MalformedFrameError: `raw` violates the pubsub protocol.
    """
    rpc = rpc_pb2.RPC.FromString(raw)
    check_num_parts(rpc, len(raw))
    taken = rpc.publish[: limits.max_messages_per_rpc]
    part = Rpc(
        subscriptions=[
            (change.topicid, change.subscribe)
            for change in rpc.subscriptions[: limits.max_subscriptions_per_peer]
        ],
        num_bytes=len(raw),
        num_skipped=len(rpc.publish) - len(taken),
    )
    while len(taken) > FRAMES_PER_TURN:
        yield part._replace(messages=[to_message(each) for each in taken[:FRAMES_PER_TURN]])
        part, taken = Rpc(), taken[FRAMES_PER_TURN:]
    part = part._replace(messages=[to_message(each) for each in taken])
    yield part._replace(**_control(rpc.control)) if rpc.HasField("control") else part


def _control(control: rpc_pb2.ControlMessage) -> dict[str, Any]:
    most = _MAX_ENTRIES
    return {
        "ihave": [(entry.topicID, entry.messageIDs) for entry in control.ihave[:most]],
        "iwant": [entry.messageIDs for entry in control.iwant[:most]],
        "graft": [entry.topicID for entry in control.graft[:most]],
        "prune": [(entry.topicID, entry.backoff) for entry in control.prune[:most]],
        "idontwant": [entry.messageIDs for entry in control.idontwant[:most]],
    }
