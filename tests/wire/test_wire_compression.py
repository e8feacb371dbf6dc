"""A payload is one zstd frame that says how large it is; nothing else is read, or allocated."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from shoal_wire.codec import CorruptFrameError, OversizeFrameError, compress, decompress

CAP = 100_000
MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPABLE = (0x184D2A50).to_bytes(4, "little")


def raw_frame(content: bytes, *, declared: int, window_log: int | None = None) -> bytes:
    """Return a frame of one stored block, with a header that says what it likes (RFC 8878)."""
    block = (1 | len(content) << 3).to_bytes(3, "little") + content
    if window_log is None:
        return MAGIC + b"\xa0" + declared.to_bytes(4, "little") + block
    return MAGIC + bytes([0x80, window_log - 10 << 3]) + declared.to_bytes(4, "little") + block


def bomb(size: int) -> bytes:
    """Return a small frame of `size` zeros that declares its size."""
    return zstandard.ZstdCompressor(level=19).compress(bytes(size))


def undeclared(content: bytes) -> bytes:
    """Return a frame that does not say how large it is, as a streaming encoder writes it."""
    encoder = zstandard.ZstdCompressor(write_content_size=False)
    return encoder.compress(content)


@given(st.binary(min_size=1, max_size=2000))
def test_content_survives(content: bytes) -> None:
    assert decompress(compress(content), max_bytes=len(content)) == content


@given(st.binary(min_size=2, max_size=2000))
def test_one_byte_over_the_cap_is_refused(content: bytes) -> None:
    with pytest.raises(OversizeFrameError):
        decompress(compress(content), max_bytes=len(content) - 1)


def test_stored_frames_are_what_the_hand_made_ones_below_deviate_from() -> None:
    assert decompress(raw_frame(b"abcd", declared=4), max_bytes=CAP) == b"abcd"
    assert decompress(raw_frame(b"abcd", declared=4, window_log=20), max_bytes=CAP) == b"abcd"


CORRUPT = {
    "nothing": b"",
    "magic only": MAGIC,
    "last byte missing": compress(b"abcd")[:-1],
    "cut short": compress(b"abcd" * 100)[:9],
    "trailing byte": compress(b"abcd") + b"\0",
    "two frames": compress(b"abcd") + compress(b"abcd"),
    "frame of nothing": compress(b""),
    "frame of nothing, then junk": compress(b"") + b"junk",
    "declares 0, holds 4": raw_frame(b"abcd", declared=0),
    "declares 3, holds 4": raw_frame(b"abcd", declared=3),
    "declares 5, holds 4": raw_frame(b"abcd", declared=5),
    "declares 4, holds 0": raw_frame(b"", declared=4),
    "undeclared size": undeclared(b"abcd"),
    "undeclared bomb": undeclared(bytes(10_000_000)),
    "skippable frame": SKIPPABLE + (4).to_bytes(4, "little") + b"abcd",
    "skippable frame, then a frame": (0x184D2A50).to_bytes(4, "little")
    + bytes(4)
    + compress(b"abcd"),
    "window beyond what zstd knows": raw_frame(b"abcd", declared=4, window_log=41),
    "version 0.7": (0xFD2FB527).to_bytes(4, "little") + compress(b"abcd")[4:],
}


@pytest.mark.parametrize("frame", CORRUPT.values(), ids=CORRUPT)
def test_what_is_not_one_whole_declared_frame_is_corrupt(frame: bytes) -> None:
    with pytest.raises(CorruptFrameError):
        decompress(frame, max_bytes=CAP)


OVERSIZE = {
    "one over": bomb(CAP + 1),
    "100 MB": bomb(100_000_000),
    "declares 4 GiB": raw_frame(b"abcd", declared=2**32 - 1),
    "declares 2**64": MAGIC + b"\xe0" + b"\xf0" + b"\xff" * 7 + b"\x01\0\0",
    "2 MiB window": raw_frame(b"abcd", declared=4, window_log=21),
    "2 GiB window": raw_frame(b"abcd", declared=4, window_log=31),
}


@pytest.mark.parametrize("frame", OVERSIZE.values(), ids=OVERSIZE)
def test_what_declares_too_much_is_oversize(frame: bytes) -> None:
    with pytest.raises(OversizeFrameError):
        decompress(frame, max_bytes=CAP)


def test_a_checksum_is_verified() -> None:
    good = zstandard.ZstdCompressor(write_checksum=True).compress(b"abcd" * 9)
    assert decompress(good, max_bytes=CAP) == b"abcd" * 9
    with pytest.raises(CorruptFrameError):
        decompress(good[:-1] + bytes([good[-1] ^ 1]), max_bytes=CAP)


def test_a_refused_bomb_allocates_nothing() -> None:
    frame = bomb(100_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(OversizeFrameError):
            decompress(frame, max_bytes=CAP)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < CAP


@pytest.mark.skipif(sys.platform != "linux", reason="needs an enforced RLIMIT_AS")
def test_memory_outside_python_stays_within_the_cap_too() -> None:
    """tracemalloc does not see the library's own memory: an address-space limit does."""
    code = f"""
    import resource
    from shoal_wire.codec import compress, decompress
    import zstandard
    bombs = {[bomb(64_000_000), undeclared(bytes(64_000_000)), raw_frame(b"a", declared=2**31)]!r}
    decompress(compress(bytes({CAP})), max_bytes={CAP})
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    limit = used + 32_000_000
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for bomb in bombs:
        try:
            decompress(bomb, max_bytes={CAP})
        except ValueError:
            continue
        raise SystemExit("a bomb went off")
    try:
        zstandard.ZstdDecompressor().decompress(bombs[0])
    except MemoryError:
        raise SystemExit(0)
    raise SystemExit("the limit did not bite")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
