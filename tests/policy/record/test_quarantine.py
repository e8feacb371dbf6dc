"""Numbers that are not finite: who is named, what is left out, and the way back."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from p2p.buffer.types import Pool
from policy.generation.local import NonFiniteError
from policy.model.loading import Policy
from policy.node.link import NodeLink
from policy.record.progress import Progress, RoundRecord
from policy.record.quarantine import QUARANTINE_FILE, Quarantine, suspect
from policy.rollback import GOOD_ROUNDS, MOST_ROLLBACKS, STEPS_IN_A_ROW, DivergedError, Watch
from policy.sapo import Outcome
from policy.trainer import Trainer
from policy.update.grpo import Blame, GrpoConfig, TrainGroup, make_optimizer, update
from tests.policy import tiny_models
from tests.policy import training_cases as case
from tests.support import factories as make
from tests.support.local_node import NodeThread

POISON = "z"
"""Text on which the model's numbers overflow."""


def poison_token(policy: Policy) -> int:
    """Make one token overflow; every weight stays finite, and text without it is sound.

    Only that token's embedding has a first component, and one cell of the first layer blows it up.
    """
    token = int(policy.tokenizer.convert_tokens_to_ids(POISON))
    model, layer = policy.model, policy.model.model.layers[0]
    with torch.no_grad():
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
        embeddings = model.get_input_embeddings().weight
        embeddings[:, 0] = 0.0
        embeddings[token, 0] = 1.0
        layer.self_attn.o_proj.weight[0] = 0.0
        for part in (layer.mlp.gate_proj, layer.mlp.up_proj):
            part.weight[0] = 0.0
            part.weight[0, 0] = 3e38
    return token


def group(*tokens: int) -> TrainGroup:
    return TrainGroup(
        prompt_ids=[1, 4],
        completions=[[token, 9, 2] for token in tokens],
        advantages=[1.0] + [-1.0] * (len(tokens) - 1),
        external=True,
    )


def test_the_group_that_overflows_is_named_and_no_other() -> None:
    policy = tiny_models.policy()
    token = poison_token(policy)
    before = case.weights(policy)
    groups = [group(7, 8), group(7, token), group(10, 11)]
    stats = update(policy, make_optimizer(policy, lr=1.0), groups, GrpoConfig(epochs=3))
    (step,) = stats.nonfinite
    assert (step.blame, step.groups) == (Blame.GROUPS, (1,))
    assert (stats.num_steps, stats.skipped_nonfinite) == (0, 1)
    assert case.same_weights(before, case.weights(policy))
    for value in (stats.loss, stats.entropy, stats.ratio_mean, stats.ratio_max, stats.kl):
        assert math.isfinite(value)
    assert stats.external.logprob_mean is None or math.isfinite(stats.external.logprob_mean)


def test_other_minibatches_are_trained_on() -> None:
    policy = tiny_models.policy()
    token = poison_token(policy)
    before = case.weights(policy)
    # The output alone learns: a first component in other embeddings would overflow too.
    head = policy.model.lm_head.weight
    rest = [weight for weight in policy.model.parameters() if weight is not head]
    optimizer = torch.optim.SGD([{"params": [head], "lr": 1e-3}, {"params": rest, "lr": 0.0}])
    groups, config = [group(7, 8), group(7, token)], GrpoConfig(minibatches=2, epochs=2)
    stats = update(policy, optimizer, groups, config)
    assert (stats.num_steps, stats.skipped_nonfinite) == (2, 1)
    assert not case.same_weights(before, case.weights(policy))
    assert all(bool(value.isfinite().all()) for value in case.weights(policy).values())


def test_poisoned_weights_are_nobody_s_fault() -> None:
    policy = tiny_models.policy()
    with torch.no_grad():
        policy.model.model.layers[0].mlp.up_proj.weight[0, 0] = math.nan
    stats = update(policy, make_optimizer(policy, lr=1.0), [group(7, 8)], GrpoConfig())
    (step,) = stats.nonfinite
    assert (step.blame, step.groups) == (Blame.WEIGHTS, (0,))


# The file


def one(number: int) -> dict[str, Any]:
    return {
        "round_number": number,
        "blame": "groups",
        "suspects": [suspect(make.task(number), [[1, 2], [3]], None)],
    }


def test_the_file_keeps_the_newest_entries_only(tmp_path: Path) -> None:
    made = Quarantine(tmp_path / QUARANTINE_FILE, max_entries=3)
    for number in range(5):
        made.add(**one(number))
        assert len(made.lines()) == min(number + 1, 3)
    entries = [json.loads(line) for line in made.lines()]
    assert [entry["round"] for entry in entries] == [2, 3, 4]
    assert entries[0]["groups"][0]["tokens"] == [2, 1]
    assert entries[0]["publishers"] == ["this node"]
    assert [path.name for path in tmp_path.iterdir()] == [QUARANTINE_FILE]


def test_a_file_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Quarantine(tmp_path / "missing" / QUARANTINE_FILE).add(**one(1))
    assert "quarantine not written" in caplog.text


# In a trainer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return case.model_folder(tmp_path_factory.mktemp("model"))


def trainer(data_dir: Path, model: str, *, link: NodeLink | None = None, **changes: Any) -> Trainer:
    return Trainer(
        case.settings(data_dir, model, **changes),
        case.surroundings(link),
        seed=1,
    )


def finite(made: Trainer) -> bool:
    return all(bool(value.isfinite().all()) for value in case.weights(made.course.policy).values())


def test_a_poisonous_group_is_set_aside_with_its_publisher(
    tmp_path: Path, model: str, caplog: pytest.LogCaptureFixture
) -> None:
    with NodeThread(tmp_path) as node:
        texts = (POISON, "1", "2", "3")
        publisher = case.send(node, [case.external_group(1, texts)])
        link = NodeLink(node.node.client())
        made = trainer(tmp_path, model, link=link, local=0, external=1, rounds=2)
        poison_token(made.course.policy)
        before = case.weights(made.course.policy)
        held: list[object] = []
        made._on_round = lambda _record, _progress: held.extend(link.leases().held)
        made.run()
        # Nothing was learnt from it, so nothing of it could be given back later.
        assert held == []
        # Done with: it is not drawn a second time.
        assert made.course.progress.external_drawn == 1
        assert node.node.buffer.stats(0.0).consumed_total == 1
        status = node.node.link.status
        link._client.close()  # type: ignore[union-attr]
    assert case.same_weights(before, case.weights(made.course.policy))
    assert (status["batches_quarantined"], status["rollbacks"]) == (1, 0)
    (entry,) = map(json.loads, (tmp_path / QUARANTINE_FILE).read_text().splitlines())
    assert (entry["round"], entry["blame"]) == (1, "groups")
    assert entry["publishers"] == [publisher]
    assert entry["groups"][0]["texts"] == list(texts)
    assert len(bytes.fromhex(entry["groups"][0]["group_id"])) == 16
    assert publisher in caplog.text


def spoil_optimizer(made: Trainer) -> None:
    """The next step's sums overflow, though its gradient is finite."""
    for state in made.course.optimizer.state.values():
        state["exp_avg"].fill_(math.inf)


def test_weights_that_a_step_spoilt_are_taken_back(tmp_path: Path, model: str) -> None:
    with NodeThread(tmp_path) as node:
        case.send(node, [case.external_group(number) for number in range(8)])
        link = NodeLink(node.node.client())
        made = trainer(tmp_path, model, link=link, local=1, external=1, rounds=5)
        ready: list[int] = []
        good: dict[str, torch.Tensor] = {}

        def on_round(record: RoundRecord, _progress: Progress) -> None:
            ready.append(node.node.buffer.ready(Pool.EXTERNAL))
            if record.round == 2:
                made.checkpoint()
                good.update(case.weights(made.course.policy))
                spoil_optimizer(made)
            if record.round == 3:
                assert not finite(made)
                made.checkpoint()
                made._checkpoint_round = 2

        made._on_round = on_round
        restored: list[bool] = []
        undo = link.release_held

        def noting() -> None:
            restored.append(case.same_weights(good, case.weights(made.course.policy)))
            undo()

        link.release_held = noting  # type: ignore[method-assign]
        made.run()
        assert restored == [True]
        assert finite(made)
        assert (made.course.round, made.course.policy_version) == (5, 4)
        assert made.course.progress.rollbacks == 1
        # What round 3 had learnt from was given back before round 4 drew.
        assert ready == [7, 6, 5, 5, 4]
        link._client.close()  # type: ignore[union-attr]
    again = trainer(tmp_path, model)
    assert (again.course.round, again.course.policy_version) == (5, 4)
    assert finite(again)
    assert again.course.progress.rollbacks == 1


class Overflow:
    """Makes gradients infinite for a number of steps, as a too narrow number format does."""

    def __init__(self, policy: Policy, steps: float) -> None:
        self.left = steps
        policy.model.model.norm.weight.register_hook(self)

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * math.inf if self.left > 0 else gradient


def count_down(made: Trainer, overflow: Overflow) -> list[int]:
    rollbacks: list[int] = []

    def on_round(_record: RoundRecord, progress: Progress) -> None:
        overflow.left -= 1
        rollbacks.append(progress.rollbacks)

    made._on_round = on_round
    return rollbacks


def test_three_bad_steps_in_a_row_go_back_and_two_do_not(tmp_path: Path, model: str) -> None:
    for steps, expected in ((STEPS_IN_A_ROW - 1, 0), (STEPS_IN_A_ROW, 1)):
        folder = tmp_path / str(steps)
        folder.mkdir()
        made = trainer(folder, model, rounds=steps + 2)
        count_down(made, Overflow(made.course.policy, steps))
        made.run()
        assert made.course.progress.rollbacks == expected
        assert made.course.progress.batches_quarantined == steps
        assert made.course.policy_version == 2
        entries = [json.loads(x) for x in (folder / QUARANTINE_FILE).read_text().splitlines()]
        assert [entry["publishers"] for entry in entries] == [["this node"]] * steps


def test_when_going_back_does_not_help_it_ends_with_a_word(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, rounds=0)
    rollbacks = count_down(made, Overflow(made.course.policy, math.inf))
    with pytest.raises(DivergedError, match="--learning-rate"):
        made.run()
    assert max(rollbacks) == MOST_ROLLBACKS
    assert len(rollbacks) == STEPS_IN_A_ROW * (MOST_ROLLBACKS + 1)


def test_a_good_step_that_spoils_the_weights_each_time_is_no_good_stretch(
    tmp_path: Path, model: str
) -> None:
    made = trainer(tmp_path, model, rounds=0)
    finish = made._finish_round

    def spoil(outcome: Outcome) -> None:
        finish(outcome)
        assert outcome.record.round < 3 * MOST_ROLLBACKS, "it would go on for ever"
        with torch.no_grad():
            made.course.policy.model.model.norm.weight.fill_(math.nan)

    made._finish_round = spoil  # type: ignore[method-assign]
    with pytest.raises(DivergedError):
        made.run()
    assert made.course.progress.rollbacks == MOST_ROLLBACKS


def test_a_good_stretch_makes_up_for_rollbacks() -> None:
    policy, watch = tiny_models.policy(), Watch()
    none = update(policy, make_optimizer(policy, lr=1e-3), [], GrpoConfig(max_completion_tokens=8))
    good, bad = replace(none, num_steps=1), replace(none, skipped_nonfinite=1)
    for _ in range(2 * MOST_ROLLBACKS):
        watch.rolled_back()
        assert not any(watch.due(good) for _ in range(GOOD_ROUNDS))
    watch.rolled_back()
    assert [watch.due(bad) for _ in range(STEPS_IN_A_ROW)] == [False, False, True]


def test_a_model_that_was_never_finite_is_said_at_once(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model)
    with torch.no_grad():
        made.course.policy.model.model.norm.weight.fill_(math.nan)
    with pytest.raises(NonFiniteError):
        made.run()
    assert made.course.progress.rollbacks == 0
