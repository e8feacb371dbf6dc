"""One round of SAPO with a real model, a real worker's questions and a real node."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_ipc.client import NodeClient
from shoal_p2p.intake.validation import open_message, open_payload, reopen_batch
from shoal_policy.node.link import NodeLink
from shoal_policy.trainer_context import Interrupted
from shoal_tasks.families import JUDGE_SEED_MIN, TRAIN_SEED_MIN
from shoal_tasks.types import Split
from shoal_tasks.wire_tasks import coordinates_of
from shoal_wire.limits import MAX_BATCH_BYTES
from shoal_wire.types import InlineTask, RolloutBatch
from tests.policy import training_cases as case
from tests.support import factories as make
from tests.support.local_node import NodeThread, wall_ms

ALONE = NodeLink(None)


def batches_of(node: NodeThread, link: NodeLink) -> list[RolloutBatch]:
    """What the node has published, once all of it is sent."""
    assert link.flush()
    node.call(node.node.outbox.drained)
    return [
        reopen_batch(data, max_bytes=MAX_BATCH_BYTES).batch
        for _, data in node.node.gossip.published
    ]


def test_alone_a_round_trains_on_its_own_groups() -> None:
    policy = case.policy()
    before = case.weights(policy)
    outcome = case.rounds(policy, case.SteeredTasks(), ALONE, local=3).run_round(1, 0)
    record = outcome.record
    assert (record.round, record.groups_local, record.groups_external) == (1, 3, 0)
    assert record.groups_with_signal == 3
    assert record.reward == record.reward_local == 0.5
    assert record.reward_external is None
    assert record.tokens_generated == record.num_tokens > 0
    assert outcome.stats.num_steps == 1
    assert not case.same_weights(before, case.weights(policy))


def test_what_is_shared_is_valid_and_holds_no_reward(node: NodeThread, link: NodeLink) -> None:
    tasks = case.SteeredTasks()
    share = link.share

    def noting(batch: object) -> None:
        tasks.events.append("share")
        share(batch)  # type: ignore[arg-type]

    link.share = noting  # type: ignore[method-assign]
    record = case.rounds(case.policy(), tasks, link, local=3).run_round(7, 41).record
    # Groups are shared before anybody, this node included, knows their rewards (Alg. 1, step 3).
    assert tasks.events == ["share", "verify own"]
    (batch,) = batches_of(node, link)
    assert (batch.round, batch.policy.policy_version) == (7, 41)
    assert batch.sampling == case.SAMPLING
    assert len(batch.groups) == record.groups_local == 3
    context = make.context(node.node.manifest, make.fresh_identity().peer_id)
    raw = node.node.gossip.published[0][1]
    author = node.node.identity.peer_id
    envelope = open_message(raw, author=author, context=context)
    open_payload(envelope, author=author, context=context, now_ms=wall_ms())
    worker = make.real_worker()
    for group in batch.groups:
        assert len(group.completions) <= 4
        assert all(completion.logprobs is None for completion in group.completions)
        # Other nodes can regenerate the question from what is shared, though it is not in it.
        assert worker.question_digests([coordinates_of(group.task)]) == [group.task.question_digest]
        assert group.task.inline is None


def test_external_groups_are_trained_on_with_own_ones(node: NodeThread, link: NodeLink) -> None:
    four = [case.external_group(number) for number in range(4)]
    publisher = case.send(node, four, ago_ms=5_000)
    policy = case.policy()
    record = (
        case.rounds(policy, case.SteeredTasks(), link, local=1, external=2).run_round(1, 0).record
    )
    assert (record.groups_local, record.groups_external, record.external_sampled) == (1, 2, 4)
    assert record.reward_external == 0.5
    link.drain()
    assert len(link.leases().held) == 2
    assert node.node.buffer.ready() == 2
    verified = [r for r in node.node.recent.after(0, limit=99) if r.group.publisher == publisher]
    assert [recent.rewards for recent in verified] == [(0.0, 1.0, 0.0, 1.0)] * 4


def test_others_text_alone_changes_the_weights(node: NodeThread, link: NodeLink) -> None:
    case.send(node, [case.external_group(1)])
    policy = case.policy()
    before = case.weights(policy)
    rounds = case.rounds(policy, case.SteeredTasks(), link, local=0, external=1)
    record = rounds.run_round(1, 0).record
    assert (record.groups_local, record.groups_external) == (0, 1)
    assert record.reward_local is None
    assert record.completion_clipped_ratio is None
    assert not case.same_weights(before, case.weights(policy))


def test_groups_without_signal_are_used_up_and_not_trained_on(
    node: NodeThread, link: NodeLink
) -> None:
    flat = [case.external_group(n, ("same", "same 2", "same 3")) for n in range(3)]
    case.send(node, flat)
    policy = case.policy()
    before = case.weights(policy)
    rounds = case.rounds(policy, case.SteeredTasks(), link, local=0, external=2)
    outcome = rounds.run_round(1, 0)
    assert (outcome.record.groups_external, outcome.record.external_sampled) == (0, 3)
    assert outcome.stats.num_steps == 0
    assert case.same_weights(before, case.weights(policy))
    link.drain()
    assert node.node.buffer.stats(0.0).consumed_total == 3
    assert link.leases().held == ()
    assert rounds.run_round(2, 0).record.external_sampled == 0


def test_questions_kept_for_evaluation_are_used_up_and_not_trained_on(
    node: NodeThread, link: NodeLink
) -> None:
    """As if intake had let them in: right and wrong answers, which would teach them by heart."""
    seeds = [0, JUDGE_SEED_MIN - 1, JUDGE_SEED_MIN, TRAIN_SEED_MIN - 1]
    reserved = [make.group(of=make.task(number, seed=s)) for number, s in enumerate(seeds)]
    case.send(node, [*reserved, case.external_group(5)])
    outcome = case.rounds(
        case.policy(), case.SteeredTasks(), link, local=0, external=5, oversample=2
    ).run_round(1, 0)
    assert (outcome.record.external_sampled, outcome.record.external_held_out) == (5, 4)
    assert outcome.record.groups_external == 1
    link.drain()
    assert node.node.buffer.ready() == 0


def test_nor_are_held_out_questions_that_a_training_seed_gives_again(
    node: NodeThread, link: NodeLink
) -> None:
    """Also in words of one's own: an inline task is identified by its text."""
    worker = make.real_worker()
    numbers = range(200)
    parts = worker.parts([make.coordinates_at(number) for number in numbers])
    again = [number for number in numbers if parts[number] is Split.HELD_OUT][:3]
    tasks = case.SteeredTasks()
    own_words = InlineTask(question=tasks.held_out(1)[0].text, answer="1")
    inline = make.group(of=make.task(question=own_words.question, inline=own_words))
    fine = next(number for number in numbers if parts[number] is Split.TRAINING)
    case.send(node, [*map(case.external_group, again), inline, case.external_group(fine)])
    outcome = case.rounds(case.policy(), tasks, link, local=0, external=5, oversample=2).run_round(
        1, 0
    )
    assert (outcome.record.external_sampled, outcome.record.external_held_out) == (5, 4)
    assert outcome.record.groups_external == 1


def test_it_looks_on_for_signal_but_not_for_ever(node: NodeThread, link: NodeLink) -> None:
    flat = [case.external_group(n, ("same", "same 2")) for n in range(12)]
    case.send(node, flat)
    rounds = case.rounds(
        case.policy(), case.SteeredTasks(), link, local=0, external=2, oversample=4
    )
    record = rounds.run_round(1, 0).record
    link.drain()
    assert record.external_sampled == 8
    assert node.node.buffer.ready() == 4


def test_few_places_look_at_as_much_as_many(node: NodeThread, link: NodeLink) -> None:
    """What may be looked at follows from all places of a round: others offer what they offer."""
    case.send(node, [case.external_group(n, ("same", "same 2")) for n in range(12)])
    rounds = case.rounds(
        case.policy(), case.SteeredTasks(), link, local=3, external=1, oversample=2
    )
    record = rounds.run_round(1, 0).record
    assert (record.external_sampled, record.local_groups) == (8, 3)


@pytest.mark.parametrize("at", range(5))
def test_a_stop_before_the_update_changes_nothing(
    node: NodeThread, at: int, link: NodeLink
) -> None:
    case.send(node, [case.external_group(number) for number in range(3)])
    policy = case.policy()
    before = case.weights(policy)
    requested = 0

    def should_stop() -> bool:
        nonlocal requested
        requested += 1
        return requested > at

    rounds = case.rounds(
        policy, case.SteeredTasks(), link, local=1, external=2, should_stop=should_stop
    )
    with pytest.raises(Interrupted):
        rounds.run_round(1, 0)
    assert case.same_weights(before, case.weights(policy))
    link.drain()
    assert node.node.buffer.ready() == 3
    assert link.leases() == type(link.leases())()
    assert link.consumed_for_checkpoint() == ()


def test_a_round_repeated_after_a_crash_shares_nothing_twice(node: NodeThread) -> None:
    for seed, shared in ((1, 1), (1, 1), (9, 2)):
        with case.connected(node) as link:
            case.rounds(case.policy(), case.SteeredTasks(), link, seed=seed).run_round(1, 0)
            assert len(batches_of(node, link)) == shared


def test_with_no_node_there_a_round_goes_on_with_what_it_has(tmp_path: Path) -> None:
    link = NodeLink(NodeClient(tmp_path / "node.sock"))
    record = (
        case.rounds(case.policy(), case.SteeredTasks(), link, external=2).run_round(1, 0).record
    )
    assert (record.groups_local, record.groups_external) == (2, 0)
    with NodeThread(tmp_path) as node:
        assert link._client is not None
        assert link._client.wait(20.0)
        assert link.flush()
        assert [batch.round for batch in batches_of(node, link)] == [1]
