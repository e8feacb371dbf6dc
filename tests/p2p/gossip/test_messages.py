"""Signing and checking of messages, encoding and decoding of RPCs, and their limits."""

from __future__ import annotations

from typing import Any

import pytest
from libp2p.pubsub.pb import rpc_pb2

from shoal_p2p.gossip.codec import (
    check_num_parts,
    decode,
    encode,
    encode_frame,
    pack,
    reject_reason,
    to_message,
)
from shoal_p2p.gossip.control import SPAM_ENTRIES
from shoal_p2p.gossip.rpc import Rpc
from shoal_p2p.gossip.settings import GossipLimits
from shoal_p2p.net.identity import Identity
from shoal_p2p.net.streams import MalformedFrameError
from shoal_wire.verdict import Reason
from tests.support.network import signed_by
from tests.support.nodes import fresh_identity

MOST = 16_384
PARTS = {"publish": b"\x12\x00", "subscriptions": b"\x0a\x00"}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
def test_the_smallest_rpc_of_too_many_parts_is_refused(part: bytes) -> None:
    """Each part has the minimum length, so a check of the length first lets none through."""
    for count, refused in ((MOST, False), (MOST + 1, True)):
        raw = part * count
        rpc = rpc_pb2.RPC.FromString(raw)
        if refused:
            with pytest.raises(MalformedFrameError, match="16384 parts"):
                check_num_parts(rpc, len(raw))
        else:
            check_num_parts(rpc, len(raw))


@pytest.mark.parametrize("field", ["ihave", "iwant", "graft", "prune", "idontwant"])
def test_split_control_messages_count_together(field: str) -> None:
    number = rpc_pb2.ControlMessage.DESCRIPTOR.fields_by_name[field].number
    part = bytes([number << 3 | 2, 0])
    pieces = [part * (MOST // 2), part * (MOST // 2 + 1)]
    raw = b"".join(
        rpc_pb2.RPC(control=rpc_pb2.ControlMessage.FromString(p)).SerializeToString()
        for p in pieces
    )
    with pytest.raises(MalformedFrameError):
        check_num_parts(rpc_pb2.RPC.FromString(raw), len(raw))


def signed(identity: Identity, data: bytes = b"data") -> rpc_pb2.Message:
    return signed_by(identity, "/t", data)


WEAK_ID = b"\x00\x24\x08\x01\x12\x20" + bytes(32)
"""A peer id whose key has small order, so that anyone can sign for it."""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"signature": None}, Reason.BAD_SIGNATURE),
        ({"signature": bytes(10)}, Reason.BAD_SIGNATURE),
        ({"data": b"other"}, Reason.BAD_SIGNATURE),
        ({"key": signed(fresh_identity()).key}, Reason.SIGNER_NOT_SENDER),
        ({"from_id": None}, Reason.BAD_SIGNATURE),
        ({"from_id": WEAK_ID, "key": None}, Reason.WEAK_KEY),
        ({"topicIDs": ["/other"]}, Reason.WRONG_SWARM),
        ({"seqno": bytes(9)}, Reason.MALFORMED_ENVELOPE),
    ],
)
def test_each_violation_of_strict_signing_has_its_reason(
    changes: dict[str, Any], reason: Reason
) -> None:
    message = signed(fresh_identity())
    assert reject_reason(message, 100) is None
    assert reject_reason(message, 3) is Reason.OVERSIZE_MESSAGE
    for field in changes:
        if changes[field] is None:
            message.ClearField(field)  # type: ignore[arg-type]
    message.MergeFrom(rpc_pb2.Message(**changes))
    assert reject_reason(message, 100) is reason


def test_unsigned_fields_are_not_forwarded() -> None:
    """A peer that verifies all bytes of a message would blame its forwarder for them."""
    honest = signed(fresh_identity())
    raw = honest.SerializeToString() + b"\xfa\x7c\x90\x4e" + bytes(10_000)
    padded = rpc_pb2.Message.FromString(raw)
    assert padded.ByteSize() > 10_000
    assert pack(to_message(padded)) == encode_frame(rpc_pb2.RPC(publish=[honest]))


@pytest.mark.parametrize("from_id", [b"", b"\x12\x20" + bytes(32), bytes(38), bytes(1_000_000)])
def test_an_author_id_without_a_key_is_rejected_cheaply(from_id: bytes) -> None:
    message = rpc_pb2.Message(from_id=from_id, key=b"junk", data=b"x", seqno=bytes(8))
    message.topicIDs.append("/t")
    assert to_message(message).author == ""
    assert reject_reason(message, 100) is Reason.BAD_SIGNATURE


# RPCs

LIMITS = GossipLimits()
EVERYTHING = Rpc(
    subscriptions=[("/t", True), ("/u", False)],
    ihave=[("/t", [b"1", b"2"])],
    iwant=[[b"3"], [b"4", b"5"]],
    graft=["/t"],
    prune=[("/u", 60)],
    idontwant=[[b"6"]],
)


def body_of(frame: bytes) -> bytes:
    start = next(i for i in range(len(frame)) if frame[i] < 0x80) + 1
    return frame[start:]


def test_rpcs_survive_encoding_and_decoding() -> None:
    frame = encode(EVERYTHING)
    (decoded,) = decode(body_of(frame), LIMITS)
    assert decoded == EVERYTHING._replace(messages=[], num_bytes=len(body_of(frame)))
    (nothing,) = decode(body_of(encode(Rpc())), LIMITS)
    assert not any(nothing)


def test_a_long_rpc_is_decoded_in_parts_with_control_last() -> None:
    author = fresh_identity()
    raw = (
        body_of(encode(EVERYTHING))
        + rpc_pb2.RPC(publish=[signed(author)] * 1100).SerializeToString()
    )
    parts = list(decode(raw, LIMITS))
    assert [len(part.messages) for part in parts] == [64] * 16
    assert [part.num_bytes for part in parts] == [len(raw)] + [0] * 15
    assert [part.num_skipped for part in parts] == [1100 - 1024] + [0] * 15
    assert [bool(part.num_entries) for part in parts] == [False] * 15 + [True]
    assert [bool(part.subscriptions) for part in parts] == [True] + [False] * 15
    first = parts[0].messages[0]
    assert (first.author, first.topics, first.data) == (author.peer_id, ("/t",), b"data")


def test_decoded_entries_are_bounded() -> None:
    many = Rpc(subscriptions=[("/t", True)] * 5000, graft=["/t"] * 10_000)
    (decoded,) = decode(body_of(encode(many)), LIMITS)
    assert len(decoded.subscriptions) == LIMITS.max_subscriptions_per_peer
    assert SPAM_ENTRIES < len(decoded.graft) <= SPAM_ENTRIES + 1
