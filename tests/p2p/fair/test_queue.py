"""The next is the least served on each level of a share key, and among equals the oldest."""

from __future__ import annotations

import trio
import trio.testing

from shoal_base.bounded import REMEMBERED
from shoal_p2p.fair.limiter import FairLimiter
from shoal_p2p.fair.queue import FairQueue


def drained(queue: FairQueue[str], *, cost: float = 1.0) -> str:
    """Take all that waits, each for one cost."""
    found = []
    while (taken := queue.pop()) is not None:
        queue.charge(taken[0], cost)
        found.append(taken[1])
    return "".join(found)


def waiting(**items: str) -> FairQueue[str]:
    queue = FairQueue[str]()
    for network, letters in items.items():
        for letter in letters:
            queue.add((network, letter.lower()), letter)
    return queue


def test_networks_take_turns_then_names_and_each_is_served_in_order() -> None:
    assert drained(waiting(x="aaabb", y="c")) == "acbaba"
    queue = waiting(x="abc")
    assert list(queue) == ["a", "b", "c"]
    assert queue.discard(("x", "b"), "b") and not queue.discard(("x", "b"), "b")
    queue.add(("x", "a"), "A", first=True)
    assert drained(queue) == "Aca" and not len(queue)


def test_who_comes_late_saved_nothing_up_and_who_paid_more_waits() -> None:
    queue = waiting(x="aaaa")
    queue.pop()
    queue.charge(("x", "a"), 1.0)
    queue.charge(("x", "a"), 2.0)
    queue.add(("y", "b"), "b")
    for _ in range(4):
        queue.add(("y", "b"), "b")
    # x has paid 3 and y nothing: y is served until it has paid as much.
    assert drained(queue)[:4] == "bbba"
    queue.add(("z", "c"), "c")
    queue.add(("x", "a"), "a")
    queue.add(("x", "a"), "a")
    assert drained(queue)[:2] in ("ca", "ac")


def test_what_does_not_fit_is_passed_over() -> None:
    queue = waiting(x="ab", y="c")
    taken = queue.pop(lambda item: item != "a")
    assert taken == (("x", "b"), "b")
    assert queue.pop(lambda _item: False) is None
    assert len(queue) == 2


def test_a_reservation_that_skips_the_first_level_lasts_until_it_is_released() -> None:
    queue = FairQueue[str]()
    queue.reserve(("x", "a"), 5.0, skip=1)
    queue.add(("x", "b"), "b")
    assert queue.pop() == (("x", "b"), "b")  # x is idle now
    queue.add(("x", "a"), "a")
    queue.add(("x", "b"), "b")
    assert drained(queue) == "ba"
    queue.release(("x", "a"), 5.0, skip=1)
    assert queue._root.children["x"].children["a"].reserved == 0


def test_what_is_remembered_is_bounded() -> None:
    queue = FairQueue[str]()
    for number in range(3 * REMEMBERED):
        share_key = (f"network {number}", "a")
        queue.add(share_key, "a")
        queue.pop()
        queue.charge(share_key, 5.0)
        queue.reserve(share_key)
        queue.release(share_key)
    assert len(queue._root.children) <= REMEMBERED + 1


async def test_a_limiter_gives_free_slots_at_once_and_then_to_the_smallest_holder(
    autojump_clock: trio.testing.MockClock,
) -> None:
    limiter, served = FairLimiter(2), list[str]()

    async def work(network: str, name: str) -> None:
        async with limiter.slot((network, name)):
            served.append(name)
            await trio.sleep(1.0)

    async with trio.open_nursery() as nursery:
        for name in ("a", "b", "c", "d", "e"):
            nursery.start_soon(work, "many", name)
            await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0.1):
            await work("gone", "gave up")
        nursery.start_soon(work, "one", "f")
    assert served[:3] in (["a", "b", "f"], ["a", "b", "c"])
    assert sorted(served) == sorted("abcdef")
    assert trio.current_time() >= 3.0, "and every seat was given back"
    await limiter.acquire(("x", "y"))
    await limiter.acquire(("x", "y"))
