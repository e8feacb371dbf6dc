"""Events with numbers: what was missed is told again, and nobody holds the others up."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from shoal.page.feed import MAX_LISTENERS, MAX_RING_BYTES, MAX_WAITING, Feed, FullError


def test_who_comes_again_is_told_what_it_missed() -> None:
    feed = Feed("m")
    feed.publish("peer", 1)
    seen = feed.last_id
    feed.publish("peer", 2)
    feed.publish("rounds", 3)
    again = feed.listen(seen)
    assert not again.is_new
    assert [(event.kind, event.data) for event in again.first] == [("peer", "2"), ("rounds", "3")]
    assert feed.listen(feed.last_id).first == ()
    assert all(feed.listen(unknown).is_new for unknown in ("", "m-99", "other-1", "\n"))


def test_an_event_is_one_block_of_lines() -> None:
    feed = Feed("m")
    listener = feed.listen("")
    feed.publish("peer", {"text": "a\n\ndata: b\r\u2028"})
    event = listener._receive.receive_nowait()
    assert event.encode().count(b"\n") == 4
    assert event.encode().endswith(b"\n\n") and event.encode().isascii()


def test_few_listen() -> None:
    feed = Feed("m")
    listeners = [feed.listen() for _ in range(MAX_LISTENERS)]
    with pytest.raises(FullError):
        feed.listen()
    feed.forget(listeners[0])
    feed.listen()


async def test_who_is_too_slow_is_dropped_and_the_others_are_not() -> None:
    feed = Feed("m")
    slow, quick = feed.listen(), feed.listen()
    heard = []
    for number in range(MAX_WAITING + 10):
        feed.publish("peer", number)
        heard.append((await quick.next()).data)
    assert heard == [str(number) for number in range(MAX_WAITING + 10)]
    assert feed.num_dropped == 1 and feed.num_listeners == 1
    late = [(await slow.next()).data for _ in range(MAX_WAITING)]
    assert late[0] == "0"
    with pytest.raises(trio.EndOfChannel):
        await slow.next()


@given(st.lists(st.integers(0, MAX_RING_BYTES // 2), max_size=12), st.integers(0, 12))
def test_the_ring_is_bounded_and_never_tells_with_a_gap(sizes: list[int], seen: int) -> None:
    feed = Feed("m")
    ids = [feed.last_id]
    for size in sizes:
        feed.publish("peer", "x" * size)
        ids.append(feed.last_id)
        assert sum(len(event.data) for event in feed._ring) <= MAX_RING_BYTES
    last = ids[min(seen, len(ids) - 1)]
    listener = feed.listen(last)
    if not listener.is_new:
        assert [event.id for event in listener.first] == ids[ids.index(last) + 1 :]
