"""Converts between the pubsub protobuf and `rpc.Rpc`, and encodes frames."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shoal_p2p.gossip.control import SPAM_ENTRIES
from shoal_p2p.gossip.delivery_lag import sent_s_from_seqno
from shoal_p2p.gossip.messages import check_num_parts, message_id
from shoal_p2p.gossip.rpc import Message, Rpc
from shoal_p2p.gossip.settings import GossipLimits
from shoal_p2p.net.address import peer_id_of_bytes
from shoal_p2p.net.identity import public_key_from_id_bytes
from shoal_p2p.net.pubsub_pb import rpc_pb2
from shoal_p2p.net.streams import FRAMES_PER_TURN, add_length_prefix
from shoal_wire.types import PeerId

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
