"""Messages between client and worker; `tests/wire/test_wire_framing` tests the frames."""

from __future__ import annotations

import pytest

from shoal_tasks.errors import WorkerProtocolError
from shoal_tasks.worker.frames import encode_message, read_messages
from shoal_wire.framing import FrameDecoder, encode_frame


def test_lone_surrogates_survive() -> None:
    replied = {"text": "a\ud800b\0"}
    assert read_messages(FrameDecoder(), encode_message({**replied}) * 2) == [replied, replied]


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 4,
        encode_frame(b"\xff\xff\xff"),
        encode_frame(b"[]"),
        encode_frame(b"[" * 200_000),
    ],
    ids=["too long", "not text", "not an object", "too deep"],
)
def test_bad_frames_are_protocol_errors(data: bytes) -> None:
    with pytest.raises(WorkerProtocolError):
        read_messages(FrameDecoder(), data)
