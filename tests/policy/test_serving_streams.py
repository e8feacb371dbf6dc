"""Streams give what whole replies give, batches what single requests give, and calls are found."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_policy.model.loading import Policy, load_policy
from shoal_policy.serving.batcher import Batcher, Completion
from shoal_policy.serving.conversation import split_calls
from shoal_policy.serving.replies import ServedRequest, _Deltas

CHAT: Mapping[str, Any] = {"messages": [{"role": "user", "content": "2 + 3"}]}
TEXT: Mapping[str, Any] = {"prompt": ["2 + 3", "say 7"]}


@pytest.fixture(scope="module")
def tiny() -> Policy:
    return load_policy("tiny", device="cpu")


def joined(kind: str, chunks: list[dict[str, Any]]) -> dict[int, tuple[str, str]]:
    """Return the text and the finish reason of each choice of a stream."""
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            index = choice["index"]
            assert index not in reasons, "nothing follows the finish reason"
            part = choice["delta"].get("content", "") if kind == "chat" else choice["text"]
            texts[index] = texts.get(index, "") + part
            if choice["finish_reason"]:
                reasons[index] = choice["finish_reason"]
    return {index: (texts[index], reasons[index]) for index in sorted(texts)}


OPTIONS = st.fixed_dictionaries(
    {"max_tokens": st.integers(0, 12), "seed": st.integers(0, 1 << 40)},
    optional={
        "n": st.integers(1, 4),
        "temperature": st.sampled_from([0.0, 1.0, 3.0]),
        "top_k": st.integers(-1, 9),
        "stop": st.lists(st.text("0123456789 \n", min_size=1, max_size=2), max_size=3),
    },
)


@settings(max_examples=60)
@given(options=OPTIONS, echo=st.booleans())
def test_a_stream_is_the_whole_reply_in_pieces(
    tiny: Policy, options: dict[str, Any], echo: bool
) -> None:
    for kind, asked in (("chat", CHAT), ("text", {**TEXT, "echo": echo})):
        body = {**asked, **options}
        whole = ServedRequest(kind, Batcher(tiny), body).reply()  # type: ignore[arg-type]
        chunks: list[dict[str, Any]] = []
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        ServedRequest(kind, Batcher(tiny), streamed).stream(chunks.append)  # type: ignore[arg-type]
        expected = {
            one["index"]: (
                one["message"]["content"] if kind == "chat" else one["text"],
                one["finish_reason"],
            )
            for one in whole["choices"]
        }
        assert joined(kind, chunks) == expected
        assert chunks[-1]["usage"] == whole["usage"]


def test_requests_that_wait_share_a_batch_and_get_the_answers_that_they_get_alone(
    tiny: Policy,
) -> None:
    bodies = [
        {"prompt": f"{n} + 3", "seed": n, "max_tokens": 12, "temperature": 2.0} for n in range(24)
    ]
    alone = [
        ServedRequest("text", Batcher(tiny), body).reply()["choices"][0]["text"] for body in bodies
    ]
    batcher = Batcher(tiny)
    found: dict[int, str] = {}

    def ask(number: int) -> None:
        reply = ServedRequest("text", batcher, bodies[number]).reply()
        found[number] = reply["choices"][0]["text"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(bodies))]
    with batcher.one_at_a_time:  # so that all of them wait
        for thread in threads:
            thread.start()
        while len(batcher._waiting) < len(bodies):
            pass
    for thread in threads:
        thread.join(30)
    assert [found[number] for number in range(len(bodies))] == alone
    assert batcher.num_batches == 1


def test_a_client_that_is_gone_costs_the_others_nothing(tiny: Policy) -> None:
    body = {"prompt": "1 + 1", "max_tokens": 12, "temperature": 3.0, "seed": 5}
    (expected,) = ServedRequest("text", Batcher(tiny), body).reply()["choices"]
    batcher = Batcher(tiny)
    results: list[object] = []

    def gone(_chunk: object) -> None:
        raise BrokenPipeError

    def run(request: Callable[[], object]) -> None:
        try:
            results.append(request())
        except ConnectionError as error:
            results.append(error)

    asked = [
        lambda: ServedRequest("text", batcher, {**body, "stream": True}).stream(gone),
        lambda: ServedRequest("text", batcher, body).reply()["choices"][0],
    ]
    threads = [threading.Thread(target=run, args=(one,)) for one in asked]
    with batcher.one_at_a_time:
        for thread in threads:
            thread.start()
        while len(batcher._waiting) < 2:
            pass
    for thread in threads:
        thread.join(30)
    assert expected in results
    assert any(isinstance(one, BrokenPipeError) for one in results)


CALLS = st.fixed_dictionaries(
    {"name": st.text(max_size=5), "arguments": st.dictionaries(st.text(max_size=3), st.integers())}
).map(lambda call: f"<tool_call>\n{json.dumps(call)}\n</tool_call>")
PIECES = st.lists(
    CALLS | st.text(max_size=6) | st.sampled_from(["<tool_call>", "<tool", "</tool_call>", " \n"]),
    max_size=5,
)


@settings(max_examples=400)
@given(pieces=PIECES, cuts=st.lists(st.integers(0, 200), max_size=12), stops=st.booleans())
def test_calls_are_found_in_a_stream_wherever_it_is_cut(
    pieces: list[str], cuts: list[int], stops: bool
) -> None:
    text = "".join(pieces)
    sent: list[tuple[dict[str, Any], str | None]] = []
    deltas = _Deltas(
        lambda _index, delta, reason: sent.append((delta, reason)),
        ("STOP",) if stops else (),
        has_tools=True,
    )
    for cut in sorted(cuts):
        deltas.on_text(0, Completion((), text=text[:cut]))
    deltas.on_text(0, Completion((), text=text, finish_reason="stop"))
    rest, calls = split_calls(text)
    content = "".join(delta.get("content", "") for delta, _ in sent)
    found = [call for delta, _ in sent for call in delta.get("tool_calls", ())]
    assert content == rest
    assert [call["function"] for call in found] == [call["function"] for call in calls]
    assert [call["index"] for call in found] == list(range(len(calls)))
    assert [reason for _, reason in sent if reason] == ["tool_calls" if calls else "stop"]
    assert len(calls) == sum(piece.startswith("<tool_call>\n") for piece in pieces) or (
        "<tool_call>" in pieces or "<tool" in pieces or "</tool_call>" in pieces
    )
