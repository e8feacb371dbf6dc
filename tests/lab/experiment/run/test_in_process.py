"""Swarms in memory: real policies, signatures, verdicts, buffers and scores."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import assume, given
from hypothesis import strategies as st

from shoal_ipc import messages as m
from shoal_lab.experiment.plan import Job, NodeSpec, filtered_arm, uniform_arm
from shoal_lab.experiment.report.results import make_run
from shoal_lab.experiment.run.behaviour import BEHAVIOURS
from shoal_lab.experiment.run.in_process import Workers, rounded, workers
from shoal_lab.experiment.run.memory_swarm import MemoryLink, MemorySwarm
from shoal_lab.experiment.run.tasks import RequestCost
from shoal_lab.simulation.clock import deterministic
from shoal_policy.rollouts import Question
from shoal_policy.update.training_set import build_train_group
from shoal_settings.schema import Settings
from shoal_tasks.families import GAMES_1, PRESETS
from shoal_tasks.swarm import starting_families
from shoal_tasks.types import ScoreRequest, Split
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.digests import question_digest
from shoal_wire.manifest import make_manifest
from shoal_wire.rules import is_held_out
from shoal_wire.types import FinishReason
from tests.lab.experiment import jobs
from tests.lab.experiment.jobs import arm_of, lines_of, rounds_of
from tests.policy import tiny_models

QUESTIONS = [name for name, specs in PRESETS.items() if not specs[0].is_environment]
"""The presets whose questions are held out by their texts."""
job = partial(jobs.job, eval_every=2, eval_per_family=1)


def played(job: Job, shared: Workers) -> list[dict[str, Any]]:
    """All lines, without the fields that depend on a clock."""
    return [jobs.without_clocks(rounded(line)) for line in lines_of(job, shared)]


@pytest.mark.slow
def test_it_is_deterministic_from_its_seed(shared: Workers) -> None:
    arm = uniform_arm("2/2", 2, local=2, external=2)
    one = played(job(arm), shared)
    with workers() as others:
        assert played(job(arm), others) == one
    other_seed = played(job(arm, seed=2), shared)
    assert [line["loss"] for line in other_seed if "loss" in line] != [
        line["loss"] for line in one if "loss" in line
    ]


def test_members_train_on_what_others_shared_and_silos_on_nothing(shared: Workers) -> None:
    sharing = rounds_of(job(uniform_arm("2/2", 3, local=2, external=2)), shared)
    used = [line["groups_external"] for line in sharing]
    assert sum(used) > 0
    assert max(used) == 2
    silo = rounds_of(job(uniform_arm("2/0", 2, local=2, external=0), rounds=1), shared)
    assert [line["external_sampled"] for line in silo] == [0, 0]


def test_a_delayed_group_arrives_that_many_rounds_later(shared: Workers) -> None:
    node = NodeSpec(settings={"local": 2, "external": 2}, delay=2)
    lines = rounds_of(job(arm_of(node, node), rounds=7), shared)
    drawn = [(one["round"], one["external_sampled"]) for one in lines]
    assert all(count == 0 for number, count in drawn if number <= 2)
    assert any(count > 0 for number, count in drawn if number == 3)


def test_the_filtered_silo_asks_more_and_trains_on_signal_only(shared: Workers) -> None:
    lines = rounds_of(job(filtered_arm(1), rounds=2), shared)
    other = rounds_of(job(uniform_arm("8/0", 1, local=8, external=0), rounds=2), shared)
    for mine, theirs in zip(lines, other, strict=True):
        assert mine["groups_local"] == mine["groups_with_signal"] <= 8
        assert theirs["groups_local"] == 8
        assert mine["tokens_generated"] > 1.5 * theirs["tokens_generated"]


def test_one_draw_of_questions_pairs_the_arms(shared: Workers) -> None:
    """The same node of the same seed has the same questions in every arm, up to their number."""
    arms = [uniform_arm("2/0", 1, local=2, external=0), uniform_arm("2/2", 2, local=2, external=2)]
    firsts = [
        next(line for line in played(job(arm, rounds=1), shared) if line.get("node") == 0)
        for arm in arms
    ]
    assert firsts[0] == firsts[1]


def test_a_run_has_one_value_a_round_and_leaves_the_dishonest_out(shared: Workers) -> None:
    arm = uniform_arm("2/2", 2, local=2, external=2)
    mixed = replace(arm, nodes=(arm.nodes[0], NodeSpec(settings={}, behaviour="odd")))
    lines = lines_of(job(arm, rounds=2), shared)
    run = make_run(job(arm, rounds=2), lines)
    assert run.rounds == len(run.cpu) == len(run.fresh[0]) == 2
    assert (run.evaluated, len(run.fresh)) == ((0, 2), 2)
    assert run.tokens[1] > run.tokens[0] > 0
    assert len(make_run(job(mixed, rounds=2), lines).fresh) == 1


@pytest.mark.slow
def test_an_untrained_models_answers_are_reused_for_equal_prompts(tmp_path: Path) -> None:
    tokenizer = tiny_models.tokenizer(template="{{ messages[0]['content'] }}")
    tiny_models.save(tmp_path, tiny_models.model("qwen2", positions=1024), tokenizer)
    nodes = [
        NodeSpec(settings={"local": 1, "external": 0, "prompt": prompt})
        for prompt in ("chat", "plain", "chat")
    ]
    base = {"model": str(tmp_path), "completions": 2, "max_new_tokens": 2, "shots": "0"}
    with workers() as made:
        lines_of(job(arm_of(*nodes), rounds=1, **base), made)
        assert len(made.first) == 2


def _share_batch(shared: Workers) -> m.Publish:
    """A batch that a node of such a swarm has shared."""
    caught: list[m.Publish] = []

    def catching(batch: m.Publish, _rng: random.Random) -> m.Publish:
        caught.append(batch)
        return batch

    node = NodeSpec(settings={"local": 2, "external": 2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BEHAVIOURS, "catching", catching)
        lines_of(job(arm_of(replace(node, behaviour="catching"), node), rounds=1), shared)
    return caught[0]


def test_what_is_not_valid_reaches_no_buffer(shared: Workers, tmp_path: Path) -> None:
    published = _share_batch(shared)
    task = published.groups[0].task
    lie = replace(published.groups[0], task=replace(task, seed=task.seed ^ 1))
    settings = Settings(model="tiny")
    manifest = make_manifest("experiment", starting_families("easy"))
    clock = trio.testing.MockClock()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            swarm = MemorySwarm(folder=tmp_path, seed=1, clock=clock)
            both = [settings.model_copy(update={"seed": seed}) for seed in (1, 2)]
            author, receiver = await swarm.open(
                nursery, manifest, shared.of(manifest, settings), both
            )
            verdicts = receiver.node.peer.guard.verdicts

            async def share(body: m.Publish) -> tuple[int, int]:
                author.tell(body)
                await author.end_turn()
                await swarm.end_turn(1)
                drawn = MemoryLink(receiver).sample(9)
                return len(drawn), verdicts.peer(author.peer_id).get("question_mismatch", 0)

            assert await share(replace(published, client_key=b"lie", groups=(lie,))) == (0, 1)
            assert await share(published) == (len(published.groups), 1)
            assert verdicts.peer(author.peer_id)["valid"] == 1
            assert MemoryLink(author).sample(9) == (), "a node never samples its own groups"
            nursery.cancel_scope.cancel()

    with deterministic(1):
        trio.run(main, clock=clock)


@pytest.fixture
def trained_on(monkeypatch: pytest.MonkeyPatch) -> list[Question]:
    """A list of the questions of all groups that any node trains on."""
    found: list[Question] = []

    def noted(policy: Any, group: Any, *rest: Any) -> Any:
        found.append(group.question)
        return build_train_group(policy, group, *rest)

    monkeypatch.setattr("shoal_policy.sapo.build_train_group", noted)
    return found


@pytest.mark.slow
def test_games_are_played_alone_and_together_and_none_that_is_held_out_is_trained_on(
    shared: Workers, trained_on: list[Question]
) -> None:
    base = {"model": "tiny-games", "tasks": "games-1", "eval_per_family": 80}
    for arm in (uniform_arm("4/0", 2, local=4), uniform_arm("4/4", 2, local=4, external=4)):
        lines = lines_of(job(arm, seed=5, **base), shared)
        # More than there are different beginnings: a game is known by its seed.
        sizes = {line["held_out/num_items"] for line in lines if "held_out/num_items" in line}
        assert sizes == {80}
    with SyncTaskWorker(GAMES_1) as worker:
        assert set(worker.parts([one.coordinates for one in trained_on])) == {Split.TRAINING}


@pytest.mark.parametrize(
    ("preset", "rounds"),
    [("easy", 3), *(pytest.param(name, 25, marks=pytest.mark.slow) for name in QUESTIONS)],
)
def test_no_question_of_an_evaluation_is_trained_on_in_a_whole_run(
    preset: str, rounds: int, shared: Workers, trained_on: list[Question]
) -> None:
    arm = uniform_arm("4/4", 3, local=4, external=4)
    lines_of(jobs.job(arm, seed=5, rounds=rounds, tasks=preset), shared)
    texts = {question.text for question in trained_on}
    assert len(texts) > 3 * rounds
    with SyncTaskWorker(PRESETS[preset]) as worker:
        held_out = {text for _, text in worker.held_out(20)}
    assert not texts & held_out
    # And no question that a judge could use.
    assert not any(is_held_out(question_digest(text)) for text in texts)


def test_each_round_says_its_cpu_seconds_and_what_is_remembered_is_charged(shared: Workers) -> None:
    one = job(uniform_arm("2/2", 2, local=2, external=2))
    lines = rounds_of(one, shared)
    lines += rounds_of(one, shared)  # all of its questions and scores are cached
    spent = [line["cpu_seconds"] for line in lines]
    assert len(spent) == 2 * 3 * 2
    assert min(spent) > 0


def test_a_remembered_request_costs_what_a_computed_one_does() -> None:
    cost = RequestCost()
    cost.add(4, 4, 1.0)
    assert cost.charged == 1.0
    cost.add(2, 0, 0.0)  # all exchanges were alike: a quarter each
    assert cost.charged == 1.5
    cost.add(3, 1, 0.4)  # 0.2 for the exchange and 0.2 for each thing: two more
    assert cost.charged == pytest.approx(1.5 + 0.4 + 2 * 0.2)
    cost.add(5, 0, 0.0)
    assert cost.charged == pytest.approx(2.3 + 0.2 + 5 * 0.2)


def test_a_cached_answer_is_charged_as_the_first_request_was() -> None:
    cost = RequestCost()
    cost.add(2, 2, 1.0, here=0.5)  # the half second is on this process's own clock
    assert cost.charged == 1.0
    cost.add(2, 0, 0.0)
    assert cost.charged == 2.5


@given(
    calls=st.lists(st.integers(1, 40), min_size=2, max_size=30),
    exchange=st.floats(0.0, 10.0),
    each=st.floats(0.001, 1.0),
    num_requested=st.integers(1, 100),
)
def test_what_is_charged_is_what_an_own_worker_would_have_taken(
    calls: list[int], exchange: float, each: float, num_requested: int
) -> None:
    assume(len(set(calls)) > 1)
    cost = RequestCost()
    for num in calls:
        cost.add(num, num, exchange + each * num)
    before = cost.charged
    cost.add(num_requested, 0, 0.0)
    assert cost.charged - before == pytest.approx(exchange + each * num_requested, rel=1e-6)


def test_a_node_is_charged_for_the_requests_of_its_own_worker(shared: Workers) -> None:
    one = job(uniform_arm("2/0", 1, local=2, external=0))
    settings = one.node_settings(0)
    manifest = make_manifest(
        "experiment", starting_families(settings.task_preset, settings.task_files)
    )
    worker = shared.of(manifest, settings)
    before = worker.cpu_seconds
    ((task, _),) = worker.draw(random.Random(9), 1)
    drawn = worker.cpu_seconds
    assert drawn > before
    request = ScoreRequest(task=task, text="no", finish_reason=FinishReason.STOP)
    worker.score([request])
    once = worker.cpu_seconds
    worker.score([request])
    again = worker.cpu_seconds
    worker.score([request] * 9)  # a worker scores equal answers once
    assert drawn < once < again
    assert worker.cpu_seconds - again == pytest.approx(again - once)
