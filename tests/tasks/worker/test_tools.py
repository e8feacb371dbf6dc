"""Tools for environments: calls in every form, and a game that is won by one."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_tasks.families import TRAIN_SEED_MIN, coordinates
from shoal_tasks.spec import FamilySpec
from shoal_tasks.task_file import load_task_file
from shoal_tasks.turns import join_messages
from shoal_tasks.types import PlayRequest
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_tasks.worker.tools import (
    CALCULATOR,
    MAX_CALL_CHARS,
    PYTHON,
    answer_call,
    calculate,
    call_in,
    offer,
)
from tests.support.task_files import score_of
from tests.tasks.here import HereWorker
from tests.tasks.test_documented_family import block

BOTH = (CALCULATOR, PYTHON)


@pytest.mark.parametrize(
    ("message", "seen"),
    [
        ("<calculator>12 * 34</calculator>", "<result>408</result>"),
        ("I need <python>print(12 * 34)</python> now", "<result>408</result>"),
        (
            '<tool_call>\n{"name": "calculator", "arguments": {"expression": "8"}}\n</tool_call>',
            "<tool_response>\n8\n</tool_response>",
        ),
        (
            '<think>so</think><tool_call>{"name": "python", "arguments": {"code": "x=2\\nx*3"}}',
            "<tool_response>\n6\n</tool_response>",
        ),
        (
            '<|python_tag|>{"name": "calculator", "parameters": {"expression": "1+1"}}',
            "<tool_response>\n2\n</tool_response>",
        ),
        (
            '{"name": "calculator", "parameters": {"any": "1+1"}}<|eom_id|>',
            "<tool_response>\n2\n</tool_response>",
        ),
        ('{"name": "calculator", "arguments": "1+1"}', "<tool_response>\n2\n</tool_response>"),
        ("<calculator>1+1</calculator><python>3</python>", "<result>2</result>"),
        ("<calculator>one</calculator>", "<result>error: no name one</result>"),
        ("<calculator>" + "1" * 5000 + "</calculator>", "<result>error: too long</result>"),
        ("408", None),
        ("<calculator>12 * 34", None),
        ("</calculator>1<calculator>", None),
        ('{"name": "shell", "arguments": {"x": "ls"}}', None),
        ('{"name": ["calculator"], "arguments": "1"}', None),
        ('{"name": "calculator"}', None),
        ('{"name": "calculator", "arguments": {"a": "1", "b": "2"}}', None),
        ("<tool_call>" + "[" * 9000, None),
        ("<tool_call>not json</tool_call>", None),
    ],
)
def test_a_call_is_read_in_every_form_and_answered_in_its_own(
    message: str, seen: str | None
) -> None:
    assert answer_call(message, BOTH) == seen


def test_only_what_is_offered_is_run() -> None:
    assert answer_call("<python>1</python>", (CALCULATOR,)) is None
    assert answer_call('{"name": "python", "arguments": {"code": "1"}}', (CALCULATOR,)) is None
    for name in BOTH:
        call = call_in(offer(name), BOTH)
        assert call is not None and call.name == name, "it shows a call"
        assert answer_call(offer(name), BOTH) == "<result>408</result>"


NUMBERS = st.one_of(st.integers(0, 10**9).map(str), st.sampled_from(["2", "0", "3.5", "10"]))
SUMS = st.recursive(
    NUMBERS,
    lambda inner: st.builds(
        "({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "//", "%", "/"]), inner
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(SUMS)
def test_the_calculator_is_right(expression: str) -> None:
    replied = calculate(expression)
    if replied.startswith("error"):
        return
    exact = re.fullmatch(r"[-0-9+*() ]+", expression) is not None
    try:
        expected = eval(expression)
    except ZeroDivisionError:
        raise AssertionError(replied) from None
    if exact:
        assert replied == str(expected)
    else:
        found = Fraction(replied)
        scale = max(1, *(abs(Fraction(one)) for one in re.findall(r"[0-9.]+", expression)))
        # `%` and `//` of a rounded number may jump: Python's result for the same operations is
        # close.
        assert (
            "%" in expression
            or "//" in expression
            or abs(found - Fraction(expected))
            <= (Fraction(1, 10**6) * max(scale, abs(Fraction(expected))))
        )


@pytest.mark.parametrize(
    ("expression", "replied"),
    [
        ("2^10", "1024"),
        ("7/2", "3.5"),
        ("8/2", "4"),
        ("sqrt(2)", "1.4142135623730951"),
        ("5!", "120"),
        ("-3 + 5", "2"),
        ("1/0", "error: division by zero"),
        ("9**9**9", "error: number too long"),
        ("2**0.3", "error: a power must be of whole numbers"),
        ("sqrt(-1)", "error: sqrt does not take this"),
        ("exec('1')", "error: not arithmetic"),
        ("999!", "error: number too long"),
        ("round(2.5, 10**9)", "error: round does not take this"),
        ("", "error: not one expression"),
    ],
)
def test_what_the_calculator_says(expression: str, replied: str) -> None:
    assert calculate(expression) == replied


@settings(max_examples=300)
@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(list("0123456789+-*/%^!().,eE ")), max_size=40).map("".join)
)
def test_any_text_is_calculated_or_an_error(text: str) -> None:
    assert calculate(text) == calculate(text)
    for message in (text, f"<calculator>{text}</calculator>", '{"name": "python", ' + text):
        seen = answer_call(message, BOTH)
        assert seen is None or len(seen) < MAX_CALL_CHARS


def documented(folder: Path) -> FamilySpec:
    """The family that the page shows."""
    (folder / "product.py").write_text(block("python", "answer_call"))
    (folder / "product.toml").write_text(block("toml", "product.py"))
    return load_task_file(folder / "product.toml")


def test_in_the_documented_game_the_tool_makes_the_difference(tmp_path: Path) -> None:
    """A scripted policy: it copies the numbers, and multiplies by the tool or by itself.

    By itself it gets the first and the last digits right, as a small model may at best.
    """
    spec = documented(tmp_path)
    earned: dict[str, float] = {}
    with HereWorker([spec]) as worker:
        tasks = [coordinates(spec, TRAIN_SEED_MIN, index) for index in range(40)]
        requested = worker.questions(tasks)
        for way in ("tool", "alone"):
            played = []
            for task, question in zip(tasks, requested, strict=True):
                left, right = re.findall(r"\d+", question)[:2]
                if way == "tool":
                    call = f"<calculator>{left} * {right}</calculator>"
                    (seen,) = worker.play([PlayRequest(task=task, messages=(call,))])
                    assert not seen.done and not seen.error
                    answer = re.sub(r"</?result>", "", seen.observations[0])
                    messages = [call, answer]
                else:
                    near = str(int(left[:2]) * int(right[:2]))
                    messages = [near[:2] + "0" * 3 + str(int(left[-1]) * int(right[-1]))[-1]]
                played.append(score_of(task, join_messages(messages)))
            rewards = [result.reward for result in worker.score(played)]
            earned[way] = sum(rewards) / len(rewards)
    assert earned == {"tool": 1.0, "alone": 0.0}


def test_a_program_in_a_message_runs_inside_the_sandbox_and_evaluates_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "any.py").write_text(
        "from shoal_tasks.worker.tools import PYTHON, answer_call\n"
        "class Game:\n"
        "    def reset(self, seed):\n"
        "        return 'go'\n"
        "    def step(self, message):\n"
        "        return answer_call(message, (PYTHON,)) or 'none', 0.0, False\n"
    )
    (tmp_path / "any.toml").write_text('name = "any"\nenvironment = "any.py"\n')
    spec = load_task_file(tmp_path / "any.toml")
    messages = (
        "<python>print(2 ** 100)</python>",
        "<python>__import__('os').getcwd()</python>",
        "<python>while True:\n  pass</python>",
    )
    with SyncTaskWorker([spec]) as worker:
        (play,) = worker.play(
            [PlayRequest(task=coordinates(spec, TRAIN_SEED_MIN), messages=messages)]
        )
    assert play.error == ""
    assert play.observations == (
        f"<result>{2**100}</result>",
        "<result>error: no such function</result>",
        "<result>error: too many steps</result>",
    )
