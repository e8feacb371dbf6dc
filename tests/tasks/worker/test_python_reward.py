"""Python reward functions: their arguments, their permissions, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_tasks.errors import FamilyError, TaskError
from shoal_tasks.families import coordinates
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.rows import parse_rows
from shoal_tasks.sandbox.audit import AuditGuard
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import specs_of, starting_families
from shoal_tasks.task_file import load_task_file
from shoal_tasks.types import ScoreResult
from shoal_tasks.worker.item_limit import ItemLimit
from shoal_tasks.worker.python_reward import PythonReward
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_tasks.worker.user_code import CHECK_EVERY, UserCodeError, preload_imports
from shoal_wire.manifest import make_manifest
from shoal_wire.types import FinishReason
from tests.support.task_files import score_of, task_file
from tests.tasks.here import HereWorker

ROWS = [{"question": f"Say {n}", "answer": str(n), "level": n % 3} for n in range(12)]
ADVICE = "return a list with one number for each completion"
HEAD = "def reward(completions, **columns):\n"
TASK = 1 << 20  # row 4 of 11: the last one is held out


def family(folder: Path, source: str, **fields: object) -> FamilySpec:
    """Return a family of `ROWS` that is rewarded by `source`."""
    (folder / "reward.py").write_text(source)
    return load_task_file(task_file(folder, "mine", ROWS, **{"reward": "reward.py", **fields}))


def scored(
    spec: FamilySpec, *texts: str, finish: FinishReason = FinishReason.STOP
) -> list[ScoreResult]:
    limits = WorkerLimits(item_cpu_seconds=0.2, request_timeout_seconds=30.0)
    with HereWorker([spec], limits=limits) as worker:
        return worker.score([score_of(coordinates(spec, TASK), text, finish) for text in texts])


def earned(spec: FamilySpec, *texts: str) -> list[float]:
    return [result.reward for result in scored(spec, *texts)]


def test_it_is_given_the_completion_the_question_and_every_column(tmp_path: Path) -> None:
    source = (
        "def reward(prompts, completions, answer, level, **columns):\n"
        "    assert prompts[0] == 'Say ' + answer[0] and columns['question'] == prompts\n"
        "    return [0.25 * level[0] if text == answer[0] else 0.1 for text in completions]\n"
    )
    row = ROWS[TASK % 11]
    right = 0.25 * int(row["level"])  # type: ignore[call-overload]
    assert earned(family(tmp_path, source), str(row["answer"]), "x") == [right, 0.1]


def test_it_may_take_less_and_may_call_what_it_imports(tmp_path: Path) -> None:
    source = (
        "import re, math\nfrom collections import Counter\nfrom xml.etree import ElementTree\n"
        "def score(completions):\n"
        "    ElementTree.fromstring('<a/>')\n"
        "    return [math.tanh(Counter(re.findall('a', completions[0]))['a'])]\n"
    )
    spec = family(tmp_path, source, reward="reward.py:score")
    assert earned(spec, "", "a") == [0.0, pytest.approx(0.7616, abs=1e-4)]


def test_a_range_is_mapped_and_what_is_outside_counts_as_its_end(tmp_path: Path) -> None:
    source = f"{HEAD}    return [float(text or 0) for text in completions]\n"
    source = source.replace("float(text or 0)", "NUMBERS.get(text, 0)")
    source = f"NUMBERS = {{'up': 3, 'down': -9, 'none': None, 'nan': float('nan')}}\n{source}"
    spec = family(tmp_path, source, reward_range=[-1, 1])
    assert earned(spec, "up", "down", "none", "nan", "else") == [1, 0, 0.5, 0.5, 0.5]
    up, down, other = scored(spec, "up", "down", "else")
    assert "returned 3, outside reward_range [-1, 1]: write reward_range = [-1, 3]" in up.note
    assert down.note and not other.note
    assert spec.digest != family(tmp_path, source).digest


def test_a_swarm_that_is_started_with_it_finds_the_function_again(tmp_path: Path) -> None:
    family(tmp_path, f"{HEAD}    return [0.5]\n")
    files = [str(tmp_path / "mine.toml")]
    manifest = make_manifest("mine", starting_families("none", files))
    (spec,) = specs_of(manifest, files)
    assert earned(spec, "x") == [0.5]


def test_a_cut_completion_earns_half(tmp_path: Path) -> None:
    spec = family(tmp_path, f"{HEAD}    return [0.8]\n")
    assert [one.reward for one in scored(spec, "x", finish=FinishReason.LENGTH)] == [0.4]


def test_who_has_another_function_has_another_family(tmp_path: Path) -> None:
    spec = family(tmp_path, f"{HEAD}    return [1]\n")
    assert family(tmp_path, f"{HEAD}    return [0]\n").digest != spec.digest
    with pytest.raises(FamilyError, match=r"reward\.py is not the swarm's file"):
        HereWorker([spec])  # the file has changed since


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("def reward(completions:\n", r"reward\.py, line 1: "),
        ("x = 1\n", r"reward\.py has no function 'reward'"),
        ("import no_such_thing\n", r"line 1: cannot import no_such_thing"),
        ("from . import other\n", r"line 1: relative imports"),
        ("\nraise OSError('no')\n", r"line 2: OSError: no"),
        (f"{HEAD}    return [columns['nope']]\n", r"line 2: KeyError: 'nope'"),
        (f"{HEAD}    return 1.0\n", f"it returned 1.0: {ADVICE}"),
        (
            f"{HEAD}    return [1.0, 2.0]\n",
            f"it returned 2 numbers for [0-9]+ completions: {ADVICE}",
        ),
        (f"{HEAD}    return ['good']\n", f"it returned 'good' for a completion: {ADVICE}"),
        ("def reward(completions, nope):\n    return [1]\n", "missing 1 required"),
        (
            f"import random\n{HEAD}    return [random.random() for _ in completions]\n",
            "is not deterministic",
        ),
        (f"import time\n{HEAD}    return [time.time_ns() % 7]\n", "is not deterministic"),
        (f"N = []\n{HEAD}    N.append(1)\n    return [len(N)]\n", "is not deterministic"),
        (
            f"{HEAD}    return [id(columns) % 1000 / 1000 + hash(object())]\n",
            "is not deterministic",
        ),
        (f"{HEAD}    while True: pass\n", "processor time"),
        ("raise SystemExit\n", "line 1: SystemExit"),
        (f"import sys\n{HEAD}    sys.exit('no')\n", "line 3: SystemExit: no"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, source: str, cause: str
) -> None:
    # In this process: none of these needs the sandbox, and a worker takes a second to start.
    spec, data = family(tmp_path, source), source.encode()
    rows = parse_rows(Path(spec.path).read_bytes(), "rows")
    with pytest.raises(UserCodeError, match=cause) as caught:
        preload_imports(data, *spec.reward_paths)
        PythonReward(spec, [data], rows, ItemLimit(0.2), AuditGuard())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        (f"{HEAD}    return [len(open('/etc/passwd').read())]\n", "line 2: "),
        (
            f"import os, socket\n{HEAD}    try: socket.socket()\n"
            "    except PermissionError: os.system('true')\n",
            "line 3: the sandbox refuses the network",
        ),
        (f"{HEAD}    return [len('x' * (1 << 40))]\n", "MemoryError"),
    ],
)
def test_the_sandbox_holds_the_function_too(tmp_path: Path, source: str, cause: str) -> None:
    with pytest.raises(TaskError, match=cause):
        SyncTaskWorker([family(tmp_path, source)]).start()


def test_one_that_changes_later_is_found_and_its_family_refused(tmp_path: Path) -> None:
    source = f"N = []\n{HEAD}    N.append(1)\n    return [float(len(N) > 200 and len(N) % 2)]\n"
    spec = family(tmp_path, source)
    with pytest.raises(FamilyError, match="is not deterministic"):
        scored(spec, *map(str, range(200 + 2 * CHECK_EVERY)))


def test_an_error_costs_only_its_completion_and_is_reported_to_the_author(tmp_path: Path) -> None:
    source = f"{HEAD}    return [1 / (len(completions[0]) - 7)]\n"
    broken, fine = scored(family(tmp_path, source, reward_range=[-1, 1]), "seven77", "eight888")
    assert (broken.reward, fine.reward) == (0.0, 1.0)
    assert broken.error.endswith("reward.py, line 2: ZeroDivisionError: division by zero")
    assert not fine.error


def test_one_that_takes_too_long_is_worth_nothing_and_the_next_is_scored(tmp_path: Path) -> None:
    source = f"{HEAD}    while completions[0] == 'loop': pass\n    return [1]\n"
    slow, fine = scored(family(tmp_path, source), "loop", "x")
    assert (slow.reward, slow.timed_out, fine.reward) == (0.0, True, 1.0)


def test_two_receivers_give_any_completions_the_same(tmp_path: Path) -> None:
    source = (
        "import hashlib\n"
        f"{HEAD}    data = (columns['question'][0] + completions[0]).encode(errors='replace')\n"
        "    return [hashlib.sha256(data).digest()[0] / 255]\n"
    )
    spec = family(tmp_path, source)
    with SyncTaskWorker([spec]) as one, SyncTaskWorker([spec]) as other:

        @given(st.lists(st.tuples(st.integers(0, 99), st.text(max_size=50)), max_size=20))
        def both(requested: list[tuple[int, str]]) -> None:
            requests = [score_of(coordinates(spec, TASK + row), text) for row, text in requested]
            found = dict(zip(requests, one.score(requests), strict=True))
            assert [found[request] for request in requests[::-1]] == other.score(requests[::-1])
            assert all(0 <= result.reward <= 1 for result in found.values())

        both()
