"""Games of several turns played through servers: token ids in and out, or text alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal_policy import __main__ as command
from shoal_policy.generation.game import PlayedGame
from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.openai_generator import OpenAIGenerator
from shoal_policy.generation.questions import build_prompt
from shoal_policy.generation.remote import RemoteGenerator
from shoal_policy.generation.requests import InferenceServer, WorkerPool
from shoal_policy.generation.transcript import Transcript
from shoal_policy.model.loading import Policy, load_policy
from shoal_policy.model.prompting import observation_ids
from shoal_policy.rollouts import Answer, Origin, OwnGroup
from shoal_tasks.turns import SEPARATOR, join_messages, split_messages
from shoal_tasks.types import Play, PlayRequest
from shoal_wire.types import FinishReason
from tests.policy import tiny_models
from tests.policy import training_cases as case
from tests.policy.generation import vllm_cases
from tests.policy.generation.test_game_batch import questions, world
from tests.policy.generation.test_local_generator import CHATML, sample
from tests.policy.generation.vllm_cases import (
    SAMPLING,
    adapted,
    base,
    follower,
    messages_of,
    off,
    stir,
)
from tests.policy.model_server import Handler, ModelServer
from tests.policy.vllm_server import VllmServer
from tests.tasks.games import game_file


def ending(policy: Policy) -> Policy:
    """The same, with many end tokens: messages end before they are cut."""
    return replace(policy, eos_ids=frozenset({2, *range(5, 16)}))


def request_of(policy: Policy, games: int = 3, once: int = 1, **changes: Any) -> GenerationRequest:
    how = {"policy_version": 1, "num_completions": 4, "play": world, **changes}
    return vllm_cases.request_of(policy, questions(games, once), **how)


def assert_appended(policy: Policy, groups: Sequence[OwnGroup]) -> int:
    """Each game is its messages' own ids with the environment's between; return their number."""
    games = [group for group in groups if group.question.max_turns]
    return len(messages_of(policy, games, world)) - sum(len(one.answers) for one in games)


def test_a_server_that_follows_plays(tmp_path: Path) -> None:
    policy = ending(adapted())
    stir(policy, 3)
    with VllmServer(lambda: ending(base())) as server:
        one = follower(policy, server, tmp_path / "served")
        this = request_of(policy)
        groups = one.generate(this)
        assert [len(group.answers) for group in groups] == [4] * 4
        assert {group.origin for group in groups} == {Origin.FOLLOWER}
        assert assert_appended(policy, groups) > 4
        assert off(policy, groups) < 1e-4, "what it says of its tokens is true of every message"
        requested = server.questions
        assert sum(request["n"] == 4 for request in requested) == 4
        assert len({(tuple(r["prompt"]), r["seed"]) for r in requested}) == len(requested)
        again = follower(policy, server, tmp_path / "served").generate(this)
        assert [group.answers for group in again] == [group.answers for group in groups]


def test_a_game_whose_server_fails_in_the_middle_is_left_out(tmp_path: Path) -> None:
    policy = ending(adapted())
    longest: list[int] = []

    def fate(handler: Handler, request: dict[str, Any]) -> bool:
        if request.get("n") == 1:
            longest.append(len(request["prompt"]))
            if len(longest) % 3 == 0:
                handler.reply(400, {"error": "no"})
                return True
        return False

    with VllmServer(lambda: ending(base()), fate=fate) as server:
        one = follower(policy, server, tmp_path / "served")
        groups = one.generate(request_of(policy, once=0, num_completions=8))
    assert assert_appended(policy, groups) > 0 and len(longest) > 5
    assert 0 < sum(len(group.answers) for group in groups) < 24


def test_each_game_goes_on_at_its_own_pace(tmp_path: Path) -> None:
    """A request that hangs holds up its own game alone."""
    policy = ending(adapted())
    held, first = threading.Event(), threading.Semaphore(1)
    after: list[int] = []

    def fate(_handler: Handler, request: dict[str, Any]) -> bool:
        if request.get("n") != 1:
            return False
        if first.acquire(blocking=False):
            held.wait(20)
        elif not held.is_set():
            after.append(len(request["prompt"]))
            if len(after) == 4:
                held.set()
        return False

    with VllmServer(lambda: ending(base()), fate=fate) as server:
        one = follower(policy, server, tmp_path / "served")
        groups = one.generate(request_of(policy, once=0, num_completions=8))
    assert held.is_set() and len(after) == 4
    assert sum(len(group.answers) for group in groups) == 24


def remote(server: ModelServer, *, connections: int = 8, chat: bool = True) -> RemoteGenerator:
    return RemoteGenerator(
        InferenceServer(
            server.base_url,
            api_key=None,
            request_seconds=20.0,
            connections=connections,
            should_stop=lambda: False,
            first_pause_seconds=0.001,
        ),
        model="theirs",
        num_completions=4,
        sampling=SAMPLING,
        chat=chat,
    )


def talking(server: ModelServer) -> ModelServer:
    server.policy = ending(server.policy)
    return server


def test_a_server_of_text_plays_as_a_chat() -> None:
    with ModelServer() as server:
        groups = remote(talking(server)).generate(questions(3, 1), play=world)
    assert [len(group.answers) for group in groups] == [4] * 4
    received = [request["messages"] for request in server.requests]
    turns = 0
    for messages in received:
        assert [one["role"] for one in messages] == ["user", "assistant"] * (len(messages) // 2) + [
            "user"
        ]
        turns += len(messages) > 1
        message = [one["content"] for one in messages if one["role"] == "assistant"]
        for number in range(len(message)):
            found = [
                play.observations[number]
                for group in groups
                for (play,) in [
                    world([PlayRequest(task=group.question.coordinates, messages=tuple(message))])
                ]
            ]
            assert messages[2 * number + 2]["content"] in found
    assert turns > 3
    for group in groups:
        for answer in group.answers:
            assert answer.ids == () and answer.num_tokens > 0
            if group.question.max_turns:
                messages = split_messages(answer.text)
                (play,) = world([PlayRequest(task=group.question.coordinates, messages=messages)])
                assert play.done or answer.finish_reason is not FinishReason.STOP


def test_a_server_without_a_chat_gets_the_game_as_one_text() -> None:
    with ModelServer() as server:
        remote(talking(server), chat=False).generate(questions(3), play=world)
    prompts = [request["prompt"] for request in server.requests]
    later = [prompt for prompt in prompts if prompt.count("Answer:") > 1]
    assert later and all(prompt.endswith("\nAnswer:") for prompt in prompts)
    for prompt in later:
        before = prompt[: prompt.rindex("\n\n")]
        assert any(before.startswith(one) for one in prompts if len(one) < len(prompt)), (
            "it is appended to"
        )


def test_text_is_retokenized_and_trained_on_only_if_identical() -> None:
    policy = tiny_models.policy("llama", positions=400, template=CHATML)
    message = iter(["ab", "cd", "ab", "c\u00e9", "ab", "ab", "ab", "ab"] * 40)

    def fate(handler: Handler, _request: dict[str, Any]) -> bool:
        choice = {"message": {"content": next(message)}, "finish_reason": "stop"}
        handler.reply(200, {"choices": [choice]})
        return True

    def play(requests: Sequence[PlayRequest]) -> list[Play]:
        return [
            Play(
                observations=tuple(f"{n} <eos>" for n in range(len(one.messages))),
                done=len(one.messages) == 2,
                reward=0.0,
            )
            for one in requests
        ]

    with ModelServer(fate) as server:
        this = request_of(policy, games=2, once=0, play=play)
        groups = OpenAIGenerator(remote(server, connections=1)).generate(this)
    assert {group.origin for group in groups} == {Origin.ANOTHER}
    answers = [answer for group in groups for answer in group.answers]
    assert len(answers) == 8, "each counts for the server's reward"
    trained = [answer for answer in answers if answer.ids]
    assert 2 <= len(trained) < 8, "what this tokenizer does not know is not trained on"
    for answer in trained:
        messages = split_messages(answer.text)
        first = [*policy.tokenizer(messages[0], add_special_tokens=False)["input_ids"], 2]
        between = observation_ids(policy, "0 <eos>")
        assert list(answer.ids[: len(first) + len(between)]) == first + between
        assert answer.completion_positions is not None
        assert [answer.ids[at] for at in answer.completion_positions[: len(first)]] == first
        assert set(range(len(first), len(first) + len(between))).isdisjoint(
            answer.completion_positions
        )


@pytest.mark.parametrize("generator", ["vllm", "openai"])
def test_a_swarm_with_games_is_played_by_a_server(
    generator: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The command itself: it was refused."""
    model = case.model_folder(tmp_path / "model")
    game = game_file(tmp_path, max_turns=3)
    folder = tmp_path / "data"

    def served(make: Callable[[], ModelServer]) -> ModelServer:
        with make() as server:
            code = command.main(
                [
                    *("--alone", "--data-dir", str(folder), "--model", model, "--rounds", "2"),
                    *("--local", "2", "--external", "0", "--completions", "2"),
                    *("--max-new-tokens", "4", "--generator", generator, "--eval-every", "0"),
                    *("--base-url", server.base_url, "--tasks", str(game)),
                ]
            )
        assert code == 0, caplog.text
        return server

    if generator == "openai":
        server = served(ModelServer)
    else:
        server = served(
            lambda: VllmServer(lambda: load_policy(model), folder=folder / "served" / "model")
        )
    assert server.requests


def test_a_message_of_text_with_the_separator_ends_its_game() -> None:
    talk = Transcript(question=questions(1)[0], number=0)
    message = Answer(
        ids=(), text=f"ab{SEPARATOR}c", finish_reason=FinishReason.STOP, logprobs=(), counted=3
    )
    talk.add_message(message)
    assert talk.ended is FinishReason.LENGTH
    assert talk.answer().text == "ab" and talk.answer().num_tokens == 3


def test_work_may_add_more_work_and_ends_on_a_stop() -> None:
    stop = threading.Event()
    crew: WorkerPool[int, int] = WorkerPool(lambda n: n * n, at_once=3, should_stop=stop.is_set)
    for number in range(5):
        crew.add(number)
    found = []
    for number, outcome in crew.as_completed():
        found.append((number, outcome))
        if number < 10:
            crew.add(number + 10)
    assert sorted(found) == [(n, n * n) for n in (*range(5), *range(10, 15))]
    hung = threading.Event()
    slow: WorkerPool[int, bool] = WorkerPool(
        lambda _n: hung.wait(20), at_once=1, should_stop=stop.is_set
    )
    slow.add(1)
    stop.set()
    assert list(slow.as_completed()) == []
    hung.set()


def test_a_servers_numbers_count_only_where_every_message_has_them() -> None:
    policy = ending(tiny_models.policy("llama"))
    game = PlayedGame(question=questions(1)[0], prompt=[1, 2], place=0)
    game.add_message(policy, sample(policy, "a"))
    game.ids += [7, 8]
    game.add_message(policy, replace(sample(policy, "bc"), logprobs=[]))
    answer = game.answer()
    assert answer.logprobs == () and answer.num_completion_tokens == 5
    assert answer.text == join_messages(["a", "bc"])


def test_positions_that_run_out_in_the_middle_end_a_served_game(tmp_path: Path) -> None:
    policy = ending(replace(adapted(), max_positions=24))
    with VllmServer(lambda: ending(base())) as server:
        one = follower(policy, server, tmp_path / "served")
        groups = one.generate(request_of(policy, num_completions=12))
    for group in groups:
        prompt = build_prompt(policy, group.question) or []
        for answer in group.answers:
            assert len(prompt) + len(answer.ids) <= 24
    assert assert_appended(policy, groups) > 0
