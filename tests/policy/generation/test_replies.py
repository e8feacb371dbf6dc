"""Whatever JSON a server sends is an answer that holds together, or a Fault."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_policy.generation.replies import (
    BadReplyError,
    ExpectedReply,
    read_answer,
    read_token_answers,
)

SPOKEN: dict[str, Any] = {
    "model": "theirs",
    "usage": {"completion_tokens": 2},
    "choices": [
        {
            "index": 0,
            "message": {"content": "7"},
            "text": "7",
            "finish_reason": "stop",
            "token_ids": [5, 2],
            "prompt_token_ids": [3, 4],
            "logprobs": {
                "token_logprobs": [-1.0, -0.5],
                "content": [{"logprob": -1.0}, {"logprob": -0.5}],
            },
        }
    ],
}
WANTED = ExpectedReply(
    model="theirs",
    prompt_ids=[3, 4],
    num_completions=1,
    max_tokens=3,
    vocabulary=9,
    eos_ids=frozenset({2}),
)
ODD: tuple[Any, ...] = (
    *(None, True, 10**400, -(10**400), 1 << 64, -1, 0, 1, 2, 0.5, 1e308, math.nan, math.inf),
    *("", "\ud800", "stop", "length", "theirs", [], [[]], {}, [10**400, -1.0], [-1.0, None]),
)
VALUES = st.recursive(
    st.sampled_from(ODD) | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield from places(value[key], (*path, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of a document with something else in one place."""
    if not path:
        return new
    changed = value.copy()
    changed[path[0]] = put(value[path[0]], path[1:], new)
    return changed


PLACES = sorted(places(SPOKEN), key=repr)


@given(path=st.sampled_from(PLACES), new=VALUES)
def test_what_is_read_holds_together_or_is_a_fault(path: tuple[Any, ...], new: Any) -> None:
    holds_together(path, new)


def test_odd_values_in_every_place_are_none_the_worse() -> None:
    for path, new in itertools.product(PLACES, ODD):
        holds_together(path, new)


def holds_together(path: tuple[Any, ...], new: Any) -> None:
    body = json.dumps(put(SPOKEN, path, new)).encode()
    for chat in (True, False):
        try:
            one = read_answer(body, chat=chat)
        except BadReplyError as fault:
            assert len(str(fault).splitlines()) == 1
            continue
        one.text.encode()
        assert 0 < one.num_tokens < 1 << 24
    try:
        found = read_token_answers(body, WANTED)
    except BadReplyError as fault:
        assert len(str(fault).splitlines()) == 1
        return
    assert len(found) == WANTED.num_completions
    for answer in found:
        assert 0 < len(answer.ids) <= WANTED.max_tokens
        assert all(type(each) is int and 0 <= each < WANTED.vocabulary for each in answer.ids)
        assert len(answer.logprobs) in (0, len(answer.ids))
        assert all(math.isfinite(value) for value in answer.logprobs)


def test_the_reply_that_is_changed_is_a_good_one() -> None:
    body = json.dumps(SPOKEN).encode()
    assert [read_answer(body, chat=chat).num_tokens for chat in (True, False)] == [2] * 2
    assert [answer.ids for answer in read_token_answers(body, WANTED)] == [(5, 2)]


@pytest.mark.parametrize("sent", [0, 1, 2, 3, 4])
def test_answers_of_the_policy_are_all_there_or_the_reply_is_a_fault(sent: int) -> None:
    [choice] = SPOKEN["choices"]
    choices = [choice | {"index": number} for number in range(sent)]
    body = json.dumps(SPOKEN | {"choices": choices}).encode()
    expected = replace(WANTED, num_completions=3)
    if sent == 3:
        assert len(read_token_answers(body, expected)) == 3
        return
    with pytest.raises(BadReplyError):
        read_token_answers(body, expected)
