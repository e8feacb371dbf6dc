"""A server whose weights follow: what it answers is what the policy, as it is, would have."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError

from tests.policy import training_cases as case
from tests.policy.generation.vllm_cases import (
    adapted,
    ask,
    base,
    follower,
    off,
    served_flags,
    stamps,
    stir,
    trained,
)
from tests.policy.model_server import Handler, replies
from tests.policy.tiny_models import refused
from tests.policy.vllm_server import VllmServer


def test_adapters_follow_version_by_version(tmp_path: Path) -> None:
    policy = adapted()
    with VllmServer(base) as server:
        one = follower(policy, server, tmp_path / "served")
        for version in range(3):
            stir(policy, version)
            groups = ask(one, policy, version)
            assert [len(group.answers) for group in groups] == [3, 3]
            assert off(policy, groups) < 1e-4 and stamps(groups) == {version}
        assert len(server.questions) == 6, "one request a question, n answers each"
        assert {request["n"] for request in server.questions} == {3}
        [name] = server.served
        assert name.endswith("-v2") and [folder.name for folder in one_level(tmp_path)] == [name]
        assert len(server.requests_to("/v1/load_lora_adapter")) == 3


def one_level(folder: Path) -> list[Path]:
    return sorted((folder / "served").iterdir())


def test_each_version_is_given_once_and_stamped(tmp_path: Path) -> None:
    policy = adapted()
    with VllmServer(base) as server:
        one = follower(policy, server, tmp_path / "served")
        assert [stamps(ask(one, policy, version)) for version in (5, 5, 6)] == [{5}, {5}, {6}]
        assert len(server.requests_to("/v1/load_lora_adapter")) == 2
        stir(policy, 1)
        groups = ask(one, policy, 5)  # taken back: other weights, however near the number
        assert stamps(groups) == {5} and off(policy, groups) < 1e-4


def test_outdated_weights_get_no_questions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = adapted()
    with VllmServer(base) as server:
        one, well = follower(policy, server, tmp_path / "served"), server.mishap
        assert len(ask(one, policy, 0)) == 2
        requested = len(server.questions)
        server.mishap = replies(503, b"down", only="/v1/load_lora_adapter")
        assert ask(one, policy, 1) == []
        assert len(server.questions) == requested
        assert "status 503; this round trains on external groups only" in caplog.text
        server.mishap = well
        assert stamps(ask(one, policy, 1)) == {1}


def test_a_server_that_has_restarted_is_given_the_weights_again(tmp_path: Path) -> None:
    policy = adapted()
    with VllmServer(base) as server:
        one = follower(policy, server, tmp_path / "served")
        ask(one, policy, 0)
        server.served.clear()
        groups = ask(one, policy, 0)
        assert len(groups) == 2 and off(policy, groups) < 1e-4


def test_answers_of_older_weights_do_not_pass_for_those_given_in_the_middle(tmp_path: Path) -> None:
    policy, restarts = adapted(), False

    def fate(handler: Handler, request: dict[str, Any]) -> bool:
        if restarts and handler.path == "/v1/completions":
            requested = server.questions
            if len({tuple(one["prompt"]) for one in requested}) > 3:
                server.served.pop(older, None)
        return False

    with VllmServer(base, fate=fate) as server:
        one = follower(policy, server, tmp_path / "served", at_once=1)
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
    for policy, message in ((adapted(), "--enable-lora"), (base(), "VLLM_SERVER_DEV_MODE=1")):
        refusing = replies(404, {"detail": "Not Found"})
        with VllmServer(base, fate=refusing) as server, refused(message, server.base_url):
            ask(follower(policy, server, tmp_path / "served"), policy, 0)


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


@pytest.mark.usefixtures("as_it_was")
def test_a_trainer_learns_from_a_server_that_follows(model: str) -> None:
    pytest.importorskip("peft")
    more = ("--alone", f"--model={model}", "--lora-rank=2")
    with VllmServer(case.policy) as server:
        rounds = trained(served_flags("vllm", server.base_url, *more))
        assert len(server.questions) == 4
        assert Path("d/served").is_dir()
    assert all(row["server_logp_difference"] < 1e-4 for row in rounds)
