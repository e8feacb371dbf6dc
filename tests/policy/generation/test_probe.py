"""A server that took weights and answers with others is asked nothing, whatever it did instead."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from shoal_policy.generation.probe import MAX_DIFFERENCE, logprob_difference, max_difference
from shoal_policy.model.loading import Policy, load_policy
from shoal_policy.model.lora import add_adapter
from shoal_policy.rollouts import Answer, OwnGroup
from tests.policy import tiny_models
from tests.policy.generation.vllm_cases import ask, follower, off, stamps, stir
from tests.policy.tiny_models import refused
from tests.policy.vllm_server import VllmServer

NUM_CASES, FAST_CASES = 40, 12
"""Servers that do not follow, each of another model, way of giving weights, fault and seed."""

Taken = Callable[[Policy | None, Policy], Policy]
Change = Callable[[dict[str, Any]], Any]


def with_weights(given: Policy, kept: dict[str, torch.Tensor]) -> Policy:
    """The policy that was given, with some tensors as they were, no longer tied to others."""
    model = copy.deepcopy(given.model)
    with torch.no_grad():
        for name, weight in kept.items():
            module, _, leaf = name.rpartition(".")
            model.get_submodule(module)._parameters[leaf] = torch.nn.Parameter(weight.clone())
    return dataclasses.replace(given, model=model)


def changed_names(had: Policy, given: Policy) -> list[str]:
    before = had.model.state_dict()
    return [
        name
        for name, weight in given.model.state_dict().items()
        if weight.ndim > 1 and not torch.equal(weight, before[name])
    ]


def ignores(_rng: random.Random) -> Taken:
    return lambda had, given: had or given


def takes_half(rng: random.Random) -> Taken:
    def taken(had: Policy | None, given: Policy) -> Policy:
        if had is None:
            return given
        names, before = changed_names(had, given), had.model.state_dict()
        kept = rng.sample(names, max(1, len(names) // 2))
        return with_weights(given, {name: before[name] for name in kept})

    return taken


def keeps_the_head(_rng: random.Random) -> Taken:
    def taken(had: Policy | None, given: Policy) -> Policy:
        if had is None:
            return given
        return with_weights(given, {"lm_head.weight": had.model.state_dict()["lm_head.weight"]})

    return taken


def is_one_behind(_rng: random.Random) -> Taken:
    queue: list[Policy] = []

    def taken(_had: Policy | None, given: Policy) -> Policy:
        queue.append(given)
        return queue[max(0, len(queue) - 2)]

    return taken


FAULTS = {
    "ignores what it is given": ignores,
    "takes half of the matrices": takes_half,
    "keeps its output matrix": keeps_the_head,
    "is one version behind": is_one_behind,
}


def lying(lie_about: Callable[[list[float]], Any]) -> Change:
    def change(reply: dict[str, Any]) -> Any:
        for choice in reply["choices"]:
            choice["logprobs"] = {
                "token_logprobs": lie_about(list(choice["logprobs"]["token_logprobs"]))
            }
        return reply

    return change


def lie(rng: random.Random) -> tuple[str, Change]:
    by, times = rng.uniform(0.3, 5), rng.choice([rng.uniform(0.2, 0.7), rng.uniform(1.4, 3)])
    lies: dict[str, Callable[[list[float]], Any]] = {
        "less by the same": lambda logprobs: [one - by for one in logprobs],
        "another temperature's": lambda logprobs: [one * times for one in logprobs],
        "all certain": lambda logprobs: [0.0] * len(logprobs),
        "all the same": lambda logprobs: [-1.0 - by] * len(logprobs),
        "bits for nats": lambda logprobs: [one / 0.693 for one in logprobs],
        "probabilities": lambda logprobs: [2.718281828**one for one in logprobs],
        "no number": lambda logprobs: [float("nan")] * len(logprobs),
        "beyond any": lambda logprobs: [-(10**400)] * len(logprobs),
        "out of this world": lambda logprobs: [-1e300] * len(logprobs),
        "words": lambda logprobs: ["-1.0"] * len(logprobs),
        "truth values": lambda logprobs: [True] * len(logprobs),
        "one too few": lambda logprobs: logprobs[:-1],
        "one too many": lambda logprobs: [*logprobs, -1.0],
        "none": lambda logprobs: None,
    }
    name = rng.choice(sorted(lies))
    return name, lying(lies[name])


def requested(one: Any, policy: Policy, version: int) -> list[OwnGroup]:
    return ask(one, policy, version, count=1)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=[pytest.mark.slow] if seed >= FAST_CASES else [])
        for seed in range(NUM_CASES)
    ],
)
def test_a_server_with_other_weights_gets_no_requests_until_it_has_the_policys(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("peft")
    rng = random.Random(seed)
    architecture, adapts = rng.choice(tiny_models.ARCHITECTURES), rng.random() < 0.5

    def make() -> Policy:
        return tiny_models.policy(architecture)

    policy = make()
    if adapts:
        policy = add_adapter(policy, 2, seed=3)
    stir(policy, seed)
    with VllmServer(make, folder=tmp_path / "served" / "model") as server:
        one = follower(policy, server, tmp_path / "served")
        faults = sorted(FAULTS.keys() - ({"keeps its output matrix"} if adapts else set()))
        if rng.random() < 0.6:
            name = rng.choice(faults)
            server.taken = FAULTS[name](rng)
        else:
            name = ""
        assert stamps(requested(one, policy, 0)) == {0}
        assert one.server_logp_difference is not None and one.server_logp_difference < 1e-4
        if not name:
            name, server.change_probe = lie(rng)
        stir(policy, seed + 1000)
        num_requests = len(server.questions)
        assert requested(one, policy, 1) == [], name
        assert len(server.questions) == num_requests
        message = "".join(
            one.getMessage() for one in caplog.records if "vllm_generator" in one.name
        )
        assert "does not follow the policy" in message or "no usable log-probabilities" in message
        assert "this round trains on external groups only" in message and "\n" not in message
        json.dumps(one.server_logp_difference, allow_nan=False)
        server.taken, server.change_probe = (lambda _had, given: given), (lambda reply: reply)
        groups = requested(one, policy, 1)
        assert stamps(groups) == {1} and off(policy, groups) < 1e-4


@pytest.mark.parametrize("architecture", tiny_models.ARCHITECTURES)
def test_a_server_with_a_packed_copy_of_a_tied_matrix_follows(
    architecture: str, tmp_path: Path
) -> None:
    """As in vLLM's CPU build an output matrix that has no name in the file stays as it was."""
    policy, folder = tiny_models.policy(architecture), tmp_path / "served" / "model"

    def taken(had: Policy | None, given: Policy) -> Policy:
        with safe_open(folder / "model.safetensors", framework="pt") as file:
            named = "lm_head.weight" in file.keys()  # noqa: SIM118 - it is no mapping
        return given if named else keeps_the_head(random.Random())(had, given)

    with VllmServer(lambda: policy, folder=folder) as server:
        server.taken = taken
        one = follower(policy, server, tmp_path / "served")
        for version in range(3):
            stir(policy, version)
            groups = requested(one, policy, version)
            assert stamps(groups) == {version} and off(policy, groups) < 1e-4
        assert server.forgotten == 3, "what it had computed of prompts is of older weights"
    own, read = policy.model.state_dict(), load_policy(str(folder), device="cpu").model
    assert read.state_dict().keys() == own.keys()
    assert all(torch.equal(weight, own[name]) for name, weight in read.state_dict().items())
    tied = read.get_input_embeddings().weight is read.get_output_embeddings().weight
    assert tied == (architecture != "llama")


def test_a_server_on_another_model_is_one_line_with_what_to_do(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    policy = add_adapter(tiny_models.policy("llama"), 2, seed=3)
    with VllmServer(lambda: tiny_models.policy("llama")) as server:
        server.taken = lambda _had, _given: tiny_models.policy("llama", seed=1)
        one = follower(policy, server, tmp_path / "served")
        with refused("nats a token ", " on the model that is trained", server.base_url):
            requested(one, policy, 0)
        assert not server.questions


def test_a_server_that_restarts_before_it_is_compared_is_given_the_weights_again(
    tmp_path: Path,
) -> None:
    policy = tiny_models.policy("llama")
    with VllmServer(lambda: policy, folder=tmp_path / "served" / "model") as server:
        restarts = iter([True])

        def fate(handler: Any, _request: dict[str, Any]) -> bool:
            if handler.path == "/v1/completions" and next(restarts, False):
                server.served.clear()
            return False

        server.mishap = fate
        groups = requested(follower(policy, server, tmp_path / "served"), policy, 0)
        assert stamps(groups) == {0} and len(server.requests_to("/collective_rpc")) == 2


def test_an_honest_difference_of_half_precision_is_within_the_bound() -> None:
    """Half of the bound at most, for 24 random models, temperatures and texts."""
    rng, worst = random.Random(7), 0.0
    for seed in range(24):
        architecture = rng.choice(tiny_models.ARCHITECTURES)
        policy = tiny_models.policy(architecture, seed=seed)
        half = dataclasses.replace(policy, model=copy.deepcopy(policy.model).to(torch.bfloat16))
        temperature = rng.choice([0.3, 0.6, 1.0, 1.5])
        prompt = [rng.randrange(5, tiny_models.VOCAB) for _ in range(rng.randint(1, 64))]
        answers = sampled(half, prompt, temperature, seed)
        found = logprob_difference(policy, prompt, answers, temperature)
        assert found is not None
        worst = max(worst, found / max_difference(temperature))
    assert worst < 0.5


def sampled(policy: Policy, prompt: list[int], temperature: float, seed: int) -> list[Answer]:
    """Eight answers of eight tokens, as a server with this policy gives them."""
    endless = dataclasses.replace(policy, eos_ids=frozenset({-1}))
    how = tiny_models.sampling(8, temperature=temperature)
    (made,) = tiny_models.draw(endless, [prompt], num=8, params=how, seed=seed)
    return [
        Answer(
            text="",
            ids=tuple(one.ids),
            logprobs=tuple(one.logprobs),
            finish_reason=one.finish_reason,
        )
        for one in made
    ]


def test_errors_of_logits_count_by_the_temperature() -> None:
    assert [max_difference(one) for one in (2.0, 1.0, 0.0)] == [MAX_DIFFERENCE] * 3
    assert max_difference(0.5) == 2 * MAX_DIFFERENCE
