"""Outcomes of a round by publisher, as reported to the node and shown by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from shoal_ipc.skip_reason import SKIP_REASON_TEXTS, SkipReason, skip_reason_text
from shoal_policy.choice.advantage import group_advantages
from shoal_policy.node.link import NodeLink
from tests.policy import training_cases as case
from tests.support.local_node import NodeThread, wall_ms


def ledger(node: NodeThread) -> dict[str, Any]:
    return {one.peer_id: one for one in node.node.live.learning.publishers(wall_ms())}


def test_a_round_reports_the_outcome_of_each_group(node: NodeThread, link: NodeLink) -> None:
    good = case.send(node, [case.external_group(number) for number in (1, 2)])
    flat = case.send(node, [case.external_group(3, ("same", "same 2", "same 3"))])
    rounds = case.rounds(case.policy(), case.SteeredTasks(), link, local=2, external=3)
    rounds.run_round(1, 0)
    link.drain()
    found = ledger(node)
    signal = sum(map(abs, group_advantages((0.0, 1.0, 0.0, 1.0))))
    assert found[good].groups_trained == found[good].groups_seen == 2
    assert found[good].signal == pytest.approx(2 * signal, abs=1e-3)
    assert (found[flat].groups_trained, found[flat].groups_seen) == (0, 1)
    me = node.node.identity.peer_id
    assert (found[me].is_local, found[me].groups_trained) == (True, 2)
    recent = node.node.live.learning.last_hour(wall_ms())
    assert recent.groups_external == 2
    assert recent.tokens_external > 0
    by_publisher = {r.group.publisher: r for r in node.node.recent.after(0, limit=99)}
    assert by_publisher[good].used is True
    assert (by_publisher[flat].used, by_publisher[flat].skip_reason) == (False, "no_reward")
    assert by_publisher[me].used is True


def test_own_groups_that_are_not_needed_are_only_looked_at(
    node: NodeThread, link: NodeLink
) -> None:
    rounds = case.rounds(case.policy(), case.SteeredTasks(), link, local=1)
    rounds._config = replace(rounds._config, num_questions=3)
    rounds.run_round(1, 0)
    link.drain()
    found = ledger(node)[node.node.identity.peer_id]
    assert (found.groups_seen, found.groups_trained) == (3, 1)


def test_a_non_finite_round_has_trained_on_nothing(node: NodeThread, link: NodeLink) -> None:
    publisher = case.send(node, [case.external_group(1)])
    policy = case.policy()
    with torch.no_grad():
        next(iter(policy.model.parameters())).fill_(float("nan"))
    rounds = case.rounds(policy, case.SteeredTasks(), link, local=0, external=1)
    rounds.run_round(1, 0)
    link.drain()
    assert ledger(node)[publisher].groups_trained == 0


def test_every_word_has_its_sentence() -> None:
    assert set(SKIP_REASON_TEXTS) == set(SkipReason)
    assert skip_reason_text("duplicate") == "a copy of a group that was trained on"
    assert skip_reason_text("of another version") == skip_reason_text("") == ""
