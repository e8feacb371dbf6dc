"""What the trainer remembers of others' groups: enough to know a copy by, in few bytes."""

from __future__ import annotations

import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from p2p.rollouts.groups import published_groups
from policy.choice import candidates
from policy.choice.candidates import MAX_REMEMBERED_TEXTS, Candidate, OwnRecord, candidate_of
from policy.choice.sampling import parse_strategy
from shoal_ipc.messages import SampledGroup
from shoal_wire.types import PeerId
from tests.support import factories as make


def candidate(author: make.Author, number: int, texts: list[str]) -> Candidate:
    signed = author.signed(author.batch([make.group(number, texts=texts)]))
    sampled = SampledGroup(published=published_groups(signed)[0], own=False)
    return candidate_of(sampled, (0.0, 1.0))


def test_long_texts_trained_on_are_not_kept() -> None:
    own, ann = OwnRecord(), make.Author()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(100):
            own.add_trained(candidate(ann, number, [f"{n}" + 30_000 * "x" for n in range(16)]))
        assert tracemalloc.get_traced_memory()[0] - before < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_copy_is_known_however_long_its_texts_are() -> None:
    strategy, own, ann, thief = (
        parse_strategy("distinct"),
        OwnRecord(),
        make.Author(),
        make.Author(),
    )
    texts = [f"{n}" + 20_000 * "x" for n in range(4)]
    own.add_trained(candidate(ann, 1, texts))
    assert strategy.is_spent(candidate(thief, 1, texts), own)
    assert strategy.is_spent(candidate(thief, 1, [*texts[:2], "other", "answers"]), own)
    assert not strategy.is_spent(candidate(thief, 1, [*texts[:1], "of", "its", "own"]), own)


@settings(max_examples=100)
@given(
    groups=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(1, 12))),
)
def test_no_groups_make_it_remember_more(groups: list[tuple[int, int, int]]) -> None:
    """Not the same task with ever other answers either."""
    own = OwnRecord()
    bound, candidates.MAX_REMEMBERED_TEXTS = candidates.MAX_REMEMBERED_TEXTS, 20
    try:
        for task, start, count in groups:
            texts = frozenset(range(start, start + count))
            own.add_trained(
                Candidate(
                    family="f",
                    publisher=PeerId("p"),
                    created_ms=0,
                    rewards=(1.0,),
                    task=("f", task, 0),
                    texts=texts,
                )
            )
            assert sum(map(len, own.trained.values())) <= 20
    finally:
        candidates.MAX_REMEMBERED_TEXTS = bound
    assert bound == MAX_REMEMBERED_TEXTS
