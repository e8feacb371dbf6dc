"""Answers from a real server over HTTP, on its good days and its bad ones."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal_policy import __main__ as command
from shoal_policy import generate_only
from shoal_policy.generation.remote import RemoteGenerator, build_remote_generator
from shoal_policy.generation.replies import BadReplyError, read_answer
from shoal_policy.generation.requests import InferenceServer, ServerRefusedError
from shoal_settings.schema import Settings
from shoal_wire.types import FinishReason
from tests.policy.generation.vllm_cases import SAMPLING, question, served_flags, trained
from tests.policy.model_server import Fate, Handler, ModelServer, replies
from tests.policy.tiny_models import refused
from tests.policy.training_cases import metrics
from tests.support.local_node import NodeThread

pytestmark = pytest.mark.usefixtures("as_it_was")


def generator(
    server: ModelServer, *, stop: Callable[[], bool] = lambda: False, **config: Any
) -> RemoteGenerator:
    settings = {"api_key": None, "request_seconds": 20.0, "connections": 8, **config}
    return RemoteGenerator(
        InferenceServer(server.base_url, first_pause_seconds=0.001, should_stop=stop, **settings),
        model="theirs",
        num_completions=3,
        sampling=SAMPLING,
    )


def first(count: int, fate: Fate) -> Fate:
    """The first `count` requests meet `fate`, the others are answered."""
    left = threading.Semaphore(count)
    return lambda handler, request: left.acquire(blocking=False) and fate(handler, request)


def hangs_up(handler: Handler, _request: dict[str, Any]) -> bool:
    handler.close_connection = True
    return True


def test_requests_follow_the_settings_and_replies_are_parsed() -> None:
    with ModelServer() as server:
        groups = generator(server, api_key="k").generate([question(1), question(2, tagged=True)])
        assert [group.question.text for group in groups] == ["what is 1 + 1?", "what is 2 + 2?"]
        answers = [answer for group in groups for answer in group.answers]
        assert len(answers) == 6
        assert len({answer.text for answer in answers}) > 1
        for answer in answers:
            assert answer.ids == ()
            assert 1 <= answer.num_tokens <= 5
            cut = answer.finish_reason is FinishReason.LENGTH
            assert cut == (answer.num_tokens == 5) or not cut
        assert set(server.keys) == {"Bearer k"}
        assert {request["model"] for request in server.requests} == {"theirs"}
        roles = {tuple(m["role"] for m in request["messages"]) for request in server.requests}
        assert roles == {("user",), ("system", "user")}


def test_no_more_requests_at_once_than_allowed() -> None:
    with ModelServer() as server:
        generator(server, connections=2).generate([question(n) for n in range(4)])
        assert len(server.requests) == 12
        assert server.most <= 2


GARBAGE = [
    b"",
    b"<html>busy</html>",
    b"[]",
    b"{}",
    b'{"choices": "none"}',
    b'{"choices": [7]}',
    b'{"choices": [{"message": [], "finish_reason": "abort"}]}',
    b'{"choices": [{"message": {"content": 7}, "finish_reason": "stop"}]}',
    b'{"choices": [{"message": {"content": "7"}, "finish_reason": ["stop"]}]}',
    b"[" * 100_000,
    b"\xff\xfe",
]


@pytest.mark.parametrize("body", GARBAGE, ids=lambda body: repr(body[:60]))
def test_garbage_is_a_fault(body: bytes) -> None:
    with pytest.raises(BadReplyError):
        read_answer(body, chat=True)


def test_what_a_reply_does_not_count_is_counted_or_guessed() -> None:
    choice: dict[str, Any] = {"text": "a" * 10, "finish_reason": "length"}
    for usage, extra, expected in [
        ({"completion_tokens": 4}, {}, 4),
        ({"completion_tokens": -1}, {"logprobs": {"token_logprobs": [-1.0, -2.0]}}, 3),
        ({"completion_tokens": True}, {"logprobs": {"token_logprobs": [0.5]}}, 3),
        (None, {"logprobs": {"token_logprobs": [None]}}, 3),
        ("many", {}, 3),
    ]:
        body = json.dumps({"choices": [choice | extra], "usage": usage}).encode()
        assert read_answer(body, chat=False).num_tokens == expected


@pytest.mark.parametrize(
    "fate",
    [
        replies(500, b"boom"),
        replies(503, {"error": "loading"}, retry_after="0.001"),
        replies(429, b""),
        replies(200, GARBAGE[1]),
        hangs_up,
    ],
    ids=["500", "503", "429", "garbage", "hangs up"],
)
def test_a_bad_moment_passes(fate: Fate) -> None:
    with ModelServer(first(3, fate)) as server:
        remote = generator(server, connections=2)
        (group,) = remote.generate([question()])
        assert len(group.answers) == 3
        assert remote.num_failed == 0
        assert len(server.requests) == 6


def test_a_server_that_stays_broken_costs_its_answers_and_nothing_else() -> None:
    with ModelServer(replies(500, b"boom")) as server:
        remote = generator(server)
        assert remote.generate([question()]) == []
        assert remote.num_failed == 3
        assert len(server.requests) == 12
        server.fate = lambda _handler, _request: False
        assert len(remote.generate([question()])) == 1


def test_a_slow_server_is_given_up_and_does_not_hold_up_the_end() -> None:
    release = threading.Event()

    def waits(_handler: Handler, _request: dict[str, Any]) -> bool:
        release.wait(60)
        return True

    with ModelServer(first(1, waits)) as server:
        remote = generator(server, request_seconds=0.3)
        assert len(remote.generate([question()])) == 1
        assert len(server.requests) == 4
    with ModelServer(waits) as server:
        requested: list[bool] = []

        def stop() -> bool:
            requested.append(bool(server.requests))
            return requested[-1]

        assert generator(server, stop=stop, request_seconds=60.0).generate([question()]) == []
    release.set()


@pytest.mark.parametrize(("status", "do"), [(401, "OPENAI_API_KEY"), (404, "--remote-model")])
def test_a_permanent_refusal_is_one_line_with_advice(status: int, do: str) -> None:
    with (
        ModelServer(replies(status, {"error": "no\nsuch key"})) as server,
        refused(str(status), do, server.base_url, error=ServerRefusedError),
    ):
        generator(server).generate([question()])


def test_once_it_has_answered_a_refusal_costs_the_answer_only() -> None:
    with ModelServer() as server:
        remote = generator(server)
        remote.generate([question()])
        server.fate = replies(401, b"")
        assert remote.generate([question()]) == []


def test_it_learns_the_servers_dialect() -> None:
    old = replies(404, {"error": "unknown path"}, only="/v1/chat/completions")
    with ModelServer(old) as server:
        (group,) = generator(server, connections=1).generate([question()])
        assert len(group.answers) == 3
        assert server.paths[-1] == "/v1/completions"
        assert server.requests[-1]["prompt"].endswith("Answer:")

    with ModelServer() as server:
        settings = Settings(base_url=server.base_url, prompt="plain", completions=3)
        assert build_remote_generator(settings, lambda: False).generate([question()])
        assert set(server.paths) == {"/v1/completions"}

    def new(handler: Handler, request: dict[str, Any]) -> bool:
        if "max_tokens" in request:
            handler.reply(400, {"error": "use 'max_completion_tokens' instead"})
        return "max_tokens" in request

    with ModelServer(new) as server:
        assert len(generator(server).generate([question()])) == 1
        assert server.requests[-1]["max_completion_tokens"] == 5


@pytest.mark.parametrize(
    "given", ["", "/", "/v1", "/v1/", "/v1/chat/completions", "/v1/models", "/api/v1"]
)
def test_the_base_address_is_recognised(given: str) -> None:
    """With /v1, without it, and of servers that have their pages elsewhere."""
    right = f"{'/api' if 'api' in given else ''}/v1/chat/completions"

    def fate(handler: Handler, request: dict[str, Any]) -> bool:
        return handler.path != right and replies(404, b"Not Found")(handler, request)

    with ModelServer(fate) as server:
        url = server.base_url.removesuffix("/v1") + given
        settings = Settings(base_url=url, completions=3, concurrency=1)
        (group,) = build_remote_generator(settings, lambda: False).generate([question()])
        assert len(group.answers) == 3
        assert server.paths[-3:] == [right] * 3
        assert len(server.paths) == 3 + (given in ("", "/"))


@pytest.mark.parametrize("path", ["/chat/completions", "/inference/chat/completions"])
def test_a_server_without_a_version_is_used_as_given(path: str) -> None:
    def fate(handler: Handler, request: dict[str, Any]) -> bool:
        return handler.path != path and replies(404, b"Not Found")(handler, request)

    with ModelServer(fate) as server:
        url = server.base_url.removesuffix("/v1") + path.removesuffix("/chat/completions")
        settings = Settings(base_url=url, completions=3)
        assert build_remote_generator(settings, lambda: False).generate([question()])
        assert set(server.paths) == {path}


def test_an_endless_reply_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_policy.generation.requests.MAX_REPLY_BYTES", 10_000)
    with ModelServer(first(1, replies(200, b" " * 20_000))) as server:
        assert len(generator(server).generate([question()])) == 1


def flags(server: ModelServer, *more: str) -> list[str]:
    return served_flags("openai", server.base_url, *more)


def test_a_policy_learns_from_a_servers_answers(model: str) -> None:
    with ModelServer() as server:
        trained(flags(server, "--alone", f"--model={model}", "--remote-model=theirs"))
        assert {request["model"] for request in server.requests} == {"theirs"}


@pytest.mark.slow
def test_a_node_that_only_generates_shares_and_goes_on_where_it_was() -> None:
    data_dir = Path("d").resolve()
    data_dir.mkdir()
    with ModelServer() as server, NodeThread(data_dir) as node:
        more = ("--role=generate", "--model=theirs")
        assert command.main(flags(server, *more)) == 0
        assert node.node.link.status["state"] == "finished"
        shared = node.node.recent.after(0, limit=99)
        assert {found.group.policy.model_name for found in shared} == {"theirs"}
        assert len(shared) > 0
        assert command.main(flags(server, *more, "--rounds=3")) == 0
        seeds = [found.group.group.task for found in node.node.recent.after(0, limit=99)]
        assert len(seeds) == len(set(seeds)) > len(shared)
    assert [row["round"] for row in metrics(data_dir)] == [1, 2, 3]


def test_a_server_that_is_away_is_one_line_and_the_round_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(InferenceServer, "_wait", lambda _self, _seconds: None)
    monkeypatch.setattr(generate_only, "RETRY_S", 0.01)
    with ModelServer(first(24, replies(503, b"down"))) as server:
        caplog.set_level("INFO")
        assert command.main(flags(server, "--role=generate", "--alone", "--rounds=1")) == 0
    message = [record.getMessage() for record in caplog.records]
    assert len([one for one in message if "status 503; next try in 0 s" in one]) == 1
    assert not [one for one in message if "HTTP Request" in one]
    [row] = metrics(Path("d"))
    assert (row["round"], row["completions/mean_length"] > 0) == (1, True)


def test_answers_that_are_missing_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def busy_later(handler: Handler, request: dict[str, Any]) -> bool:
        return len(server.requests) > 3 and replies(503, b"busy")(handler, request)

    with ModelServer(busy_later) as server:
        reported: list[tuple[int, float]] = []
        remote = generator(server, connections=1)
        groups = remote.generate(
            [question(1), question(2)], lambda done, part: reported.append((done, part))
        )
    assert len(groups) == 1
    assert (reported[0], reported[-1]) == ((1, 1 / 6), (3, 1.0))
    [record] = caplog.records
    assert record.getMessage() == f"3 answers of {server.base_url} are missing: status 503"
    assert remote.failure == ""


def test_a_node_that_only_generates_needs_no_torch(tmp_path: Path) -> None:
    program = (
        "import sys; from shoal_policy.__main__ import main; code = main(sys.argv[1:]); "
        "loaded = {'torch', 'transformers'} & set(sys.modules); sys.exit(code or len(loaded))"
    )
    with ModelServer() as server:
        more = ["--role=generate", "--alone", "--model=theirs", "--rounds=1"]
        done = subprocess.run(
            [sys.executable, "-c", program, *flags(server), *more],
            check=False,
            cwd=tmp_path,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr.decode()
        assert len(server.requests) == 6


def test_a_server_that_cannot_generate_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--role=generate", "--alone", "--data-dir=d"]) == 2
    assert "--generator openai" in capsys.readouterr().err
    with ModelServer(replies(403, b"who are you?")) as server:
        assert command.main(flags(server, "--role=generate", "--alone")) == 2
    assert "403" in capsys.readouterr().err
