"""Families that each node scores by its own judge: agreement between nodes, and failures.

A judge here is a file like a user's. Its reply to a completion is written in the completion, so a
generator can make it return anything.
"""

from __future__ import annotations

import ast
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_policy.rollouts import Answer, OwnGroup, Question
from shoal_policy.tasks import MAX_EXTERNAL_S, MAX_GROUP_S, MissingReward, TaskSource
from shoal_tasks.errors import FamilyError
from shoal_tasks.families import EASY, GAMES_1, coordinates
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec, spec_to_json
from shoal_tasks.swarm import specs_of, starting_families
from shoal_tasks.task_file import load_task_file
from shoal_tasks.types import GroupRequest, ScoreResult
from shoal_tasks.worker import serving
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_tasks.worker.user_code import CHECK_EVERY
from shoal_wire.errors import ManifestError
from shoal_wire.manifest import make_manifest
from shoal_wire.types import Completion, FinishReason, Task
from tests.support import factories as make
from tests.support.servers import open_server
from tests.support.task_files import score_of, task_file
from tests.tasks.here import HereWorker
from tests.tasks.test_documented_family import block

ROWS = [{"question": f"Write about {n}"} for n in range(12)]
TASK = 1 << 20
CASES = 400
SAYS = """
import ast
def reward(completions, **columns):
    return ast.literal_eval(completions[0])
"""
LENGTH = "def reward(completions):\n    return [len(completions[0]) / 10]\n"
NO_AS = "def reward(completions):\n    return [float('a' not in completions[0])]\n"


def prose_file(folder: Path, judge: str, **fields: object) -> Path:
    path = task_file(folder, "prose", ROWS, **{"reward": "judge.py", "local": True, **fields})
    (folder / "judge.py").write_text(judge)
    return path


def family(folder: Path, judge: str, **fields: object) -> FamilySpec:
    return load_task_file(prose_file(folder, judge, **fields))


def scored(worker: SyncTaskWorker, spec: FamilySpec, *texts: str) -> list[ScoreResult]:
    return worker.score([score_of(coordinates(spec, TASK), text) for text in texts])


def prose(tasks: TaskSource) -> Question:
    return next(one for one in tasks.draw(random.Random(1), 64) if one.task.family == "prose")


def group(question: Question, texts: list[str]) -> OwnGroup:
    answers = tuple(
        Answer(text=text, ids=(1,), logprobs=(0.0,), finish_reason=FinishReason.STOP)
        for text in texts
    )
    return OwnGroup(question=question, answers=answers)


def test_nodes_with_different_judges_have_one_family_and_scores_of_their_own(
    tmp_path: Path,
) -> None:
    one, other = family(tmp_path / "a", LENGTH), family(tmp_path / "b", NO_AS)
    assert one.digest == other.digest
    assert one.digest != family(tmp_path / "c", LENGTH, reward_range=[0, 9]).digest
    with HereWorker([one]) as first, HereWorker([other]) as second:
        assert [x.reward for x in scored(first, one, "aaaa", "bb")] == [0.4, 0.2]
        assert [x.reward for x in scored(second, other, "aaaa", "bb")] == [0.0, 1.0]


def test_a_swarm_takes_each_nodes_own_judge_and_needs_one(tmp_path: Path) -> None:
    one, other = (prose_file(tmp_path / name, LENGTH) for name in "ab")
    manifest = make_manifest("mine", starting_families("easy", [str(one)]))
    assert "judge.py" not in str(manifest.families[-1])
    found = specs_of(manifest, [str(other)])[-1]
    assert found.reward_paths == (str((tmp_path / "b" / "judge.py").resolve()),)
    assert len(specs_of(manifest)) == len(EASY)
    alone = make_manifest("mine", starting_families("none", [str(one)]))
    with pytest.raises(ManifestError, match="needs the file of 'prose' and a judge for it"):
        specs_of(alone)


def test_it_need_not_repeat_itself_and_is_not_called_early(tmp_path: Path) -> None:
    judge = (
        "from pathlib import Path\nN = []\n"
        f"LOG = Path({str(tmp_path / 'log')!r})\n"
        "def reward(completions):\n"
        "    N.append(1)\n    LOG.write_text(str(len(N)))\n    return [len(N) % 2]\n"
    )
    spec = family(tmp_path, judge)
    with HereWorker([*GAMES_1, spec]) as worker:
        assert not (tmp_path / "log").exists()
        texts = [str(number) for number in range(2 * CHECK_EVERY)]
        assert [one.reward for one in scored(worker, spec, *texts)] == [1.0, 0.0] * CHECK_EVERY
    assert (tmp_path / "log").read_text() == str(2 * CHECK_EVERY)


def test_it_has_the_operators_environment_but_not_shoals_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "0.5")
    monkeypatch.setenv("SHOAL_SWARM_KEY", "secret")
    judge = (
        "import os\ndef reward(completions):\n"
        "    assert not any(name.startswith('SHOAL_') for name in os.environ)\n"
        "    return [float(os.environ['JUDGE_KEY'])]\n"
    )
    spec = family(tmp_path, judge)
    with SyncTaskWorker([spec]) as worker:
        assert scored(worker, spec, "x") == [ScoreResult(reward=0.5)]


def test_only_the_judges_worker_is_outside_the_sandbox(tmp_path: Path) -> None:
    spec = family(tmp_path, LENGTH)
    with SyncTaskWorker([*GAMES_1, spec]) as worker:
        assert worker.report is not None
        assert {"audit_hook", "seccomp"} <= {layer.name for layer in worker.report.layers}
    with SyncTaskWorker([spec]) as worker:
        assert worker.report is not None
        names = {layer.name for layer in worker.report.layers}
        assert names == {"process_group", "rlimits", "no_new_privs", "parent_death"}
    message: dict[str, Any] = {"families": [spec_to_json(GAMES_1[0]), spec_to_json(spec)]}
    cause = run_in_a_fork(partial(serving._set_up, message, None))
    assert cause.startswith("a judge's worker cannot have other families")


def run_in_a_fork(call: Callable[[], object]) -> str:
    """Return the refusal of `call`, in a process that the sandbox may affect."""
    read_fd, write_fd = os.pipe()
    if (child := os.fork()) == 0:
        try:
            call()
        except FamilyError as error:
            os.write(write_fd, str(error).encode())
        finally:
            os._exit(0)
    os.close(write_fd)
    with os.fdopen(read_fd, encoding="utf-8") as cause:
        text = cause.read()
    os.waitpid(child, 0)
    return text


literals = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 15),
    st.integers(),
    st.floats(-1, 2),
    st.text(max_size=5),
    st.sampled_from(["1", "0.5", "nan", "-inf", "Infinity", " 1 ", "10 of 10"]),
    st.lists(st.integers(0, 2), max_size=2),
    st.binary(max_size=3),
)
says = st.one_of(
    st.lists(literals, max_size=3).map(repr),
    literals.map(repr),
    st.text(max_size=12),
    st.sampled_from(["[1e999]", "[-1e999]", "(0.5,)", "{0.5: 1}", "[" * 99, "[10**9]", "9" * 5000]),
)

graded = st.floats(-1, 2).map(lambda number: f"[{number}]")


def grade(cause: str) -> float | None:
    """Return the reward, 0 to 1, of a judge with this reply; None if it is not a grade."""
    try:
        returned = ast.literal_eval(cause)
        (value,) = returned if isinstance(returned, list | tuple) else ()
        number = float(value) if isinstance(value, bool | int | float) else math.nan
    except (TypeError, ValueError, SyntaxError, OverflowError, MemoryError, RecursionError):
        return None
    return min(1.0, max(0.0, number)) if math.isfinite(number) else None


@pytest.fixture(scope="module")
def sayer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SyncTaskWorker, FamilySpec]]:
    spec = family(tmp_path_factory.mktemp("says"), SAYS)
    with HereWorker([*GAMES_1, spec]) as worker:
        yield worker, spec


def test_whatever_a_judge_returns_a_group_has_grades_or_teaches_nothing(
    sayer: tuple[SyncTaskWorker, FamilySpec],
) -> None:
    worker, spec = sayer
    tasks = TaskSource(worker, [*GAMES_1, spec])
    counted = {True: 0, False: 0}
    question = prose(tasks)

    @settings(max_examples=CASES, derandomize=True, database=None)
    @given(texts=st.lists(graded, min_size=1) | st.lists(graded | says, min_size=1, max_size=3))
    def holds(texts: list[str]) -> None:
        (rewards,) = tasks.verify_own([group(question, texts)])
        grades = [grade(text) for text in texts]
        counted[None in grades] += 1
        assert rewards == ([0.0] * len(texts) if None in grades else grades), texts

    holds()
    assert min(counted.values()) > CASES // 10, counted


def test_a_judge_that_cannot_be_loaded_is_refused_at_the_start(tmp_path: Path) -> None:
    """As a reward's result, whose tests cover all invalid ones."""
    spec = family(tmp_path, "import no_such_thing\n")
    cause = r"judge\.py, line 1: cannot import no_such_thing"
    with pytest.raises(FamilyError, match=cause) as caught:
        SyncTaskWorker([*GAMES_1, spec]).start()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ("time.sleep(600)", "it takes too long"),
        ("os.kill(os.getpid(), 9)", "or its worker ended"),
    ],
)
def test_one_that_hangs_or_dies_costs_its_own_family_for_a_while(
    tmp_path: Path, does: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = f"import os, time\ndef reward(completions):\n    if completions[0] == 'x': {does}\n"
    spec = family(tmp_path, f"{judge}    return [1]\n")
    with SyncTaskWorker(
        [*GAMES_1, spec], limits=WorkerLimits(request_timeout_seconds=0.5)
    ) as worker:
        graded, lost = scored(worker, spec, "y", "x")
        # Earlier completions are not graded either: half a group would give a false signal.
        assert (graded.reward, lost.reward) == (0.0, 0.0)
        assert why in lost.error and graded.error == lost.error
        (again,) = scored(worker, spec, "z")
        assert again.error == lost.error
        # Its questions need no judge, and other families' completions do not wait for it.
        assert worker.questions([coordinates(spec, TASK)])
        assert scored(worker, GAMES_1[0], "x") == [ScoreResult(reward=0.0)]
        # Half a minute later it is retried.
        monkeypatch.setattr(worker._sessions[spec.worker_key].pipes, "now", lambda: 1e12)
        assert scored(worker, spec, "z") == [ScoreResult(reward=1.0)]


def test_one_that_burns_its_processor_time_costs_the_group_alone(tmp_path: Path) -> None:
    judge = "def reward(completions):\n    while completions[0] == 'x': pass\n    return [1]\n"
    spec = family(tmp_path, judge)
    limits = WorkerLimits(item_cpu_seconds=0.02, request_timeout_seconds=20.0)
    with HereWorker([spec], limits=limits) as worker:
        slow, fine = scored(worker, spec, "x", "y")
        assert slow.timed_out and fine.reward == 1.0


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"reward": None}, "local needs a Python reward"),
        ({"local": 1}, "local has the wrong type"),
        ({"rows": None, "reward": None, "environment": "judge.py"}, "an environment has no local"),
        ({"weight": True}, "weight has the wrong type"),
    ],
)
def test_a_task_file_says_what_is_wrong(
    tmp_path: Path, fields: dict[str, object], cause: str
) -> None:
    with pytest.raises(FamilyError, match=cause):
        family(tmp_path, LENGTH, **fields)


def test_it_is_local_only_where_it_says_so(tmp_path: Path) -> None:
    spec = family(tmp_path, LENGTH, local=False)
    assert spec.verifier == "python" and "reward_sha256s" in spec.config


class Api(BaseHTTPRequestHandler):
    """A server with the part of OpenAI's interface that a judge needs."""

    requested: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).requested.append((self.path, self.headers["Authorization"], body))
        cause = {"choices": [{"message": {"role": "assistant", "content": "Grade: 7."}}]}
        data = json.dumps(cause).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_args: object) -> None:
        pass


def documented(folder: Path, url: str, patch: pytest.MonkeyPatch) -> FamilySpec:
    """The family that docs/rewards.md shows, with its judge at a server."""
    patch.setenv("JUDGE_URL", url)
    patch.setenv("JUDGE_KEY", "k")
    (folder / "prose.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    (folder / "judge.py").write_text(block("python", "JUDGE_URL"))
    (folder / "prose.toml").write_text(block("toml", "local = true"))
    return load_task_file(folder / "prose.toml")


def test_the_documented_judge_asks_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        with open_server(ThreadingHTTPServer(("127.0.0.1", 0), Api)) as url:
            spec = documented(tmp_path, f"{url}/v1", monkeypatch)
            worker = stack.enter_context(HereWorker([spec]))
            (question,) = worker.questions([coordinates(spec, TASK)])
            assert scored(worker, spec, "A text.") == [ScoreResult(reward=0.7)]
        (found,) = scored(worker, spec, "Another.")
        assert found.reward == 0.0 and "Connection refused" in found.error
    ((path, key, body),) = Api.requested
    assert (path, key) == ("/v1/chat/completions", "Bearer k")
    assert question in body["messages"][0]["content"]
    assert "A text." in body["messages"][0]["content"]


@pytest.mark.slow
def test_shoal_serve_may_be_the_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded model is a poor judge: its reply is compared with one made in this process."""
    command = [sys.executable, "-m", "shoal", "serve", "--model", "tiny", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        spec = documented(tmp_path, json.loads(process.stdout.readline())["url"], monkeypatch)
        texts = ["A text.", "2 + 3", "7", "", "9 9 9"]
        try:
            with SyncTaskWorker([spec]) as worker:
                (question,) = worker.questions([coordinates(spec, TASK)])
                found = scored(worker, spec, *texts)
            judge: dict[str, Any] = {}
            exec(block("python", "JUDGE_URL"), judge)
            for text, result in zip(texts, found, strict=True):
                try:
                    (given,) = judge["reward"](prompts=[question], completions=[text])
                except (TypeError, OSError) as error:
                    assert type(error).__name__ in result.error
                else:
                    assert result == ScoreResult(reward=min(1.0, given / 10))
        finally:
            process.terminate()


class Slow(HereWorker):
    """A judge whose replies take some seconds of a test's clock."""

    now_s = 0.0
    answer_s = 0.0

    def score_groups(self, groups: Sequence[GroupRequest]) -> list[list[ScoreResult]]:
        self.now_s += self.answer_s * sum(len(group.answers) for group in groups)
        return super().score_groups(groups)


def others(question: Question, texts: Sequence[str]) -> tuple[Task, list[Completion]]:
    return question.task, [make.completion(text) for text in texts]


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Slow, FamilySpec]]:
    spec = family(tmp_path_factory.mktemp("slow"), LENGTH)
    with Slow([*GAMES_1, spec]) as worker:
        yield worker, spec


@pytest.mark.slow
@settings(max_examples=100)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=12),
    answer_s=st.sampled_from([0.0, 1.0, 8.0, 20.0, 29.0]),
)
def test_each_group_has_the_judges_whole_grades_waits_or_is_dropped_by_its_own_time(
    slow: tuple[Slow, FamilySpec], sizes: list[int], answer_s: float
) -> None:
    worker, spec = slow
    worker.answer_s = answer_s
    tasks = TaskSource(worker, [*GAMES_1, spec], clock=lambda: worker.now_s)
    question, began_s = prose(tasks), worker.now_s
    groups = [[f"{'x' * n}{number % 10}" for n in range(size)] for number, size in enumerate(sizes)]
    verified = tasks.verify([others(question, texts) for texts in groups])
    at_s = 0.0
    for texts, found in zip(groups, verified, strict=True):
        if at_s > MAX_EXTERNAL_S:
            assert found is MissingReward.WAITS
            continue
        is_too_slow = answer_s * (len(texts) - 1) > MAX_GROUP_S
        right = [len(text) / 10 for text in texts]
        assert found == (MissingReward.FAILED if is_too_slow else [min(1.0, one) for one in right])
        at_s += min(answer_s * len(texts), MAX_GROUP_S + answer_s)
    assert worker.now_s - began_s <= MAX_EXTERNAL_S + MAX_GROUP_S + 2 * answer_s
    own = tasks.verify_own([group(question, texts) for texts in groups])  # graded only here
    assert own == [[min(1.0, len(text) / 10) for text in texts] for texts in groups]


def test_a_judge_that_grades_nothing_of_a_group_says_nothing_of_its_publisher(
    tmp_path: Path,
) -> None:
    judge = (
        "import time\ndef reward(completions):\n    if completions[0] == 'hang': time.sleep(600)\n"
        "    return [float(completions[0])]\n"
    )
    spec = family(tmp_path, judge)
    limits = WorkerLimits(request_timeout_seconds=0.5)
    with SyncTaskWorker([*GAMES_1, spec], limits=limits) as worker:
        tasks = TaskSource(worker, [*GAMES_1, spec])
        question = prose(tasks)
        requested = [
            others(question, ("0.5", "1")),
            others(question, ("no", "number")),
            others(question, ("no", "1")),  # it grades others: this text is the cause
            others(question, ("1", "hang", "1")),
            others(question, ("0.5", "1")),
        ]
        found = tasks.verify(requested)
    assert found == [
        [0.5, 1.0],
        MissingReward.FAILED,
        [0.0, 0.0],
        [0.0, 0.0, 0.0],
        MissingReward.WAITS,
    ]
