"""A server whose weights follow: what it answers is what the policy, as it is, would have."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from policy import __main__ as command
from policy.generation.following import Following
from policy.generation.requests import Server
from policy.generation.seam import Asking
from policy.generation.served_weights import AdapterPusher, Pusher, WholePusher
from policy.model.loading import ModelError, Policy
from policy.model.lora import LoraSpec, add_adapter
from policy.model.prompting import prompt_ids
from policy.rollouts import Origin, OwnGroup, Question
from shoal_wire.types import SamplingParams
from tests.policy import tiny_models
from tests.policy import training_cases as case
from tests.policy.model_server import Handler
from tests.policy.vllm_server import VllmServer
from tests.support import factories as make

SAMPLING = SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=5)


def question(number: int) -> Question:
    text = f"what is {number} + {number}?"
    return Question(task=make.task(number, question=text), text=text, tagged=False)


def base() -> Policy:
    return tiny_models.policy("llama")


def adapted(seed: int = 5) -> Policy:
    pytest.importorskip("peft")
    policy = add_adapter(base(), LoraSpec(rank=2), seed=3)
    stir(policy, seed)
    return policy


def stir(policy: Policy, seed: int) -> None:
    """What an update does to the weights, in large."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in policy.model.parameters():
            if weight.requires_grad:
                weight += 0.3 * torch.randn_like(weight)


def follower(
    policy: Policy,
    server: VllmServer,
    folder: Path,
    *,
    max_lag: int = 0,
    seconds: float = 20.0,
    at_once: int = 4,
) -> Following:
    http = Server(
        server.base_url,
        api_key=None,
        request_seconds=seconds,
        connections=4,
        should_stop=lambda: False,
        first_pause_seconds=0.001,
    )
    pusher: Pusher = WholePusher(http, folder, "whole")
    if policy.adapter is not None:
        pusher = AdapterPusher(http, folder)
    return Following(
        policy, http, pusher, max_lag=max_lag, at_once=at_once, should_stop=lambda: False
    )


def ask(one: Following, policy: Policy, version: int, count: int = 2) -> list[OwnGroup]:
    return one.answer(
        Asking(
            questions=[question(number) for number in range(1, count + 1)],
            policy=policy,
            policy_version=version,
            num_completions=3,
            sampling=SAMPLING,
            seed=version,
        )
    )


def off(policy: Policy, groups: list[OwnGroup]) -> float:
    """How far what was said of the answers' tokens is from what the policy itself says."""
    worst = 0.0
    for group in groups:
        prompt = prompt_ids(policy, group.question)
        for answer in group.answers:
            with torch.inference_mode():
                logits = policy.model(input_ids=torch.tensor([[*prompt, *answer.ids]])).logits[0]
            own = logits.log_softmax(-1)[len(prompt) - 1 : -1]
            ids = torch.tensor(answer.ids)[:, None]
            said = torch.tensor(answer.logprobs)
            worst = max(worst, float((own.gather(-1, ids)[:, 0] - said).abs().max()))
    return worst


def stamps(groups: list[OwnGroup]) -> set[int]:
    assert {group.origin for group in groups} == {Origin.FOLLOWER}
    return {group.author.policy_version for group in groups if group.author is not None}


def test_adapters_follow_version_by_version(tmp_path: Path) -> None:
    policy = adapted()
    with VllmServer(base) as server:
        one = follower(policy, server, tmp_path / "served")
        for version in range(3):
            stir(policy, version)
            groups = ask(one, policy, version)
            assert [len(group.answers) for group in groups] == [3, 3]
            assert off(policy, groups) < 1e-4 and stamps(groups) == {version}
        assert len(server.asked("/v1/completions")) == 6, "one request a question, n answers each"
        assert {request["n"] for request in server.asked("/v1/completions")} == {3}
        [name] = server.served
        assert name.endswith("-v2") and [folder.name for folder in one_level(tmp_path)] == [name]
        assert len(server.asked("/v1/load_lora_adapter")) == 3


def one_level(folder: Path) -> list[Path]:
    return sorted((folder / "served").iterdir())


def test_whole_weights_follow_through_the_folder_the_server_was_started_on(tmp_path: Path) -> None:
    policy = base()
    with VllmServer(base, folder=tmp_path / "served" / "model") as server:
        one = follower(policy, server, tmp_path / "served")
        for version in range(2):
            stir(policy, version)
            groups = ask(one, policy, version)
            assert off(policy, groups) < 1e-4 and stamps(groups) == {version}
        assert server.forgotten == 2, "what it had computed of prompts is of older weights"


def test_the_lag_is_bounded_and_stamped(tmp_path: Path) -> None:
    policy = adapted()
    with VllmServer(base) as server:
        one = follower(policy, server, tmp_path / "served", max_lag=2)
        assert [stamps(ask(one, policy, version)) for version in range(7)] == [
            {0}, {0}, {0}, {3}, {3}, {3}, {6},
        ]  # fmt: skip
        assert len(server.asked("/v1/load_lora_adapter")) == 3
        stir(policy, 1)
        groups = ask(one, policy, 5)  # taken back: other weights, however near the number
        assert stamps(groups) == {5} and off(policy, groups) < 1e-4


def test_no_question_is_asked_of_weights_that_are_too_old(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy, broken = adapted(), False

    def fate(handler: Handler, _request: dict[str, Any]) -> bool:
        if broken and handler.path == "/v1/load_lora_adapter":
            handler.reply(503, b"down")
            return True
        return False

    with VllmServer(base, fate=fate) as server:
        one = follower(policy, server, tmp_path / "served")
        assert len(ask(one, policy, 0)) == 2
        broken, asked = True, len(server.asked("/v1/completions"))
        assert ask(one, policy, 1) == []
        assert len(server.asked("/v1/completions")) == asked
        assert "status 503; this round has the groups of others alone" in caplog.text
        broken = False
        assert stamps(ask(one, policy, 1)) == {1}


def test_a_server_that_has_restarted_is_given_the_weights_again(tmp_path: Path) -> None:
    policy = adapted()
    with VllmServer(base) as server:
        one = follower(policy, server, tmp_path / "served")
        ask(one, policy, 0)
        server.served.clear()
        groups = ask(one, policy, 0)
        assert len(groups) == 2 and off(policy, groups) < 1e-4


def test_answers_of_older_weights_do_not_pass_for_those_given_in_the_middle(
    tmp_path: Path,
) -> None:
    policy, restarts = adapted(), False

    def fate(handler: Handler, request: dict[str, Any]) -> bool:
        if restarts and handler.path == "/v1/completions":
            asked = server.asked("/v1/completions")
            if len({tuple(one["prompt"]) for one in asked}) > 3:
                server.served.pop(older, None)
        return False

    with VllmServer(base, fate=fate) as server:
        one = follower(policy, server, tmp_path / "served", max_lag=1, at_once=1)
        ask(one, policy, 0)
        [older] = server.served
        stir(policy, 1)
        restarts = True
        groups = ask(one, policy, 1, count=4)  # the third and fourth find the server restarted
        assert len(groups) == 4 and stamps(groups) == {1}
        assert off(policy, groups) < 1e-4


def test_a_full_disk_leaves_the_round_to_the_groups_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    policy = base()

    def full(*_args: Any, **_options: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device")

    with VllmServer(base, folder=tmp_path / "served" / "model") as server:
        one = follower(policy, server, tmp_path / "served")
        assert len(ask(one, policy, 0)) == 2
        with monkeypatch.context() as patch:
            patch.setattr(type(policy.model), "save_pretrained", full)
            assert ask(one, policy, 1) == []
        assert "cannot write" in caplog.text and "No space left" in caplog.text
        assert stamps(ask(one, policy, 1)) == {1}


def test_a_server_that_takes_no_weights_is_one_line(tmp_path: Path) -> None:
    def refusing(handler: Handler, _request: dict[str, Any]) -> bool:
        handler.reply(404, {"detail": "Not Found"})
        return True

    for policy, said in ((adapted(), "--enable-lora"), (base(), "VLLM_SERVER_DEV_MODE=1")):
        with VllmServer(base, fate=refusing) as server:
            with pytest.raises(ModelError, match=said) as caught:
                ask(follower(policy, server, tmp_path / "served"), policy, 0)
            assert "\n" not in str(caught.value) and server.base_url in str(caught.value)


def changed(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    def change(reply: dict[str, Any]) -> Any:
        for choice in reply["choices"][:1]:
            choice[key] = value
        return reply

    return change


LIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another version's name": lambda reply: reply | {"model": "shoal-v0"},
    "no token": changed("token_ids", []),
    "a token that is none": changed("token_ids", [10**9]),
    "a truth value": changed("token_ids", [True]),
    "more than asked": changed("token_ids", [7] * 6),
    "on after the end": changed("token_ids", [7, 2, 7]),
    "another prompt": changed("prompt_token_ids", [1, 2]),
    "a number twice": changed("index", 1),
    "a fourth answer": changed("index", 3),
    "no list": lambda reply: reply | {"choices": 7},
    "nothing": lambda _reply: [],
    "a page": lambda _reply: b"<html>",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_server_has_no_answers(lie: str, tmp_path: Path) -> None:
    policy = adapted()
    with VllmServer(base) as server:
        server.change = LIES[lie]
        assert ask(follower(policy, server, tmp_path / "served"), policy, 0, count=1) == []


@pytest.mark.parametrize(
    "numbers", [[float("nan")] * 5, [7.0] * 5, [-(10**400)] * 5, [-1.0], ["a"], None, 3]
)
def test_absurd_log_probabilities_are_none(numbers: Any, tmp_path: Path) -> None:
    policy = adapted()
    with VllmServer(base) as server:
        server.change = changed("logprobs", {"token_logprobs": numbers})
        [group] = ask(follower(policy, server, tmp_path / "served"), policy, 0, count=1)
        assert [len(one.logprobs) for one in group.answers[1:]] == [
            len(one.ids) for one in group.answers[1:]
        ]
        assert group.answers[0].logprobs == () and group.answers[0].ids


def test_a_server_that_hangs_or_floods_is_left(tmp_path: Path) -> None:
    policy, released = adapted(), threading.Event()

    def hang(handler: Handler, _request: dict[str, Any]) -> bool:
        if handler.path == "/v1/completions":
            released.wait(20)
            handler.reply(200, b" " * (3 << 20))
            return True
        return False

    with VllmServer(base, fate=hang) as server:
        try:
            one = follower(policy, server, tmp_path / "served", seconds=0.3)
            assert ask(one, policy, 0, count=1) == []
        finally:
            released.set()
        assert ask(follower(policy, server, tmp_path / "served"), policy, 0, count=1) == []


def test_a_trainer_learns_from_a_server_that_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft")
    monkeypatch.chdir(tmp_path)
    model = case.model_folder(tmp_path)
    with VllmServer(case.policy) as server:
        flags = [
            *("--generator=vllm", f"--base-url={server.base_url}", "--data-dir=d", "--local=2"),
            *("--external=0", "--completions=3", "--max-new-tokens=4", "--rounds=2", "--seed=3"),
            *("--alone", f"--model={model}", "--device=cpu", "--lora-rank=2", "--log=none"),
        ]
        assert command.main(flags) == 0
        assert len(server.asked("/v1/completions")) == 4
        assert Path("d/served").is_dir()
    rows = [json.loads(line) for line in Path("d/metrics.jsonl").read_text().splitlines()]
    assert [row["tokens_generated"] > 0 for row in rows if row["event"] == "round"] == [True, True]
