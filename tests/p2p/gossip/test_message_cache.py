"""The message cache is bounded and expires by age."""

from __future__ import annotations

import psutil
from hypothesis import given, settings
from hypothesis import strategies as st
from libp2p.pubsub.pb import rpc_pb2

from shoal_p2p.gossip.codec import encode_frame, to_message
from shoal_p2p.gossip.duplicate_tracker import FrameCache
from tests.p2p.gossip.mesh_fixture import TOPIC, A, MeshFixture


def key(number: int) -> bytes:
    return b"author" + number.to_bytes(8, "big")


def message(number: int, size: int = 10) -> rpc_pb2.Message:
    return rpc_pb2.Message(
        from_id=b"author", seqno=number.to_bytes(8, "big"), data=bytes(size), topicIDs=[TOPIC]
    )


def test_a_cached_message_does_not_keep_its_rpc_alive() -> None:
    node = MeshFixture(pack=lambda message: encode_frame(rpc_pb2.RPC(publish=[message.signed])))
    node.join()
    process = psutil.Process()
    before = process.memory_info().rss
    for number in range(100):
        padded = rpc_pb2.RPC(publish=[message(number), message(1000 + number, 1 << 20)])
        node.deliver(A, to_message(rpc_pb2.RPC.FromString(padded.SerializeToString()).publish[0]))
    assert process.memory_info().rss - before < 32 << 20
    cache = node.mesh._cache
    assert cache.get(key(7)) == encode_frame(rpc_pb2.RPC(publish=[message(7)]))
    assert 100 * 10 < cache.num_bytes < 100_000


def test_the_oldest_frames_are_evicted_first() -> None:
    cache = FrameCache(max_bytes=5000)
    for number in range(10):
        cache.put(key(number), "t", number, 1100)
    assert cache.window() == {"t": [key(number) for number in range(6, 10)]}
    assert key(5) not in cache
    assert cache.get(key(5)) is None


@settings(max_examples=80)
@given(
    steps=st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 20), st.integers(0, 3000)))),
)
def test_no_schedule_breaks_its_bounds(steps: list[tuple[int, int] | None]) -> None:
    cache, beat, put_at = FrameCache(max_bytes=6000), 0, dict[int, int]()
    for step in steps:
        if step is None:
            cache.shift()
            beat += 1
        else:
            number, size = step
            if key(number) not in cache:
                put_at[number] = beat
            cache.put(key(number), "t", bytes(size), size)
        here = [number for number in range(21) if key(number) in cache]
        assert cache.num_bytes == sum(len(cache.get(key(number))) for number in here)
        assert cache.num_bytes <= 6000
        assert all(beat - put_at[number] < 5 for number in here)
        fresh = {key(n) for n in here if beat - put_at[n] < 3}
        assert set(cache.window().get("t", ())) == fresh
