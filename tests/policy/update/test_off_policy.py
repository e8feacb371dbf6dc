"""Text from outside: what a server claims of it, the likelihood floor, what no verifier read."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from shoal_policy.generation.replies import usable_logprobs
from shoal_policy.update.grpo import GrpoConfig, TrainGroup, make_optimizer, update
from shoal_policy.update.logprobs import completion_logprobs
from shoal_policy.update.off_policy import IMPORTANCE_CAP, importance_weights
from shoal_policy.update.rows import make_rows
from tests.policy import tiny_models
from tests.policy.update.update_cases import EOS, group_of, own_logprobs, recorded

VOCAB = tiny_models.VOCAB


# Claims


def test_an_honest_claim_is_used() -> None:
    assert usable_logprobs([-1.5, 0.0], 2) == (-1.5, 0.0)


@pytest.mark.parametrize(
    "values",
    [[], [-1.0], [-1.0] * 3]
    + [[-1.0, bad] for bad in (math.nan, math.inf, -math.inf, 0.5, -31.0, -65504.0, 1e300)],
)
def test_a_claim_that_cannot_be_true_counts_as_none(values: list[float]) -> None:
    assert usable_logprobs(values, 2) is None


LOGPROBS = st.lists(
    st.tuples(st.floats(-200, 0, width=32), st.floats(-30, 0.0078125, width=32)), min_size=1
)


@given(LOGPROBS)
def test_whatever_is_claimed_a_weight_stays_within_the_cap(
    pairs: list[tuple[float, float]],
) -> None:
    start, claimed = (torch.tensor(column) for column in zip(*pairs, strict=True))
    weights = importance_weights(start, claimed)
    assert bool(weights.isfinite().all())
    assert 0 <= float(weights.min()) <= float(weights.max()) <= IMPORTANCE_CAP * (1 + 1e-6)


# What they change in an update


def group(*, external: bool = True, **changes: Any) -> TrainGroup:
    completions = [[7, 8, EOS], [9, EOS], [10, 11, 12, 13]]
    return group_of([1, 9, 4], completions, [1.0, -0.5, -0.5], external=external, **changes)


@pytest.mark.parametrize("passes", [{}, {"epochs": 2, "minibatches": 2}])
def test_the_difference_of_a_servers_log_probabilities_is_reported(passes: dict[str, Any]) -> None:
    policy = tiny_models.policy()
    own = own_logprobs(policy.model, group())
    shifted = [[one + (0.3 if i % 2 else -0.1) for i, one in enumerate(row)] for row in own]
    served = group(external=False, sampling_logprobs=[shifted[0], None, shifted[2]])
    stats, _ = recorded(policy, [served, group()], **passes)
    gaps = [0.3 if i % 2 else 0.1 for row in (own[0], own[2]) for i in range(len(row))]
    assert stats.sampling_logp_difference == pytest.approx(sum(gaps) / len(gaps), abs=1e-5)
    alone, _ = recorded(policy, [group(external=False)], **passes)
    assert alone.sampling_logp_difference is None


def test_claims_of_another_length_are_an_error() -> None:
    groups = [group(external=False, sampling_logprobs=[[-1.0]] * 3)]
    with pytest.raises(ValueError, match="one value per token"):
        recorded(tiny_models.policy(), groups)


# What the verifier did not read


@hypothesis_settings(max_examples=40, deadline=None)
@given(
    ids=st.lists(
        st.lists(st.integers(5, VOCAB - 1), min_size=1, max_size=10), min_size=1, max_size=4
    ),
    chance=st.randoms(use_true_random=False),
    minibatches=st.integers(1, 2),
)
def test_of_what_no_verifier_read_only_what_the_policy_says_itself_moves_it(
    ids: list[list[int]], chance: random.Random, minibatches: int
) -> None:
    """Forty generated groups: the loss is that of the tokens that may be trained on, no others."""
    policy = tiny_models.policy()
    unscored_mask = [[chance.random() < 0.5 for _ in one] for one in ids]
    made = group_of([1, 9], ids, external=True, unscored_mask=unscored_mask)
    rows, _ = make_rows(policy, [made], GrpoConfig())
    found = completion_logprobs(policy, rows[0]).logprobs.split([len(one) for one in ids])
    expected = 0.0
    for start, marks in zip(found, unscored_mask, strict=True):
        kept = [
            not is_unread or value >= math.log(0.01)
            for value, is_unread in zip(start.tolist(), marks, strict=True)
        ]
        expected -= sum(kept) / (len(ids) * len(kept))
    stats = update(policy, make_optimizer(policy, lr=1e-9), [made], GrpoConfig(epochs=minibatches))
    assert stats.loss == pytest.approx(expected, abs=1e-5)
