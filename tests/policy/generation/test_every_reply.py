"""Own reward and clipped ratio are the server's, whatever kinds of reply it sends."""

from __future__ import annotations

import json
import random
import re
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shoal_policy import __main__ as command
from shoal_policy.generation.replies import BadReplyError, read_answer
from shoal_wire.types import FinishReason
from tests.policy.generation.vllm_cases import served_flags
from tests.policy.model_server import Handler, ModelServer
from tests.policy.training_cases import metrics
from tests.support.task_files import task_file

pytestmark = pytest.mark.usefixtures("as_it_was")

RIGHT = {"plain": "{}", "tagged": "so <answer>{}</answer>"}
CUT = {"plain": 0.0, "tagged": 0.5}
"""Rewards of a right answer whose end is missing."""


class Kind(NamedTuple):
    """A kind of reply; `text` stands for a right answer."""

    body: dict[str, Any]
    earns: str
    """"right", "cut" (right but for its end) or "nothing"."""
    is_cut: bool
    status: int = 200


def choice(content: Any, finish_reason: Any, **message: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **message}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}]}


CALL = [{"id": "1", "type": "function", "function": {"name": "sum", "arguments": "{}"}}]
FILTER = {"message": "withheld", "code": "content_filter"}
KINDS = {
    "whole": Kind(choice("text", "stop"), "right", False),
    "whole, in parts": Kind(
        choice([{"type": "thinking", "thinking": []}, {"type": "text", "text": "text"}], "stop"),
        *("right", False),
    ),
    "whole, other end": Kind(choice("text", "eos_token"), "right", False),
    "cut": Kind(choice("text", "length"), "cut", True),
    "cut while it thinks": Kind(
        choice(None, "length", reasoning_content="so 3 and 4 …"), "nothing", True
    ),
    "filtered": Kind(choice("text", "content_filter"), "cut", True),
    "filtered away": Kind(choice(None, "content_filter"), "nothing", True),
    "a filter's error": Kind({"error": FILTER}, "nothing", True, 400),
    "a filter's error with 200": Kind({"error": FILTER}, "nothing", True),
    "refused": Kind(choice(None, "stop", refusal="I cannot do that."), "nothing", False),
    "empty": Kind(choice("", "stop"), "nothing", False),
    "null": Kind(choice(None, "stop"), "nothing", False),
    "a tool call": Kind(choice(None, "tool_calls", tool_calls=CALL), "nothing", False),
    "a tool call with words": Kind(choice("hm", "tool_calls", tool_calls=CALL), "nothing", False),
    "an unknown end": Kind(choice("text", "out_of_credit"), "cut", True),
    "no end": Kind(choice("text", None), "cut", True),
    "no message": Kind({"choices": [{"index": 0, "finish_reason": "stop"}]}, "nothing", False),
    "a null message": Kind(
        {"choices": [{"message": None, "finish_reason": "length"}]}, "nothing", True
    ),
    "no choices": Kind({"choices": []}, "nothing", True),
    "null choices": Kind({"choices": None}, "nothing", True),
    "half a character": Kind(choice("7\ud83d", "stop"), "nothing", False),
}
ERRORS: dict[str, dict[str, Any] | list[Any]] = {
    "an error with 200": {"error": {"message": "overloaded", "code": 503}},
    "an error in words": {"error": "overloaded"},
    "an error and a choice": {"error": {"code": 500}, **choice("", "error")},
    "given up": choice("", "error"),
    "aborted": choice("half", "abort"),
    "no completion": {"object": "model"},
    "a list": [],
}
"""Replies that are no answers of a model."""


def filled(body: Any, right: str) -> Any:
    """The reply with a right answer where "text" stands."""
    text = json.dumps(body)
    for key in ("content", "text"):
        text = text.replace(f'"{key}": "text"', f'"{key}": {json.dumps(right)}')
    return json.loads(text)


class Mixed:
    """A server that replies each kind in turn, and counts what it earned."""

    def __init__(self, form: str) -> None:
        self._form = form
        self._lock = threading.Lock()
        self._kinds = list(KINDS) * 4
        random.Random(form).shuffle(self._kinds)
        self.rewards: list[float] = []
        self.num_cut = 0
        self.sent: Counter[str] = Counter()

    def __call__(self, handler: Handler, request: dict[str, Any]) -> bool:
        with self._lock:
            kind = KINDS[name := self._kinds.pop()]
            self.sent[name] += 1
            earned = {"right": 1.0, "cut": CUT[self._form], "nothing": 0.0}
            self.rewards.append(earned[kind.earns])
            self.num_cut += kind.is_cut
        number = re.findall(r"say (\d+)", json.dumps(request))[-1]
        body = filled(kind.body, RIGHT[self._form].format(number))
        if "prompt" in request:
            for one in body.get("choices") or ():
                one["text"] = (one.pop("message", None) or {}).get("content")
        handler.reply(kind.status, body)
        return True


@pytest.mark.parametrize(
    ("form", "more"),
    [
        pytest.param("plain", ["--role=generate", "--model=theirs"], marks=pytest.mark.slow),
        ("tagged", ["--role=generate", "--model=theirs", "--prompt=plain"]),
        ("plain", ["--remote-model=theirs", "--device=cpu", "--log=none"]),
        pytest.param(
            *("tagged", ["--remote-model=theirs", "--device=cpu", "--log=none"]),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["shares", "shares, no chat", "trains", "trains, tagged"],
)
def test_a_node_earns_what_its_server_earns(
    form: str, more: list[str], model: str, tmp_path: Path
) -> None:
    rows = [{"question": f"say {n} to me", "answer": str(n)} for n in range(40)]
    tasks = task_file(tmp_path, "numbers", rows, answer_format=form, held_out=0)
    fate = Mixed(form)
    with ModelServer(fate) as server:
        more = [*more, f"--tasks={tasks}", "--alone", "--completions=7", "--local=6"]
        if "--model=theirs" not in more:
            more.append(f"--model={model}")
        assert command.main(served_flags("openai", server.base_url, *more)) == 0
    rounds = metrics(Path("d"), "round")
    assert len(server.requests) == 2 * 6 * 7 == len(fate.rewards), "nothing is asked for twice"
    assert set(fate.sent) == set(KINDS)
    assert [row["local_completions"] for row in rounds] == [42, 42]
    for key, total in (
        ("reward_local", sum(fate.rewards)),
        ("completions/clipped_ratio", fate.num_cut),
    ):
        assert sum(row[key] for row in rounds) / 2 == pytest.approx(total / 84), key


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_no_answer_of_a_model_is_a_fault(name: str) -> None:
    for chat in (True, False):
        with pytest.raises(BadReplyError):
            read_answer(json.dumps(ERRORS[name]).encode(), chat=chat)


def test_an_unknown_end_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    body = json.dumps(choice("7", "a_new_reason")).encode()
    assert {read_answer(body, chat=True).finish_reason for _ in range(3)} == {FinishReason.LENGTH}
    [record] = caplog.records
    assert "'a_new_reason' is unknown" in record.getMessage()
