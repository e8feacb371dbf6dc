"""A policy, a server that follows it, and how far the two are apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from shoal_policy import __main__ as command
from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.requests import InferenceServer
from shoal_policy.generation.served_weights import AdapterPusher, FullWeightsPusher, Pusher
from shoal_policy.generation.transcript import PlayGames
from shoal_policy.generation.vllm_generator import VllmGenerator
from shoal_policy.model.loading import Policy
from shoal_policy.model.lora import add_adapter
from shoal_policy.model.prompting import decode_completion, observation_ids, prompt_ids
from shoal_policy.rollouts import Origin, OwnGroup, Question
from shoal_tasks.turns import split_messages
from shoal_tasks.types import PlayRequest
from shoal_wire.types import FinishReason
from tests.policy import tiny_models
from tests.policy.training_cases import metrics
from tests.policy.update.update_cases import plain_logprobs
from tests.policy.vllm_server import VllmServer
from tests.support import factories as make

SAMPLING = tiny_models.sampling(5)


def question(number: int = 1, *, tagged: bool = False) -> Question:
    text = f"what is {number} + {number}?"
    return Question(task=make.task(number, question=text), text=text, tagged=tagged)


def base() -> Policy:
    return tiny_models.policy("llama")


def adapted(seed: int = 5) -> Policy:
    pytest.importorskip("peft")
    policy = add_adapter(base(), 2, seed=3)
    stir(policy, seed)
    return policy


def stir(policy: Policy, seed: int) -> None:
    """Change the weights as an update does, in large."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in policy.model.parameters():
            if weight.requires_grad:
                weight += 0.3 * torch.randn_like(weight)


def follower(
    policy: Policy, server: VllmServer, folder: Path, *, seconds: float = 20.0, at_once: int = 4
) -> VllmGenerator:
    return follower_of(policy, server.base_url, folder, seconds=seconds, at_once=at_once)


def follower_of(
    policy: Policy, base_url: str, folder: Path, *, seconds: float = 20.0, at_once: int = 4
) -> VllmGenerator:
    """The same of a server in another process."""
    http = InferenceServer(
        base_url,
        api_key=None,
        request_seconds=seconds,
        connections=at_once,
        should_stop=lambda: False,
        first_pause_seconds=0.001,
    )
    pusher: Pusher = FullWeightsPusher(http, folder, "whole")
    if policy.adapter is not None:
        pusher = AdapterPusher(http, folder)
    return VllmGenerator(http, pusher)


def request_of(policy: Policy, questions: Sequence[Question], **changes: Any) -> GenerationRequest:
    """Return a round's request to a generator."""
    made = GenerationRequest(
        questions=list(questions),
        policy=policy,
        policy_version=0,
        num_completions=3,
        sampling=SAMPLING,
        seed=5,
        play=lambda _requests: [],
    )
    return replace(made, **changes)


def ask(one: VllmGenerator, policy: Policy, version: int, count: int = 2) -> list[OwnGroup]:
    """The answers to `count` questions, of a version of the weights."""
    requested = [question(number) for number in range(1, count + 1)]
    return one.generate(request_of(policy, requested, policy_version=version, seed=version))


def messages_of(
    policy: Policy, games: Sequence[OwnGroup], play: PlayGames
) -> list[tuple[list[int], list[int]]]:
    """The ids of all messages of games, each with those that it stands behind.

    Between two messages is what the environment answers, and a game ends when that says so.
    """
    found = []
    for group in games:
        prompt = prompt_ids(policy, group.question)
        for answer in group.answers:
            messages = split_messages(answer.text)
            (played,) = play([PlayRequest(task=group.question.coordinates, messages=messages)])
            ids, positions, at = list(answer.ids), set(answer.completion_positions or ()), 0
            for number, message in enumerate(messages):
                end = at
                while end in positions:
                    end += 1
                assert decode_completion(policy, ids[at:end]) == message
                found.append(([*prompt, *ids[:at]], ids[at:end]))
                if number < len(messages) - 1:
                    between = observation_ids(policy, played.observations[number])
                    assert ids[end : end + len(between)] == between
                    end += len(between)
                at = end
            assert at == len(ids) and positions <= set(range(len(ids)))
            is_over = played.done and len(played.observations) == len(messages)
            is_cut = answer.ids[-1] not in policy.eos_ids
            assert (answer.finish_reason is FinishReason.STOP) == (is_over and not is_cut)
    return found


def off(policy: Policy, groups: list[OwnGroup]) -> float:
    """Return the distance of the server's log-probabilities from the policy's own."""
    worst = 0.0
    for group in groups:
        prompt = prompt_ids(policy, group.question)
        for answer in group.answers:
            with torch.inference_mode():
                own = plain_logprobs(policy.model, prompt, answer.ids)
            places = list(
                range(len(answer.ids))
                if answer.completion_positions is None
                else answer.completion_positions
            )
            reported = torch.tensor(answer.logprobs)
            worst = max(worst, float((own[places] - reported).abs().max()))
    return worst


def stamps(groups: list[OwnGroup]) -> set[int]:
    assert {group.origin for group in groups} == {Origin.FOLLOWER}
    return {group.author.policy_version for group in groups if group.author is not None}


def served_flags(generator: str, base_url: str, *more: str) -> list[str]:
    """A trainer's flags for two small rounds of a server's answers."""
    return [
        *(f"--generator={generator}", f"--base-url={base_url}", "--data-dir=d", "--local=2"),
        *("--external=0", "--completions=3", "--max-new-tokens=4", "--rounds=2", "--seed=3"),
        *more,
    ]


def trained(flags: Sequence[str]) -> list[dict[str, Any]]:
    """Train; the rounds that were written down, in each round generated something."""
    assert command.main([*flags, "--device=cpu", "--log=none"]) == 0
    rounds = metrics(Path("d"), "round")
    assert [row["tokens_generated"] > 0 for row in rounds] == [True, True]
    return rounds
