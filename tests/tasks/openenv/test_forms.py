"""Conversion of texts to actions, and of observations to texts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_tasks.errors import FamilyError
from shoal_tasks.openenv.address import parse_address
from shoal_tasks.openenv.forms import (
    NotAnActionError,
    action_form,
    observation_form,
    strip_annotations,
)
from shoal_tasks.openenv.messages import (
    EnvironmentRaisedError,
    OpenEnvError,
    SessionLimitError,
    StepResult,
    parse_reply,
    reset_message,
    step_message,
)

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


def schema(required: list[str], **fields: Any) -> dict[str, Any]:
    return {"properties": {**fields, "metadata": {"type": "object"}}, "required": required}


@pytest.mark.parametrize(
    ("given_schema", "message", "action"),
    [
        (schema(["message"], message=TEXT), " as it is ", {"message": " as it is "}),
        (schema(["code"], code=TEXT, timeout=NUMBER), "{}", {"code": "{}"}),
        (schema([], only=TEXT), "x", {"only": "x"}),
        (schema(["action_id"], action_id=NUMBER), " 3\n", {"action_id": 3}),
        (schema(["flag"], flag={"type": "boolean"}), "true", {"flag": True}),
        (schema(["way"], way={"enum": ["up", "down"]}), "up", {"way": "up"}),
        (schema(["way"], way={"$ref": "#/$defs/W"}) | {"$defs": {"W": TEXT}}, "up", {"way": "up"}),
        (schema(["x"], x={"anyOf": [TEXT, {"type": "null"}]}), "up", {"x": "up"}),
        (schema(["a", "b"], a=TEXT, b=NUMBER), '{"a": "x", "b": 2}', {"a": "x", "b": 2}),
        (schema([], a=TEXT, b=TEXT), '{"b": "y"}', {"b": "y"}),
        (schema(["list"], list={"type": "array"}), '{"list": [1]}', {"list": [1]}),
        ({}, '{"type": "list_tools"}', {"type": "list_tools"}),
    ],
)
def test_a_message_becomes_an_action(
    given_schema: dict[str, Any], message: str, action: dict[str, Any]
) -> None:
    assert action_form(given_schema).action(message) == action


@pytest.mark.parametrize(
    ("given_schema", "message"),
    [
        (schema(["n"], n=NUMBER), "three"),
        (schema(["n"], n=NUMBER), "[3]"),
        (schema(["n"], n=NUMBER), '"3"'),
        (schema(["n"], n=NUMBER), "null"),
        (schema(["n"], n=NUMBER), "NaN"),
        (schema(["n"], n=NUMBER), "9" * 5000),
        (schema(["a", "b"], a=TEXT, b=TEXT), "[1]"),
        (schema(["a", "b"], a=TEXT, b=TEXT), "[" * 100_000),
        (schema(["a", "b"], a=TEXT, b=TEXT), ""),
    ],
)
def test_a_message_that_is_no_action(given_schema: dict[str, Any], message: str) -> None:
    with pytest.raises(NotAnActionError):
        action_form(given_schema).action(message)


def test_a_task_file_names_the_field() -> None:
    two = schema(["a", "b"], a=TEXT, b=NUMBER)
    assert action_form(two, "a").action("x") == {"a": "x"}
    assert action_form(two, "b").action("3") == {"b": 3}
    with pytest.raises(FamilyError, match="no field 'c'; its fields are 'a', 'b'"):
        action_form(two, "c")
    with pytest.raises(FamilyError, match="neither a text nor a number"):
        action_form(schema(["l"], l={"type": "array"}), "l")


def test_an_observation_becomes_a_text() -> None:
    hidden = {"reward": NUMBER, "done": {"type": "boolean"}}
    assert observation_form(schema([], text=TEXT, **hidden)).text({"text": "é", "done": 1}) == "é"
    both = schema([], prompt=TEXT, legal=NUMBER, **hidden)
    found = {"prompt": "go", "legal": 2, "metadata": {"time": 3}, "reward": 1.0, "done": False}
    assert observation_form(both).text(found) == '{"legal":2,"prompt":"go"}'
    assert observation_form(both, "prompt").text(found) == "go"
    assert observation_form(both, "legal").text(found) == "2"
    # A reset may show other fields than a step.
    assert observation_form(both, "prompt").text({"legal": 2}) == '{"legal":2}'
    with pytest.raises(FamilyError, match="no field 'board'"):
        observation_form(both, "board")


def test_two_builds_of_one_schema_are_the_same() -> None:
    one = schema(["title"], title={**TEXT, "title": "Title", "description": "words"})
    other = schema(["title"], title={**TEXT, "description": "other words", "examples": [1]})
    assert strip_annotations(one) == strip_annotations(other)
    assert "title" in strip_annotations(one)["properties"]
    deep: Any = {}
    for _ in range(40):
        deep = {"items": deep}
    with pytest.raises(FamilyError, match="too deeply"):
        strip_annotations(deep)


@pytest.mark.parametrize(
    "text",
    ["ws://", "ftp://host", "ws://host:x", "ws://a@b", "ws://a/?q", "ws://a b", "x", "ws://[::1"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(FamilyError, match="is not the address of an OpenEnv server"):
        parse_address(text)


def test_addresses() -> None:
    one = parse_address("ws://[::1]:8000/env/ws")
    assert (one.host, one.port, one.path, one.host_header) == ("::1", 8000, "/env", "[::1]:8000")
    assert parse_address("https://host/").port == 443


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
DATA = st.fixed_dictionaries(
    {},
    optional={
        "observation": JSON | st.dictionaries(st.sampled_from(["text", "x"]), JSON),
        "reward": JSON,
        "done": JSON,
        "message": JSON,
        "code": JSON
        | st.sampled_from(["VALIDATION_ERROR", "EXECUTION_ERROR", "CAPACITY_REACHED", "?"]),
    },
)
ANSWER = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["observation", "error", "state"]) | JSON,
        "data": DATA | JSON,
    },
)


@settings(max_examples=300)
@given(answer=ANSWER | JSON, cut=st.integers(0, 400) | st.none())
def test_any_answer_is_an_observation_or_a_stated_error(answer: Any, cut: int | None) -> None:
    text = json.dumps(answer)[:cut]
    try:
        found = parse_reply(text)
    except (NotAnActionError, EnvironmentRaisedError, SessionLimitError, OpenEnvError) as error:
        assert "\n" not in str(error) and len(str(error)) < 300
    else:
        assert isinstance(found, StepResult) and abs(found.reward) <= 1e300
        assert isinstance(observation_form(schema([], text=TEXT)).text(found.observation), str)


@settings(max_examples=300)
@given(given_schema=JSON | DATA, wanted=st.text(max_size=3), message=st.text(max_size=30))
def test_any_schema_is_used_or_refused(given_schema: Any, wanted: str, message: str) -> None:
    try:
        form = action_form(given_schema, wanted)
        observation_form(given_schema, wanted)
        strip_annotations(given_schema)
        step_message(form.action(message))
    except (FamilyError, NotAnActionError):
        pass


def test_what_is_sent() -> None:
    assert json.loads(reset_message(7)) == {
        "type": "reset",
        "data": {"seed": 7, "episode_id": "shoal-7"},
    }
    assert json.loads(step_message({"m": "\ud800é"})) == {"type": "step", "data": {"m": "\ud800é"}}
    with pytest.raises(NotAnActionError):
        step_message({"n": float("inf")})
