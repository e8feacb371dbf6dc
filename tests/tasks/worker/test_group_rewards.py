"""Rewards in TRL's form: groups, messages, coroutines, None, weights, names, odd results."""

from __future__ import annotations

import asyncio
import itertools
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal_tasks.errors import FamilyError
from shoal_tasks.families import coordinates
from shoal_tasks.spec import FamilySpec
from shoal_tasks.task_file import load_task_file
from shoal_tasks.types import GroupRequest
from shoal_tasks.worker.reward_function import RESERVED
from shoal_tasks.worker.reward_values import range_hint, read_values, weighted_sum
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.types import FinishReason
from tests.support.task_files import task_file
from tests.tasks.here import HereWorker
from tests.tasks.worker.test_refusals import ROWS, TASK, family

STOP = FinishReason.STOP
HEAD = "def reward(completions, **kwargs):\n"


def earned(worker: SyncTaskWorker, spec: FamilySpec, *texts: str) -> list[float]:
    request = GroupRequest(task=coordinates(spec, TASK), answers=tuple((t, STOP) for t in texts))
    ((*results,),) = worker.score_groups([request])
    assert not any(one.error for one in results), results
    return [one.reward for one in results]


def here(spec: FamilySpec) -> HereWorker:
    return HereWorker([spec])


COMPARES = (
    f"{HEAD}    longest = max(map(len, completions))\n"
    "    return [float(len(text) == longest) for text in completions]\n"
)


def test_a_reward_may_compare_the_answers_of_its_group(tmp_path: Path) -> None:
    spec = family(tmp_path, COMPARES)
    with SyncTaskWorker([spec]) as one, SyncTaskWorker([spec]) as other:
        for texts in (("a", "bb", "bb"), ("a",), ("a", "a"), ("bb", "a", "ccc")):
            assert earned(one, spec, *texts) == earned(other, spec, *texts)
        assert earned(one, spec, "a", "bb", "bb") == [0.0, 1.0, 1.0]
        assert earned(one, spec, "a", "a") == [1.0, 1.0]


def test_every_argument_is_as_long_as_the_group(tmp_path: Path) -> None:
    source = (
        "def reward(prompts, completions, completion_ids, answer, tags, log_extra, log_metric,"
        " trainer_state=None, **more):\n"
        "    log_extra('x', completions); log_metric('y', 1.0)\n"
        "    given = (prompts, completion_ids, answer, tags, *more.values())\n"
        "    assert {len(one) for one in given} == {len(completions)}, given\n"
        "    assert completion_ids == [list(t.encode()) for t in completions]\n"
        "    for one in tags: one.append('mine')\n"
        "    assert tags == [['x', 'mine']] * len(completions)\n"
        "    return [float(t == a) for t, a in zip(completions, answer)]\n"
    )
    (tmp_path / "reward.py").write_text(source)
    rows = [{**row, "tags": ["x"]} for row in ROWS]
    path = task_file(tmp_path, "mine", rows, reward="reward.py")
    spec = load_task_file(path)
    with here(spec) as worker:
        (item,) = worker.items([coordinates(spec, TASK)])
        assert earned(worker, spec, str(item.answer), "é", "") == [1.0, 0.0, 0.0]


PARTS = {
    "text": "c",
    "messages": "c[0]['content']",
    "either": "(c if isinstance(c, str) else c[0]['content'])",
    "get": "c[-1].get('content', '')",
}


@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize("is_swallowing", [False, True])
@pytest.mark.parametrize("prompts", ["", "p", "p[-1]['content']"])
def test_texts_or_messages_are_found_out(
    tmp_path: Path, kind: str, is_swallowing: bool, prompts: str
) -> None:
    lines = ["found = []", "for p, c, a in zip(prompts, completions, answer):"]
    body = f"found.append(float({PARTS[kind]} == a))"
    if prompts:
        body = f"found.append(float({PARTS[kind]} == a and a in {prompts}))"
    if is_swallowing:
        lines += ["    try:", f"        {body}", "    except Exception:", "        found.append(0)"]
    else:
        lines.append(f"    {body}")
    text = "\n".join(f"    {line}" for line in [*lines, "return found"])
    spec = family(tmp_path, f"def reward(prompts, completions, answer):\n{text}\n")
    with here(spec) as worker:
        (item,) = worker.items([coordinates(spec, TASK)])
        assert earned(worker, spec, str(item.answer), "no") == [1.0, 0.0]


@pytest.mark.parametrize(
    "wait",
    [
        "pass",
        "await asyncio.sleep(0)",
        "await asyncio.sleep(600)",
        "await asyncio.gather(*[asyncio.sleep(n) for n in range(9)])",
        "assert await asyncio.to_thread(len, 'ab') == 2",
        "async with asyncio.timeout(5): await asyncio.sleep(1)",
        "await asyncio.wait_for(asyncio.sleep(1, 7), 9)",
        "asyncio.create_task(asyncio.sleep(99))",
        "async with asyncio.Semaphore(1): pass",
    ],
)
@pytest.mark.parametrize("is_own_loop", [False, True])
def test_a_reward_may_be_asynchronous(tmp_path: Path, wait: str, is_own_loop: bool) -> None:
    body = f"    {wait}\n    return [float(t == '1') for t in completions]\n"
    source = f"import asyncio\nasync {HEAD}{body}"
    if is_own_loop:
        source = f"import asyncio\nasync def inner(completions):\n{body}"
        source += f"{HEAD}    return asyncio.run(inner(completions))\n"
    policy = asyncio.get_event_loop_policy()
    try:
        with here(spec := family(tmp_path, source)) as worker:
            assert earned(worker, spec, "1", "2") == [1.0, 0.0]
    finally:
        asyncio.set_event_loop_policy(policy)


def test_several_functions_with_weights_and_without_an_opinion(tmp_path: Path) -> None:
    (tmp_path / "form.py").write_text(f"{HEAD}    return ['<' in t for t in completions]\n")
    source = (
        "def score(completions, answer):\n"
        "    return [None if t == '?' else float(a in t) for t, a in zip(completions, answer)]\n"
    )
    fields = {"reward": ["form.py", "reward.py:score"], "reward_weights": [0.25, 0.5]}
    spec = family(tmp_path, source, **fields)
    with here(spec) as worker:
        (item,) = worker.items([coordinates(spec, TASK)])
        right = str(item.answer)
        found = earned(worker, spec, f"<{right}", right, "<", "?", "no")
        assert found == [0.75, 0.5, 0.25, 0.0, 0.0]
    assert family(tmp_path, source, **{**fields, "reward_weights": [1, 1]}).digest != spec.digest
    with pytest.raises(FamilyError, match="names 2 functions, but reward_weights has 1 weights"):
        family(tmp_path, source, **{**fields, "reward_weights": [1]})


@pytest.mark.parametrize("name", RESERVED)
def test_a_column_with_the_name_of_an_argument_is_left_out_and_named(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "reward.py").write_text(f"{HEAD}    return ['1' in t for t in completions]\n")
    rows = [{**row, name: ["1", "1"]} for row in ROWS]
    spec = load_task_file(task_file(tmp_path, "mine", rows, reward="reward.py"))
    with here(spec) as worker:
        assert earned(worker, spec, "1", "2") == [1.0, 0.0]
        (note,) = worker.answerer.notes
        assert repr(name) in note and "not passed to the reward" in note


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (True, 1.0),
        (3, 3.0),
        (None, None),
        (float("nan"), None),
        (Decimal("0.5"), 0.5),
        (Fraction(1, 4), 0.25),
        (np.float32(0.5), 0.5),
        (np.int64(2), 2.0),
        (np.bool_(True), 1.0),
        (np.array(0.5), 0.5),
    ],
)
@pytest.mark.parametrize("form", [list, tuple, iter, lambda values: np.array(values, dtype=object)])
def test_whatever_is_one_number_is_one(given: Any, read: float | None, form: Any) -> None:
    assert read_values(form([given, 0]), 2) == [read, 0.0]


@pytest.mark.parametrize(
    "odd", ["x", b"x", 1.0, {0: 1}, {1.0, 2.0}, np.zeros((2, 1)), np.array(1.0), None, object()]
)
def test_what_is_no_list_of_numbers_is_refused_in_one_line(odd: Any) -> None:
    with pytest.raises(ValueError, match="return a list with one number for each completion"):
        read_values(odd, 2)


@pytest.mark.parametrize(
    "odd", ["1.0", b"1", [1.0], np.array([1.0]), 1j, np.complex128(1), {}, object(), 10**400]
)
def test_what_is_no_number_is_refused_in_one_line(odd: Any) -> None:
    with pytest.raises(ValueError, match="return a list with one number") as caught:
        read_values([0.0, odd], 2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("low", [-2, 0, 0.5])
@pytest.mark.parametrize("values", [(3, -2.5), (7,), (-9,), (0.123456, 4)])
def test_the_range_that_is_proposed_holds_what_was_returned(
    low: float, values: tuple[float, ...]
) -> None:
    clause = range_hint(values, [low, 1])
    assert clause.count("\n") == 0
    proposed = eval(clause.partition("reward_range = ")[2])
    assert range_hint([*values, low, 1], proposed) == ""


def test_a_sum_leaves_out_who_has_no_opinion() -> None:
    for values in itertools.product((None, 0.5, 2.0), repeat=3):
        there = [(v, w) for v, w in zip(values, (1, 2, 4), strict=True) if v is not None]
        assert weighted_sum(values, (1, 2, 4)) == sum(v * w for v, w in there)


def test_the_trainers_state_is_refused_by_name_where_it_is_looked_into(tmp_path: Path) -> None:
    source = "def reward(completions, trainer_state):\n    return [trainer_state.global_step]\n"
    with pytest.raises(FamilyError, match="trainer_state"):
        here(family(tmp_path, source))
    source = "def reward(completions, environments):\n    return [1.0 for _ in completions]\n"
    with pytest.raises(FamilyError, match="requires `environments`"):
        here(family(tmp_path, source))


def test_two_files_cannot_change_each_other(tmp_path: Path) -> None:
    hostile = "import json\njson.loads = lambda text: 1\n"
    one = family(tmp_path / "a", f"{hostile}{HEAD}    return [0.5 for _ in completions]\n")
    body = "    return [float(json.loads('0') == 0) for t in completions]\n"
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "reward.py").write_text(f"import json\n{HEAD}{body}")
    other = load_task_file(task_file(tmp_path / "b", "other", ROWS, reward="reward.py"))
    with SyncTaskWorker([one, other]) as worker:
        assert earned(worker, other, "x") == [1.0]
