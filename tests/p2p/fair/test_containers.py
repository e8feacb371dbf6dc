"""The containers agree with plain models of them."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from shoal_p2p.fair.quota import LazyHeap, RandomSet

calls = st.lists(
    st.tuples(st.sampled_from(["put", "discard"]), st.integers(0, 9), st.integers(0, 5)),
    max_size=80,
)


@given(calls)
def test_a_lazy_heap_agrees_with_a_sorted_list(script: list[tuple[str, int, int]]) -> None:
    heap: LazyHeap[int] = LazyHeap()
    model: dict[int, tuple[int, int]] = {}
    for time, (call, key, priority) in enumerate(script):
        if call == "put":
            heap.put(key, priority)
            model[key] = (priority, time)
        else:
            heap.discard(key)
            model.pop(key, None)
        first = min(model, key=lambda item: model[item], default=None)
        assert heap.peek() == first
        assert heap.least() == (None if first is None else model[first][0])
        assert len(heap) == len(model)
        assert len(heap._heap) <= 2 * 10 + 8


@given(calls, st.randoms(use_true_random=False))
def test_a_draw_set_draws_its_members(
    script: list[tuple[str, int, int]], rng: random.Random
) -> None:
    members: RandomSet[int] = RandomSet()
    model: set[int] = set()
    for call, key, _ in script:
        if call == "put":
            members.add(key)
            model.add(key)
        else:
            members.discard(key)
            model.discard(key)
        assert sorted(members) == sorted(model)
        if model:
            assert members.sample(rng) in model
