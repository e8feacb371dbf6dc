"""Frames come out whole and in order, however the stream is cut."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_wire.errors import LocalError
from shoal_wire.framing import MAX_IPC_FRAME_BYTES, FrameDecoder, FrameError, encode_frame


def test_a_frame_is_its_length_as_a_big_endian_u32_and_its_body() -> None:
    assert encode_frame(b"abc") == b"\x00\x00\x00\x03abc"
    assert encode_frame(b"") == bytes(4)
    assert encode_frame(bytes(258))[:4] == b"\x00\x00\x01\x02"


@given(st.lists(st.binary(max_size=30), max_size=6), st.lists(st.integers(0, 200), max_size=6))
def test_a_stream_cut_anywhere_gives_the_same_frames(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(encode_frame(body) for body in bodies)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    decoder = FrameDecoder()
    frames = [frame for start, end in pairwise(edges) for frame in decoder.feed(stream[start:end])]
    assert frames == bodies


def test_a_body_at_the_cap_passes_and_one_over_does_not() -> None:
    assert FrameDecoder(max_bytes=10).feed(encode_frame(bytes(10), max_bytes=10)) == [bytes(10)]
    with pytest.raises(LocalError, match="over 10"):
        encode_frame(bytes(11), max_bytes=10)
    with pytest.raises(FrameError, match="over 10"):
        FrameDecoder(max_bytes=10).feed(encode_frame(bytes(11)))


def test_a_length_over_the_cap_is_refused_before_its_body_comes() -> None:
    for length in (MAX_IPC_FRAME_BYTES + 1, 2**32 - 1):
        with pytest.raises(FrameError):
            FrameDecoder().feed(length.to_bytes(4, "big"))


@pytest.mark.parametrize("more", [b"", b"more"])
def test_good_frames_before_a_length_over_the_cap_are_not_lost(more: bytes) -> None:
    decoder = FrameDecoder(max_bytes=10)
    assert decoder.feed(encode_frame(b"one") + encode_frame(b"two") + bytes([255] * 4)) == [
        b"one",
        b"two",
    ]
    with pytest.raises(FrameError, match="over 10"):
        decoder.feed(more)


def test_an_announced_length_allocates_nothing() -> None:
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        decoder.feed(MAX_IPC_FRAME_BYTES.to_bytes(4, "big") + b"a few bytes")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
