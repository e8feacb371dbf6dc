"""The trainer before its judge: when it asks, what it hands over, and that nothing waits for it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import torch

from shoal_ipc import messages as m
from shoal_policy.judge_client import JudgeClient
from shoal_policy.model.loading import Policy, PromptFormat
from shoal_policy.node.link import NodeLink
from shoal_settings.schema import Settings
from tests.policy import tiny_models
from tests.policy import training_cases as case

ADDRESS = "/ip4/192.0.2.1/tcp/4001/p2p/12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV"
QUESTION = m.JudgeChallenge(challenge_id=b"i" * 16, family="gcd", question="gcd?", tagged=False)
SCORE = m.JudgeScore(score=1.0, number=9, family="gcd")
JUDGED = Settings(judge=ADDRESS)
LATER, NEVER = (None, True), (None, False)


class Scripted(NodeLink):
    """A node whose next words about the judge are known."""

    def __init__(self, *words: Any) -> None:
        super().__init__(None)
        self.words = list(words)
        self.requested: list[Any] = []

    def call_judge(self, body: Any, reply_type: Any) -> Any:
        """Say the next word; anything but a refusal must be what was asked for."""
        self.requested.append(body)
        word = self.words.pop(0)
        if isinstance(word, tuple):
            return word
        assert isinstance(word, reply_type)
        return word, False


def judged(
    link: NodeLink, policy: Policy | None = None, *, settings: Settings = JUDGED, **more: Any
) -> JudgeClient:
    made = policy or case.policy()
    return JudgeClient(settings, made, link, case.SAMPLING, seed=3, every=2, **more)


def test_a_judges_question_of_a_game_is_not_answered() -> None:
    """A judge asks once and cannot play: what it would score is half a game."""
    node = Scripted(QUESTION)
    one = judged(node, is_game=lambda family: family == QUESTION.family)
    assert one.after_round(2, 1) is None
    assert len(node.requested) == 1


def test_it_asks_every_few_rounds_and_takes_what_comes_when_it_comes() -> None:
    node = Scripted(LATER, QUESTION, LATER, SCORE, NEVER)
    one = judged(node)
    assert [one.after_round(number, number) for number in range(1, 4)] == [None] * 3
    assert [type(body) for body in node.requested] == [m.JudgeAsk, m.JudgeAsk, m.JudgeAnswer]
    found = one.after_round(4, 4)
    answer = node.requested[-1]
    assert found == {"round": 3, "judge/score": 1.0, "judge/mean_score": 1.0, "judge/number": 9}
    assert (answer.round, answer.policy_version, answer.uses_external_groups) == (3, 3, True)
    assert answer.challenge_id == QUESTION.challenge_id
    assert one.after_round(5, 5) is None  # the fourth was busy with the score: not due again
    assert one.after_round(6, 6) is None
    assert one.after_round(7, 7) is None  # it was refused: not before the eighth
    assert len(node.requested) == 5


def test_a_silo_is_marked_and_judge_none_sends_no_request() -> None:
    node = Scripted(QUESTION, SCORE)
    silo = Settings(judge=ADDRESS, external=0)
    assert judged(node, settings=silo).after_round(2, 2) is not None
    assert not node.requested[-1].uses_external_groups
    assert judged(Scripted(), settings=Settings(judge="none")).after_round(2, 2) is None


def test_after_the_last_round_it_waits_for_what_is_under_way_and_no_longer() -> None:
    node = Scripted(LATER, LATER, QUESTION, LATER, SCORE)
    one = judged(node)
    assert one.after_round(2, 2) is None
    found = one.wait_for_score(2, 2, lambda: False)
    assert found is not None
    assert found["judge/score"] == 1.0
    refused = Scripted(LATER, NEVER)
    one = judged(refused)
    one.after_round(2, 2)
    assert one.wait_for_score(2, 2, lambda: False) is None
    assert judged(Scripted()).wait_for_score(3, 3, lambda: False) is None
    stopped = judged(Scripted(LATER))
    stopped.after_round(2, 2)
    assert stopped.wait_for_score(2, 2, lambda: True) is None


def test_a_question_that_is_too_long_for_the_model_costs_a_line() -> None:
    node = Scripted(replace(QUESTION, question="x" * 4000))
    policy = tiny_models.policy("qwen2", positions=64)
    one = judged(node, policy)
    assert one.after_round(2, 2) is None
    assert [type(body) for body in node.requested] == [m.JudgeAsk]


def test_the_question_is_sent_with_its_familys_system_turn() -> None:
    """A system turn that fills the model's positions leaves no room for an answer."""
    policy = replace(tiny_models.policy("qwen2", positions=256), prompt_format=PromptFormat.PLAIN)
    for system, is_answered in (("", True), ("x" * 4000, False)):
        node = Scripted(QUESTION, SCORE)
        judged(node, policy, system=lambda _family, text=system: text).after_round(2, 2)
        assert (type(node.requested[-1]) is m.JudgeAnswer) is is_answered


def test_it_leaves_the_random_states_of_the_training_alone() -> None:
    before = torch.get_rng_state(), random.getstate()
    answers = []
    for _ in range(2):
        node = Scripted(QUESTION, SCORE)
        judged(node).after_round(2, 2)
        answers.append(node.requested[-1].text)
    assert answers[0] == answers[1]
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
