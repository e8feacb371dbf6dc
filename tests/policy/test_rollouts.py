"""What of a round may be shared, in which batches, and under which name."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from shoal_policy.rollouts import (
    Answer,
    OwnGroup,
    Question,
    batch_key,
    num_answer_bytes,
    publish_requests,
    shareable,
)
from shoal_tasks.wire_tasks import coordinates_of, make_task
from shoal_wire.bundles import BUNDLE_BYTES, bundles
from shoal_wire.digests import group_id, question_digest
from shoal_wire.manifest import SwarmRules
from shoal_wire.rules import check_completion
from shoal_wire.types import FinishReason, RolloutGroup
from tests.support import factories as make

RULES = SwarmRules()
QUESTION = Question(task=make.task(1), text="What?", tagged=False)


def answer(text: str, finish: FinishReason = FinishReason.STOP) -> Answer:
    return Answer(ids=tuple(range(len(text) + 1)), text=text, finish_reason=finish, logprobs=())


def own(*texts: str) -> OwnGroup:
    return OwnGroup(question=QUESTION, answers=tuple(answer(text) for text in texts))


def test_a_shared_group_has_the_texts_and_neither_ids_nor_logprobs() -> None:
    shared = shareable(own("12", "345"), RULES)
    assert shared is not None
    assert shared.group.task is QUESTION.task
    assert [(c.text, c.num_tokens) for c in shared.group.completions] == [("12", 3), ("345", 4)]
    assert all(completion.logprobs is None for completion in shared.group.completions)


def test_what_peers_would_reject_stays_at_home() -> None:
    shared = shareable(own("1", "", "2", "a\0b", "3"), RULES)
    assert shared is not None
    assert [completion.text for completion in shared.group.completions] == ["1", "2", "3"]
    assert shared.answers == (0, 2, 4)
    assert shared.group_id == group_id(shared.group)
    assert shareable(own("1", "", "\0"), RULES) is None
    assert shareable(own("1", "2"), SwarmRules(min_completions=3)) is None


def test_a_swarm_with_smaller_groups_gets_the_first_of_ours() -> None:
    shared = shareable(own("1", "2", "3"), SwarmRules(max_completions=2))
    assert shared is not None
    assert [completion.text for completion in shared.group.completions] == ["1", "2"]


@given(st.lists(st.text(max_size=20), max_size=8))
def test_no_shared_completion_breaks_the_contract(texts: list[str]) -> None:
    shared = shareable(own(*texts), RULES)
    if shared is not None:
        assert len(shared.group.completions) >= RULES.min_completions
        assert all(check_completion(c, RULES) is None for c in shared.group.completions)


def test_a_task_made_from_coordinates_goes_back_to_them() -> None:
    at = make.coordinates_at(5)
    task = make_task(at, "What?", make.SPECS[0])
    assert coordinates_of(task) == at
    assert task.question_digest == question_digest("What?")
    assert Question(task=task, text="What?", tagged=True).coordinates == at


def size(groups: Sequence[RolloutGroup]) -> int:
    return sum(len(c.text.encode()) for group in groups for c in group.completions)


@given(st.lists(st.integers(1, 30_000), max_size=30))
def test_bundles_keep_order_and_every_group_and_their_bound(sizes: list[int]) -> None:
    groups = [make.group(n, ("é" * (length // 2 + 1), "7")) for n, length in enumerate(sizes)]
    made = list(bundles(groups, num_answer_bytes))
    assert [group for batch in made for group in batch] == groups
    for batch in made:
        assert batch
        assert len(batch) == 1 or size(batch) <= BUNDLE_BYTES
    for one, following in itertools.pairwise(made):
        assert size(one) + size(following[:1]) > BUNDLE_BYTES


def test_a_batchs_name_follows_from_round_and_content() -> None:
    def key_of(round_number: int, groups: Sequence[RolloutGroup]) -> bytes:
        return batch_key(round_number, [group_id(group) for group in groups])

    groups = [make.group(1), make.group(2)]
    key = key_of(3, groups)
    assert len(key) == 16
    assert key_of(3, [make.group(1), make.group(2)]) == key
    others = {
        key_of(4, groups),
        key_of(3, groups[:1]),
        key_of(3, groups[::-1]),
        key_of(3, [make.group(1, ("7", "9")), make.group(2)]),
    }
    assert key not in others
    assert len(others) == 4


def test_every_shared_group_is_in_one_batch_named_after_what_is_in_it() -> None:
    answers = tuple(map(answer, ("9" * (BUNDLE_BYTES // 4), "7")))
    questions = [Question(task=make.task(n), text="What?", tagged=False) for n in range(7)]
    groups = [shareable(OwnGroup(question=q, answers=answers), RULES) for q in questions]
    shared = [one for one in groups if one is not None]
    made = publish_requests(shared, round_number=3, policy=make.POLICY, sampling=make.SAMPLING)
    assert len(made) > 1
    assert [group for batch in made for group in batch.groups] == [one.group for one in shared]
    for batch in made:
        assert (batch.round, batch.policy) == (3, make.POLICY)
        assert batch.client_key == batch_key(3, [group_id(group) for group in batch.groups])
