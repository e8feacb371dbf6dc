"""Hostile programs earn nothing with any format of tests, and the next program is tested."""

from __future__ import annotations

from typing import Any

import pytest

from shoal_tasks.unit_tests.forms import read_tests
from shoal_tasks.unit_tests.runner import Outcome, TestRunner
from tests.tasks.unit_tests import hostile

STYLES = {
    "equal": "assert candidate(3) == 40",
    "reversed": "assert 40 == candidate(3)",
    "close": "assert abs(candidate(3) - 40) < 1e-6",
    "is-close": "import math\n    assert math.isclose(candidate(3), 40)",
    "member": "assert 40 in candidate(3)",
    "one-of": "assert candidate(3) in (40, 41)",
    "sorted": "assert sorted(candidate(3)) == [1, 40]",
    "set": "assert set(candidate(3)) == {40}",
    "item": "assert candidate(3)[0] == 40",
    "key": "assert candidate(3)['x'] == 40",
    "length": "assert len(candidate(3)) == 40",
    "text": "assert str(candidate(3)) == '40'",
    "method": "assert candidate(3).count(40) == 2",
    "type": "assert isinstance(candidate(3), int) and candidate(3) == 40",
    "numpy": "import numpy as np\n    assert np.allclose(candidate(3), [40.0, 1.0])",
    "not-different": "assert not candidate(3) != 40",
    "unittest": "import unittest\n    unittest.TestCase().assertEqual(candidate(3), 40)",
    "raises": (
        "try:\n        candidate(3)\n        raise AssertionError('nothing raised')\n"
        "    except KeyError as error:\n        assert error.args == (40,)"
    ),
    "two-calls": "assert candidate(3) == candidate(4)\n    assert candidate(3) == 40",
}
"""How tests use a result; a hostile one passes none."""
SCRIPT = read_tests({"input_output": {"inputs": ["3\n"], "outputs": ["40\n"]}}, {}, "row 1")
TABLE = read_tests(
    {"input_output": {"fn_name": "f", "inputs": [[3]], "outputs": [40]}}, {}, "row 1"
)


def function_tests(body: str) -> dict[str, Any]:
    row = {"test": f"def check(candidate):\n    {body}\n", "entry_point": "f"}
    return read_tests(row, {}, "row 1")


def all_styles() -> dict[str, Any]:
    """Return tests that use a result in every way and always fail, naming what was fooled."""
    text = "fooled = []\n" + "".join(
        f"def look_{number}(candidate):\n    {body}\n"
        for number, body in enumerate(STYLES.values())
    )
    text += "def check(candidate):\n"
    for number, name in enumerate(STYLES):
        text += (
            f"    try:\n        look_{number}(candidate)\n        fooled.append({name!r})\n"
            "    except Exception:\n        pass\n"
        )
    text += "    raise RuntimeError(f'fooled: {fooled}')\n"
    return read_tests({"test": text, "entry_point": "f"}, {}, "row 1")


ALL_STYLES = all_styles()
EQUAL = function_tests(STYLES["equal"])


def outcome_of(runner: TestRunner, tests: dict[str, Any], program: str, seconds: float) -> Outcome:
    return runner.run(tests, program.replace("TARGET", "f"), seconds)


def refuse(runner: TestRunner, tests: dict[str, Any], program: str, seconds: float = 2.0) -> None:
    outcome = outcome_of(runner, tests, program, seconds)
    assert outcome.error and "\n" not in outcome.error, program
    right = "print(40)" if tests is SCRIPT else "def TARGET(n):\n    return 40"
    if tests in (SCRIPT, EQUAL, TABLE):
        assert outcome_of(runner, tests, right, 5.0).error == ""


QUICK = {**hostile.ENDINGS, **hostile.PATCHES}


@pytest.mark.parametrize("name", QUICK)
def test_what_ends_or_patches_earns_nothing(name: str, runner: TestRunner) -> None:
    for made in (hostile.at_the_top, hostile.in_the_call):
        refuse(runner, EQUAL, made(QUICK[name]))
        refuse(runner, TABLE, made(QUICK[name]))
    refuse(runner, SCRIPT, QUICK[name] + "\nprint(4)")


@pytest.mark.parametrize("name", hostile.OBJECTS)
def test_no_object_is_equal_to_what_a_test_expects(name: str, runner: TestRunner) -> None:
    program = hostile.returning(hostile.OBJECTS[name])
    outcome = outcome_of(runner, ALL_STYLES, program, 1.0)
    assert outcome.timed_out or "fooled: []" in outcome.error or "ended" in outcome.error
    refuse(runner, TABLE, program)


ENDED = "def TARGET(n):\n    import os\n    os._exit(0)"
FLOOD = (
    "def TARGET(n):\n    try:\n        print('x' * (9 << 20), flush=True)\n"
    "    except OSError: pass\n    return 40"
)


def test_tests_that_swallow_everything_do_not_pass_a_program_that_has_ended(
    runner: TestRunner,
) -> None:
    body = "try:\n        candidate(3)\n    except BaseException:\n        pass"
    refuse(runner, function_tests(body), ENDED)


def test_a_flood_of_output_earns_nothing_even_with_the_right_answer(runner: TestRunner) -> None:
    assert outcome_of(runner, EQUAL, FLOOD, 5.0).error == "it prints too much"


def test_no_test_is_in_the_memory_of_the_tested_code(runner: TestRunner) -> None:
    secret = "the-secret-of-" + "a-row"
    tests = function_tests(f"assert candidate(3) == 40, {secret!r}")
    program = (
        "import gc\ndef TARGET(n):\n    words = []\n    for o in gc.get_objects():\n"
        "        for r in gc.get_referents(o):\n"
        "            if type(r) is str and 'the-secret-of-' in r and len(r) > 16:\n"
        "                words.append(r)\n    assert not words, words\n    return 40"
    ).replace("'the-secret-of-'", "'the-secret' + '-of-'")
    for _ in range(2):
        assert outcome_of(runner, tests, program, 5.0).error == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", hostile.LOOPS)
def test_what_takes_for_ever_ends_and_earns_nothing(name: str, runner: TestRunner) -> None:
    code = hostile.LOOPS[name]
    for made in (hostile.at_the_top, hostile.in_the_call):
        refuse(runner, EQUAL, made(code), 1.0)
    refuse(runner, SCRIPT, code, 1.0)


def test_the_code_calls_nothing_in_the_tests_process_but_what_it_was_given(
    runner: TestRunner,
) -> None:
    assert outcome_of(runner, EQUAL, hostile.MAKES_A_CLASS, 2.0).error
    handed = function_tests("assert candidate(lambda f, *a: f(*a)) == 40")
    assert outcome_of(runner, handed, hostile.MAKES_A_CLASS, 2.0).error
    by_way_of_the_tests = "def TARGET(call):\n    return call(type, 'E', (), {'__eq__': bool})()"
    assert outcome_of(runner, handed, by_way_of_the_tests, 2.0).error


@pytest.mark.parametrize("published", ["import math\ndef f(n):\n    return 40.0", ""])
def test_a_module_that_tests_use_is_never_the_codes_own(published: str, runner: TestRunner) -> None:
    row: dict[str, Any] = {"test_list": ["assert math.isclose(f(3), 40)"], "code": published}
    tests = read_tests(row, {}, "row 1")
    forged = "class math:\n    isclose = lambda *a, **k: True\ndef f(n):\n    return 1.0"
    assert outcome_of(runner, tests, forged, 5.0).error
    assert outcome_of(runner, tests, "import math\ndef f(n):\n    return 40.0", 5.0).error == ""


def test_names_that_the_solution_does_not_define_are_not_taken_from_the_code(
    runner: TestRunner,
) -> None:
    row: dict[str, Any] = {
        "test_list": ["assert close(f(3), 40)"],
        "code": "def f(n):\n    return 40.0",
    }
    tests = read_tests(row, {}, "row 1")
    forged = "def close(*a):\n    return True\ndef f(n):\n    return 1.0"
    assert "NameError" in outcome_of(runner, tests, forged, 5.0).error


@pytest.mark.parametrize("body", ["assert abs(candidate(3) - 40) < 1e-6", STYLES["is-close"]])
def test_the_code_defines_only_requested_names(body: str, runner: TestRunner) -> None:
    assert outcome_of(runner, function_tests(body), hostile.NAMES_MORE, 2.0).error
