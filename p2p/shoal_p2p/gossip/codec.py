"""The protobuf of pubsub, to and from `rpc.Rpc`; frames as they travel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shoal_p2p.gossip.control import SPAM_ENTRIES
from shoal_p2p.gossip.delivery_lag import sent_s_of
from shoal_p2p.gossip.messages import message_id, refuse_hollow
from shoal_p2p.gossip.rpc import Message, Rpc
from shoal_p2p.gossip.settings import GossipLimits
from shoal_p2p.net.address import peer_id_of_bytes
from shoal_p2p.net.identity import public_key_from_id_bytes
from shoal_p2p.net.pubsub_pb import rpc_pb2
from shoal_p2p.net.streams import FRAMES_A_TURN, framed
from shoal_wire.types import PeerId

MAX_RPC_BYTES = 1024 * 1024
"""Largest pubsub RPC that other libp2p implementations accept, in bytes."""
_MAX_ENTRIES = SPAM_ENTRIES + 1
"""Control entries of a kind that are decoded: so many are spam already."""


def encode_frame(rpc: rpc_pb2.RPC) -> bytes:
    """Return `rpc` as it travels: a varint length and the message."""
    return framed(rpc.SerializeToString())


def encode(rpc: Rpc) -> bytes:
    """Return the frame of subscriptions and control."""
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
    # Anybody can add these, and peers that verify every byte would blame who passed them on.
    message.signed.DiscardUnknownFields()
    return encode_frame(rpc_pb2.RPC(publish=[message.signed]))


def message_of(signed: rpc_pb2.Message) -> Message:
    """Return a message as the mesh takes it. Raises UnicodeDecodeError: a topic is no text."""
    return Message(
        id=message_id(signed),
        author=_author(signed.from_id),
        topics=tuple(signed.topicIDs),
        data=signed.data,
        signed=signed,
        sent_s=sent_s_of(int.from_bytes(signed.seqno[:8], "big")),
    )


def _author(from_id: bytes) -> PeerId:
    # Only what holds a key is turned into text: base58 of a megabyte takes minutes.
    return peer_id_of_bytes(from_id) if public_key_from_id_bytes(from_id) else PeerId("")


def decode(raw: bytes, limits: GossipLimits) -> Iterator[Rpc]:
    """Yield a peer's RPC: a long one in parts, between which others may have a turn.

    Raises:
        DecodeError, UnicodeDecodeError, MalformedFrameError: it breaks the rules of pubsub.
    """
    rpc = rpc_pb2.RPC.FromString(raw)
    refuse_hollow(rpc, len(raw))
    taken = rpc.publish[: limits.max_messages_per_rpc]
    part = Rpc(
        subscriptions=[
            (change.topicid, change.subscribe)
            for change in rpc.subscriptions[: limits.max_subscriptions_per_peer]
        ],
        num_bytes=len(raw),
        num_left_out=len(rpc.publish) - len(taken),
    )
    while len(taken) > FRAMES_A_TURN:
        yield part._replace(messages=[message_of(each) for each in taken[:FRAMES_A_TURN]])
        part, taken = Rpc(), taken[FRAMES_A_TURN:]
    part = part._replace(messages=[message_of(each) for each in taken])
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
