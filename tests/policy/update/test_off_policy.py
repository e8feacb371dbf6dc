"""External text: what its generator may claim, what that changes, and how far it can reach."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from p2p.intake.validation import reopen_batch
from policy.model.loading import Policy
from policy.node.link import NodeLink
from policy.trainer import Trainer
from policy.update.grpo import GrpoConfig, TrainGroup, UpdateStats, make_optimizer, update
from policy.update.logprobs import completion_logprobs
from policy.update.off_policy import (
    FloorMode,
    OffPolicy,
    OffPolicyConfig,
    importance_weights,
    likelihood_factor,
    usable_claims,
)
from policy.update.rows import make_rows
from shoal_wire.limits import MAX_BATCH_BYTES
from shoal_wire.types import Completion, FinishReason, PolicyInfo, RolloutBatch, RolloutGroup
from tests.policy import tiny_models
from tests.policy import training_cases as case
from tests.support import factories as make
from tests.support.local_node import LocalNode, NodeThread, wall_ms

EOS = 2
VOCAB = tiny_models.VOCAB
NO_CAP = 999.0


def settings(mode: OffPolicy = OffPolicy.PAPER, **changes: Any) -> OffPolicyConfig:
    return OffPolicyConfig(mode=mode, **changes)


# Claims


def claims(values: Sequence[float] | None, **changes: Any) -> tuple[float, ...] | None:
    return usable_claims(values, **{"num_tokens": 2, "same_tokenizer": True, **changes})


def test_an_honest_claim_is_used() -> None:
    assert claims([-1.5, 0.0]) == (-1.5, 0.0)


@pytest.mark.parametrize(
    "values",
    [None, [], [-1.0], [-1.0] * 3]
    + [[-1.0, bad] for bad in (math.nan, math.inf, -math.inf, 0.5, -31.0, -65504.0, 1e300)],
)
def test_a_claim_that_cannot_be_true_counts_as_none(values: list[float] | None) -> None:
    assert claims(values) is None


def test_a_claim_by_another_tokenizer_counts_as_none() -> None:
    assert claims([-1.0, -1.0], same_tokenizer=False) is None


LOGPROBS = st.lists(
    st.tuples(st.floats(-200, 0, width=32), st.floats(-30, 0.0078125, width=32)), min_size=1
)


@given(LOGPROBS, st.floats(1, 50), st.sampled_from([OffPolicy.TRUNCATED, OffPolicy.SEQUENCE]))
def test_whatever_is_claimed_a_weight_stays_within_the_cap(
    pairs: list[tuple[float, float]], cap: float, mode: OffPolicy
) -> None:
    start, claimed = (torch.tensor(column) for column in zip(*pairs, strict=True))
    weights, held = importance_weights(start, claimed, settings(mode, cap=cap))
    assert bool(weights.isfinite().all())
    assert 0 <= float(weights.min()) <= float(weights.max()) <= cap * (1 + 1e-6)
    assert 0 <= held <= len(pairs)


def test_weights_are_ratios_of_tokens_or_of_their_geometric_mean() -> None:
    start = torch.tensor([-1.0, -2.0, -4.0], requires_grad=True)
    claimed = torch.tensor([-1.5, -2.0, -3.0])
    token, held = importance_weights(start, claimed, settings(OffPolicy.TRUNCATED, cap=1.2))
    assert token.tolist() == pytest.approx([1.2, 1.0, math.exp(-1.0)])
    assert held == 1
    sequence, held = importance_weights(start, claimed, settings(OffPolicy.SEQUENCE))
    assert sequence.tolist() == pytest.approx([math.exp(-0.5 / 3)] * 3)
    assert held == 0
    assert not token.requires_grad


# What they change in an update


class Recorder:
    """Stands in for an optimiser: keeps the gradients instead of stepping."""

    def __init__(self, policy: Policy) -> None:
        self.model = policy.model
        self.gradients: list[torch.Tensor] = []

    def zero_grad(self, *, set_to_none: bool) -> None:
        self.model.zero_grad(set_to_none=set_to_none)

    def step(self) -> None:
        self.gradients = [weight.grad.clone() for weight in self.model.parameters()]


def group(*, external: bool = True, **changes: Any) -> TrainGroup:
    made = TrainGroup(
        prompt_ids=[1, 9, 4],
        completions=[[7, 8, EOS], [9, EOS], [10, 11, 12, 13]],
        advantages=[1.0, -0.5, -0.5],
        external=external,
    )
    return dataclasses.replace(made, **changes)


def computed(
    groups: Sequence[TrainGroup], off_policy: OffPolicyConfig, **changes: Any
) -> tuple[UpdateStats, list[torch.Tensor]]:
    policy = tiny_models.policy()
    recorder = Recorder(policy)
    config = GrpoConfig(max_grad_norm=0.0, off_policy=off_policy, **changes)
    return update(policy, recorder, groups, config), recorder.gradients


def own_logprobs(of: TrainGroup) -> list[list[float]]:
    model = tiny_models.policy().model
    found = []
    for ids in of.completions:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*of.prompt_ids, *ids]])).logits[0]
        places = torch.arange(len(of.prompt_ids) - 1, len(of.prompt_ids) + len(ids) - 1)
        found.append(logits.log_softmax(-1)[places, torch.tensor(ids)].tolist())
    return found


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, one, other))


def norm(gradients: list[torch.Tensor]) -> float:
    return math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients))


WILD = [[-29.0, 0.0, -10.0], [0.0, 0.0], [-29.0] * 4]


def test_the_paper_s_way_asks_nobody_for_claims() -> None:
    without, plain = computed([group()], settings())
    stats, gradients = computed([group(claimed_logprobs=WILD)], settings())
    assert same(gradients, plain)
    assert stats == without
    assert stats.external.claimed_share == 0


@pytest.mark.parametrize("mode", [OffPolicy.TRUNCATED, OffPolicy.SEQUENCE])
def test_without_a_claim_the_weight_is_one(mode: OffPolicy) -> None:
    _, plain = computed([group()], settings(mode))
    stats, gradients = computed([group(claimed_logprobs=[None] * 3)], settings(mode))
    assert same(gradients, plain)
    assert stats.external.weight_mean is None


@pytest.mark.parametrize("mode", [OffPolicy.TRUNCATED, OffPolicy.SEQUENCE])
def test_claims_weigh_external_completions_one_by_one(mode: OffPolicy) -> None:
    """One claim of half our probability, one of twice, one absent: weights 2, ½ and 1."""
    shift = {0: -math.log(2), 1: math.log(2)}
    claimed = [
        [value + shift[row] for value in row_values] if row in shift else None
        for row, row_values in enumerate(own_logprobs(group()))
    ]
    config = settings(mode, cap=NO_CAP)
    stats, gradients = computed([group(claimed_logprobs=claimed)], config)
    _, expected = computed([group(advantages=[2.0, -0.25, -0.5])], settings())
    for ours, theirs in zip(gradients, expected, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    assert stats.external.claimed_share == pytest.approx(5 / 9)
    assert stats.external.weight_mean == pytest.approx((3 * 2 + 2 * 0.5) / 5, rel=1e-4)


@pytest.mark.parametrize("mode", [OffPolicy.TRUNCATED, OffPolicy.SEQUENCE])
def test_a_liar_gains_at_most_the_cap(mode: OffPolicy) -> None:
    lies = [[-29.9] * len(ids) for ids in group().completions]
    _, plain = computed([group()], settings())
    stats, gradients = computed([group(claimed_logprobs=lies)], settings(mode, cap=1.5))
    assert stats.external.truncated_share == 1.0
    assert norm(gradients) == pytest.approx(1.5 * norm(plain), rel=1e-4)


def test_own_text_of_this_process_is_never_weighed() -> None:
    floor = settings(OffPolicy.TRUNCATED, likelihood_floor=-0.001)
    _, plain = computed([group(external=False)], settings())
    stats, gradients = computed([group(external=False)], floor)
    assert same(gradients, plain)
    assert stats.external.logprob_mean is None


def test_own_text_of_a_server_is_weighed_by_what_the_server_says_up_to_the_cap() -> None:
    """A server that follows made it by other kernels, perhaps by older weights."""
    lies = [[-29.9] * len(ids) for ids in group().completions]
    _, plain = computed([group(external=False)], settings())
    told = group(external=False, claimed_logprobs=lies)
    stats, gradients = computed([told], settings(OffPolicy.TRUNCATED, cap=1.5))
    assert norm(gradients) == pytest.approx(1.5 * norm(plain), rel=1e-4)
    assert stats.external.logprob_mean is None


@pytest.mark.parametrize("passes", [{}, {"epochs": 2, "minibatches": 2}])
def test_how_far_a_server_s_numbers_are_from_the_policy_s_is_told(passes: dict[str, int]) -> None:
    own = own_logprobs(group())
    shifted = [[one + (0.3 if i % 2 else -0.1) for i, one in enumerate(row)] for row in own]
    served = group(external=False, claimed_logprobs=[shifted[0], None, shifted[2]])
    stats, _ = computed([served, group()], settings(), **passes)
    gaps = [0.3 if i % 2 else 0.1 for row in (own[0], own[2]) for i in range(len(row))]
    assert stats.external.served_difference == pytest.approx(sum(gaps) / len(gaps), abs=1e-5)
    alone, _ = computed([group(external=False)], settings(), **passes)
    assert alone.external.served_difference is None


def test_a_sequence_s_ratio_is_clipped_as_one() -> None:
    """Tokens up and down by the same factor: each leaves the bounds, their mean does not."""
    old = [[v + (0.5 if i % 2 else -0.5) for i, v in enumerate(r)] for r in own_logprobs(even())]
    groups = [even(old_logprobs=old)]
    by_token, _ = computed(groups, settings())
    by_sequence, _ = computed(groups, settings(OffPolicy.SEQUENCE))
    assert by_token.clip_fraction_low + by_token.clip_fraction_high == 0.5
    assert by_sequence.clip_fraction_low + by_sequence.clip_fraction_high == 0
    assert by_sequence.ratio_max == pytest.approx(1.0, abs=1e-4)


def even(**changes: Any) -> TrainGroup:
    return group(completions=[[7, EOS], [9, 10, 11, EOS]], advantages=[1.0, -1.0], **changes)


def test_claims_of_another_length_are_an_error() -> None:
    groups = [group(claimed_logprobs=[[-1.0]] * 3)]
    with pytest.raises(ValueError, match="one a token"):
        computed(groups, settings(OffPolicy.TRUNCATED))


# The likelihood floor


def test_absurdly_unlikely_external_completions_are_dropped() -> None:
    means = [sum(row) / len(row) for row in own_logprobs(group())]
    lowest, floor = min(means), sum(sorted(means)[:2]) / 2
    kept = [0.0 if m == lowest else a for a, m in zip(group().advantages, means, strict=True)]
    _, expected = computed([group(advantages=kept)], settings())
    stats, gradients = computed([group()], settings(likelihood_floor=floor))
    for ours, theirs in zip(gradients, expected, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    assert stats.external.unlikely_share == pytest.approx(1 / 3)
    _, all_of_them = computed([group()], settings(likelihood_floor=-1000.0))
    assert same(all_of_them, computed([group()], settings())[1])


def test_or_weigh_less_the_further_they_are_below() -> None:
    config = settings(likelihood_floor=-3.0, floor_mode=FloorMode.DOWNWEIGHT)
    assert likelihood_factor(-3.0, config) == 1.0
    assert likelihood_factor(-4.0, config) == pytest.approx(math.exp(-1))
    assert likelihood_factor(-5000.0, config) == 0.0
    means = [sum(row) / len(row) for row in own_logprobs(group())]
    factors = [likelihood_factor(mean, config) for mean in means]
    assert min(factors) < 0.9
    weighed = [a * f for a, f in zip(group().advantages, factors, strict=True)]
    _, expected = computed([group(advantages=weighed)], settings())
    _, gradients = computed([group()], config)
    for ours, theirs in zip(gradients, expected, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_the_floor_holds_in_later_minibatches_too() -> None:
    """Their likelihood is that of the start, and each completion is counted once."""
    config = settings(likelihood_floor=-0.001)
    policy = tiny_models.policy()
    before = [weight.clone() for weight in policy.model.parameters()]
    groups = [group(), even()]
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.1)
    stats = update(
        policy, optimizer, groups, GrpoConfig(off_policy=config, epochs=2, minibatches=2)
    )
    assert stats.num_steps == 4
    assert stats.external.unlikely_share == 1.0
    assert same(before, list(policy.model.parameters()))


def test_own_likelihood_of_external_text_is_told() -> None:
    stats, _ = computed([group(), group(external=False)], settings())
    values = [value for row in own_logprobs(group()) for value in row]
    assert stats.external.logprob_mean == pytest.approx(sum(values) / len(values), abs=1e-5)


def test_settings_out_of_range_are_refused() -> None:
    for bad in ({"cap": 0.5}, {"cap": math.inf}, {"cap": math.nan}, {"likelihood_floor": 0.0}):
        with pytest.raises(ValueError):
            OffPolicyConfig(**bad)


# From node to node


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return case.model_folder(tmp_path_factory.mktemp("model"))


def trainer(data_dir: Path, model: str, node: NodeThread, **changes: Any) -> Trainer:
    return case.trainer(data_dir, model, link=NodeLink(node.node.client()), **changes)


def shared_batches(node: NodeThread) -> list[RolloutBatch]:
    node.call(node.node.outbox.drained)
    return [
        reopen_batch(data, max_bytes=MAX_BATCH_BYTES).batch
        for _, data in node.node.gossip.published
    ]


async def receive(node: LocalNode, groups: Sequence[RolloutGroup], policy: PolicyInfo) -> None:
    author = make.Author(node.manifest, now_ms=wall_ms())
    await node.receive(author.signed(author.batch(groups, policy=policy)))


@pytest.mark.parametrize("share", [False, True])
def test_logprobs_travel_when_asked_for(tmp_path: Path, model: str, share: bool) -> None:
    with NodeThread(tmp_path) as node:
        made = trainer(tmp_path, model, node, rounds=1, share_logprobs=share)
        made.run()
        (batch,) = shared_batches(node)
        made._link._client.close()  # type: ignore[union-attr]
    completions = [completion for group in batch.groups for completion in group.completions]
    assert batch.policy.tokenizer_digest == made.course.policy.tokenizer_digest
    assert completions
    for completion in completions:
        if share:
            assert completion.logprobs is not None
            assert len(completion.logprobs) == completion.num_tokens
            assert -30 < min(completion.logprobs) <= max(completion.logprobs) <= 0
        else:
            assert completion.logprobs is None


@pytest.mark.parametrize("same_tokenizer", [True, False])
def test_claims_of_external_groups_are_used_where_the_tokenizer_is_ours(
    tmp_path: Path, model: str, same_tokenizer: bool
) -> None:
    digest = case.policy().tokenizer_digest if same_tokenizer else b"another one 16 b"
    info = PolicyInfo(model_name="m", tokenizer_digest=digest, policy_version=3)  # type: ignore[arg-type]
    plain = case.external_group(1, ("12", "34", "5", "6"))
    claimed = [
        Completion(
            text=completion.text,
            num_tokens=completion.num_tokens,
            finish_reason=FinishReason.STOP,
            # Wire-valid, and absurd in the last one.
            logprobs=(-40.0 if last else -2.0,) * completion.num_tokens,
        )
        for completion, last in zip(plain.completions, (False, False, False, True), strict=True)
    ]
    groups = [dataclasses.replace(plain, completions=tuple(claimed))]
    with NodeThread(tmp_path) as node:
        node.call(receive, node.node, groups, info)
        made = trainer(tmp_path, model, node, local=0, external=1, rounds=1, off_policy="truncated")
        records = []
        made._on_round = lambda record, _progress: records.append(record)
        made.run()
        made._link._client.close()  # type: ignore[union-attr]
    (record,) = records
    assert record.groups_external == 1
    # 3 + 3 + 2 tokens with a claim, 2 with an absurd one.
    assert record.external_claimed_share == pytest.approx(0.8 if same_tokenizer else 0.0)
    assert (record.external_weight_mean is not None) == same_tokenizer
    assert record.external_logprob is not None
    assert record.external_logprob < -1
    assert record.steps_nonfinite == 0


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
    unread = [[chance.random() < 0.5 for _ in one] for one in ids]
    made = TrainGroup(
        prompt_ids=[1, 9],
        completions=ids,
        advantages=[1.0] * len(ids),
        external=True,
        unread=unread,
    )
    rows, _ = make_rows(policy, [made], GrpoConfig())
    found = completion_logprobs(policy, rows[0]).logprobs.split([len(one) for one in ids])
    expected = 0.0
    for start, marks in zip(found, unread, strict=True):
        kept = [
            not is_unread or value >= math.log(0.01)
            for value, is_unread in zip(start.tolist(), marks, strict=True)
        ]
        expected -= sum(kept) / (len(ids) * len(kept))
    stats = update(policy, make_optimizer(policy, lr=1e-9), [made], GrpoConfig(epochs=minibatches))
    assert stats.loss == pytest.approx(expected, abs=1e-5)
