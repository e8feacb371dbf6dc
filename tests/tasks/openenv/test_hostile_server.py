"""Servers with arbitrary replies: each affects only its own family, in bounded time and memory."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal_tasks.errors import FamilyError, ServerUnavailable
from shoal_tasks.openenv import connection
from shoal_tasks.openenv.address import parse_address
from shoal_tasks.openenv.connection import MAX_ANSWER_BYTES, ResolvedServer, Session
from shoal_tasks.openenv.forms import NotAnActionError
from shoal_tasks.openenv.identity import describe
from shoal_tasks.openenv.messages import EnvironmentRaisedError, StepResult
from tests.tasks.openenv.servers import TEXT_SCHEMA, Wire, error, seen, served

WORDS = st.text(max_size=20)
ANSWER = st.one_of(
    st.binary(max_size=60),
    st.binary(max_size=8).map(lambda tail: b"\x81\x7e\xff\xff" + tail),
    st.binary(max_size=8).map(lambda tail: b"\x81\x7f\x00\x00\x00\x7f\xff\xff\xff\xff" + tail),
    st.just(b"\x88\x02\x03\xe8"),
    st.just(b"\x82\x02{}"),
    st.just(b"\x89\x01x" * 50),
    WORDS,
    st.builds(json.dumps, st.builds(seen, WORDS, st.floats() | st.none(), st.booleans())),
    st.builds(json.dumps, st.builds(error, WORDS, WORDS)),
    st.sampled_from([b"", None]),
)
"""Raw bytes, texts and nothing: possible replacements of a reply."""


def place(address: str) -> ResolvedServer:
    return ResolvedServer(parse_address(address), address)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(answers=st.lists(ANSWER, min_size=1, max_size=4))
def test_any_bytes_are_an_answer_or_a_server_that_is_away(
    answers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ANSWER_S", 5.0)
    left = iter(answers)
    wire = Wire(
        bend=lambda requested, honest: honest if requested["type"] == "reset" else next(left, b"")
    )
    with served(wire) as address, contextlib.closing(Session(place(address))) as session:
        monkeypatch.setattr(connection, "ANSWER_S", 0.1)
        for _ in answers:
            try:
                found = session.step({"message": "x"})
            except (NotAnActionError, EnvironmentRaisedError):
                assert session.is_open
            except ServerUnavailable as unavailable:
                assert "\n" not in str(unavailable) and not session.is_open
                return
            else:
                assert isinstance(found, StepResult)


def in_place_of_steps(raw: Callable[[], Any]) -> Callable[[dict[str, Any], str], Any]:
    """Honest replies to resets, and these bytes to everything else."""
    return lambda requested, honest: honest if requested["type"] == "reset" else raw()


def test_an_answer_that_does_not_end_is_given_up() -> None:
    length = b"\x7e\xff\xff"
    first, more = b"\x01" + length + b"x" * 65_535, b"\x00" + length + b"x" * 65_535
    wire = Wire(bend=in_place_of_steps(lambda: first + more * (2 * MAX_ANSWER_BYTES // 65_535)))
    cause = f"a reply of more than {MAX_ANSWER_BYTES} bytes"
    with served(wire) as address, contextlib.closing(Session(place(address))) as session:
        with pytest.raises(ServerUnavailable, match=cause):
            session.step({"message": "x"})
        assert not session.is_open


def test_an_answer_that_comes_byte_by_byte_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ANSWER_S", 0.5)

    def slowly() -> Iterator[bytes]:
        yield b"\x81\x7e\x03\xe8"  # a text of 1,000 bytes
        for _ in range(1000):
            time.sleep(0.02)
            yield b" "

    with (
        served(Wire(bend=in_place_of_steps(slowly))) as address,
        contextlib.closing(Session(place(address))) as session,
        pytest.raises(ServerUnavailable, match="it does not answer in time"),
    ):
        session.step({"message": "x"})


def test_a_server_without_a_place_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ANSWER_S", 0.3)
    with (
        served(Wire(max_sessions=1)) as address,
        contextlib.closing(Session(place(address))),
        pytest.raises(
            ServerUnavailable, match="all its sessions are in use: start it with max_conc"
        ),
    ):
        Session(place(address))


@pytest.mark.parametrize(
    ("wire", "cause"),
    [
        (Wire(metadata={"version": "1"}), "has no name"),
        (Wire(metadata={"name": "x" * 201}), "a name that is too long|one that is too long"),
        (Wire(metadata=[]), "not a JSON object"),  # type: ignore[arg-type]
        (Wire(schema={"action": 3}), "no JSON schema for its actions"),
        (Wire(schema={"action": {}, "observation": []}), "no JSON schema for its observations"),
        (Wire(schema={**TEXT_SCHEMA, "x": "y" * (1 << 21)}), "a reply of more than"),
        (Wire(bend=lambda _request, _honest: json.dumps(error("EXECUTION_ERROR"))), "be reset: no"),
        (Wire(bend=lambda _request, _honest: json.dumps(error("FACTORY_ERROR"))), "FACTORY_ERROR"),
        (Wire(bend=lambda _request, _honest: b"\x88\x02\x03\xe8"), "closed the session"),
    ],
)
def test_what_cannot_be_described_is_refused_in_one_line(wire: Wire, cause: str) -> None:
    with (
        served(wire) as address,
        pytest.raises((FamilyError, ServerUnavailable), match=cause) as caught,
    ):
        describe(place(address))
    assert "\n" not in str(caught.value)
