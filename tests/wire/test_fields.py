"""Values become protobuf by their fields; one that cannot is refused when a codec is built."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import pytest

from shoal_wire.errors import RemoteError
from shoal_wire.fields import OutOfBoundsError, Wire, Wires, at_most, coded, holding, sized, within
from shoal_wire.judge_messages import Mode
from shoal_wire.oneof import OneOf
from shoal_wire.rollout_messages import Chunk, Envelopes
from shoal_wire.v1 import fetch_pb2 as pb
from shoal_wire.v1 import judge_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """As the message of that name, but for what a test says."""

    reason: Annotated[int, within(1, 3, "reason")]
    retry_after_ms: Annotated[int, at_most(50)] = 0


def test_bounds_apply_to_what_is_read_only() -> None:
    wire = Wires().of(Refusal)
    assert wire.write(Refusal(reason=9)) == {"reason": 9, "retry_after_ms": 0}
    with pytest.raises(OutOfBoundsError, match="reason out of bounds"):
        wire.read(pb.Refusal(reason=0))  # type: ignore[arg-type]
    assert wire.read(pb.Refusal(reason=3, retry_after_ms=99)).retry_after_ms == 50  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "fits"), [("", False), ("é", True), ("éé", False)])
def test_a_text_is_measured_in_its_bytes(text: str, fits: bool) -> None:
    bound = sized(1, 2, "text")
    if fits:
        assert bound(text) == text
    else:
        with pytest.raises(OutOfBoundsError, match="text"):
            bound(text)


def test_bounds_hold_in_the_order_they_are_written() -> None:
    kind = Annotated[str, sized(1, 4, "length"), holding(str.isprintable, "sign")]
    read = Wires().of(kind).read
    assert read("good") == "good"
    with pytest.raises(OutOfBoundsError, match="length"):
        read("\n" * 5)
    with pytest.raises(OutOfBoundsError, match="sign"):
        read("\n")


def test_an_enumeration_travels_by_its_code() -> None:
    strict = coded({Mode.SWARM: 1, Mode.SILO: 2}, unknown="no known mode")
    assert [strict.read(strict.write(mode)) for mode in Mode] == list(Mode)
    with pytest.raises(RemoteError, match="no known mode"):
        strict.read(0)
    assert coded({Mode.SWARM: 1}, default=Mode.SWARM).read(7) is Mode.SWARM


class Colour(StrEnum):
    """An enumeration without a wire format."""

    RED = "red"


@pytest.mark.parametrize("kind", [Colour, int | None, dict], ids=str)
def test_a_type_without_a_conversion_is_refused(kind: object) -> None:
    with pytest.raises(TypeError, match="no conversion is defined"):
        Wires().of(kind)
    assert Wires({kind: Wire()}).of(kind) == Wire()


def test_a_body_that_no_class_stands_for_is_no_body() -> None:
    bodies: OneOf[Chunk | Envelopes] = OneOf(
        pb.RolloutAnswer, Chunk | Envelopes, Wires(), name="answer", empty="nothing known"
    )
    assert bodies.decode(bodies.encode(Envelopes(envelopes=(b"e",)))) == Envelopes(
        envelopes=(b"e",)
    )
    with pytest.raises(RemoteError, match="nothing known"):
        bodies.decode(pb.RolloutAnswer(listing=pb.Listing()).SerializeToString())


def test_a_class_without_a_message_is_refused_when_the_codec_is_built() -> None:
    with pytest.raises(KeyError, match="Chunk"):
        OneOf(judge_pb2.JudgeReply, Chunk | Envelopes, Wires(), name="reply", empty="nothing")
