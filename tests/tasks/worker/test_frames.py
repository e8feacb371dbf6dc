"""Frames between client and worker."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_tasks.errors import WorkerProtocolError
from shoal_tasks.worker.frames import MAX_FRAME_BYTES, WorkerFrameDecoder, encode_frame


@given(
    st.lists(st.dictionaries(st.text(), st.text(alphabet=st.characters()) | st.integers())),
    st.integers(1, 9),
)
def test_any_messages_survive_any_cutting(messages: list[dict[str, str | int]], step: int) -> None:
    data = b"".join(encode_frame(dict(message)) for message in messages)
    decoder = WorkerFrameDecoder()
    received = []
    for start in range(0, len(data), step):
        decoder.feed(data[start : start + step])
        while (message := decoder.next_message()) is not None:
            received.append(message)
    assert received == messages


def test_lone_surrogates_survive() -> None:
    decoder = WorkerFrameDecoder()
    decoder.feed(encode_frame({"text": "a\ud800b\0"}))
    assert decoder.next_message() == {"text": "a\ud800b\0"}


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", MAX_FRAME_BYTES + 1),
        struct.pack(">I", 3) + b"\xff\xff\xff",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 200_000) + b"[" * 200_000,
    ],
    ids=["too long", "not text", "not an object", "too deep"],
)
def test_bad_frames_are_protocol_errors(data: bytes) -> None:
    decoder = WorkerFrameDecoder()
    decoder.feed(data)
    with pytest.raises(WorkerProtocolError):
        decoder.next_message()


def test_too_large_a_message_is_not_sent() -> None:
    with pytest.raises(ValueError, match="exceeds"):
        encode_frame({"text": "x" * MAX_FRAME_BYTES})
