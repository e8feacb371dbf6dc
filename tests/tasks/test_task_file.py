"""A user's family: its file, its rows, its two verifiers, and peers with and without it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.__main__ import main
from shoal_p2p.peers.manifest_source import manifest_of_settings
from shoal_settings.schema import Settings
from shoal_tasks.errors import FamilyError
from shoal_tasks.families import EASY, TRAIN_SEED_MIN, coordinates
from shoal_tasks.sandbox.audit import AuditGuard
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import specs_of, starting_families, unused_task_files
from shoal_tasks.task_file import load_task_file
from shoal_tasks.types import Split, TaskCoordinates
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.errors import ManifestError
from shoal_wire.manifest import Manifest, make_manifest
from shoal_wire.types import Digest, RolloutGroup
from shoal_wire.verdict import Reason
from tests.support import factories as make
from tests.support.intake_bench import IntakeBench
from tests.support.task_files import score_of, task_file
from tests.tasks.here import HereWorker

CAPITALS = [{"question": f"Capital of land {n}?", "answer": f"City {n}"} for n in range(20)]
SUMS = [{"question": "What is 3/4 as a decimal?", "answer": "\\frac{3}{4}"}]


def write(folder: Path, content: object, **fields: object) -> Path:
    """Write a task file and its rows; return the task file."""
    lines = content if isinstance(content, str) else "\n".join(map(json.dumps, content))  # type: ignore[call-overload]
    (folder / "rows.jsonl").write_text(lines)
    return task_file(folder, "mine", **{"rows": "rows.jsonl", **fields})


def rewards(worker: SyncTaskWorker, task: TaskCoordinates, *texts: str) -> list[float]:
    results = worker.score([score_of(task, text) for text in texts])
    assert not any(result.timed_out or result.crashed for result in results)
    return [result.reward for result in results]


def test_a_family_follows_from_its_file_alone(tmp_path: Path) -> None:
    first, other, changed = (tmp_path / name for name in "abc")
    for folder in (first, other, changed):
        folder.mkdir()
    spec = load_task_file(write(first, CAPITALS, weight=2))
    assert (spec.config["rows"], spec.config["held_out"], spec.weight) == (20, 2, 2)
    # On another machine it is the same family; with one more letter it is another.
    assert load_task_file(write(other, CAPITALS)).digest == spec.digest
    longer = [*CAPITALS[:-1], {**CAPITALS[-1], "answer": "City 19!"}]
    assert load_task_file(write(changed, longer)).digest != spec.digest


@pytest.mark.parametrize(
    ("rows", "fields", "cause"),
    [
        (CAPITALS, {"nam": "x"}, "unknown key 'nam'"),
        (CAPITALS, {"weight": "2"}, "weight has the wrong type"),
        (CAPITALS, {"weight": 0}, "weight must be"),
        (CAPITALS, {"verifier": "eval"}, "verifier must be one of exact, math"),
        (CAPITALS, {"answer_format": "xml"}, "answer_format"),
        (CAPITALS, {"held_out": 20}, "held_out must be 0 to 19"),
        (CAPITALS, {"rows": "absent.jsonl"}, "cannot read"),
        ("", {}, "no rows"),
        (
            '{"question": "q", "answer": "a"}\n{"question": "q"}',
            {},
            "line 2 has no column 'answer'",
        ),
        ('{"question": "q", "answer": [7]}', {}, "answer is a list of 1 number; .*answer.0"),
        ('{"question": 7, "answer": 7}', {}, "line 1: question is the number 7"),
        ("[1]", {}, "row 1: not a JSON object"),
        ("{", {}, "line 1: not JSON"),
        (r'{"question": "\ud800", "answer": "a"}', {}, "a lone surrogate"),
    ],
)
def test_a_bad_file_is_one_line(
    tmp_path: Path, rows: object, fields: dict[str, object], cause: str
) -> None:
    with pytest.raises(FamilyError, match=cause) as caught:
        load_task_file(write(tmp_path, rows, **fields))
    assert "\n" not in str(caught.value)


def test_exact_answers_and_rows_kept_for_evaluation(tmp_path: Path) -> None:
    spec = load_task_file(write(tmp_path, CAPITALS, held_out=5))
    with HereWorker([spec]) as worker:
        training = worker.items([coordinates(spec, TRAIN_SEED_MIN + n) for n in range(200)])
        held_out = worker.items([coordinates(spec, n) for n in range(50)])
        requested = [row["question"] for row in CAPITALS]
        assert {item.question for item in training} == set(requested[:15])
        assert {item.question for item in held_out} == set(requested[15:])
        by_index = worker.questions([coordinates(spec, TRAIN_SEED_MIN, n) for n in range(15)])
        assert set(by_index) == set(requested[:15]), "the index continues in the rows, too"
        task = coordinates(spec, TRAIN_SEED_MIN)
        answer = training[0].answer
        cause = [f"<answer> {answer}\n</answer>", f"<answer>{answer}.</answer>", str(answer)]
        assert rewards(worker, task, *cause) == [1.0, 0.0, 0.0]


def test_a_file_that_has_changed_is_refused(tmp_path: Path) -> None:
    spec = load_task_file(write(tmp_path, CAPITALS))
    Path(spec.path).write_bytes(Path(spec.path).read_bytes()[1:])
    try:
        with pytest.raises(FamilyError, match="not the swarm's file"), HereWorker([spec]):
            pass
    finally:
        Path(spec.path).unlink()


@pytest.mark.parametrize(
    "hostile",
    [
        ["9^{9^{9^{9}}}", "x" * 4000],
        pytest.param(["\\frac{" * 500, "(" * 2000, "9" * 4000], marks=pytest.mark.slow),
    ],
    ids=["short", "long"],
)
def test_answers_equal_as_mathematics(hostile: list[str], tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    spec = load_task_file(write(tmp_path, SUMS, verifier="math"))
    canary = tmp_path / "canary"
    payload = f"__import__('pathlib').Path({str(canary)!r}).write_text('x')"
    right = ["0.75", "3/4", "\\frac{3}{4}", "$\\frac{6}{8}$", "75\\%", "\\boxed{0.75}"]
    wrong = ["0.7", "4/3", "three quarters", "\\frac{3}{", payload, f"${payload}$", "9**9**9**9"]
    with SyncTaskWorker([spec]) as worker:
        task = coordinates(spec, TRAIN_SEED_MIN)
        texts = [f"<answer>{text}</answer>" for text in (*right, *wrong, right[0])]
        assert rewards(worker, task, *texts) == [1.0] * len(right) + [0.0] * len(wrong) + [1.0]
        requested = (f"<answer>{text}</answer>" for text in (*hostile, right[0]))
        *bad, last = worker.score([score_of(task, text) for text in requested])
    assert last.reward == 1.0
    assert all(result.reward == 0.0 for result in bad)
    assert not canary.exists()


@pytest.mark.parametrize(
    ("source", "mode", "allowed"),
    [
        ("Integer (3 )", "eval", True),
        ("Float ('0.75' )", "eval", True),
        ("from sympy import *", "exec", True),
        ("from os import *", "exec", False),
        ("from sympy import core", "exec", False),
        ("Integer (3 ).__class__", "eval", False),
        ("__import__('os')", "eval", False),
        ("(lambda: 1)()", "eval", False),
        ("[Integer for Integer in (1,)]", "eval", False),
    ],
)
def test_scoring_mathematics_lets_numbers_through_and_nothing_else(
    source: str, mode: str, allowed: bool
) -> None:
    guard = AuditGuard()
    guard.scoring = True
    code = compile(source, "<string>", mode)
    assert guard.refusal("exec", (code,)) is not None
    guard.numbers_only = True
    assert (guard.refusal("exec", (code,)) is None) == allowed


def test_a_task_file_that_a_joined_swarm_does_not_have_is_added_to_it(tmp_path: Path) -> None:
    path = str(write(tmp_path, CAPITALS))
    with_it = make_manifest("a", starting_families("easy", [path]))
    without = make_manifest("b", starting_families("easy"))
    assert unused_task_files(with_it, [path]) == unused_task_files(without, [path]) == ()


def test_a_swarm_started_with_a_task_file_names_its_family(tmp_path: Path) -> None:
    path = str(write(tmp_path, CAPITALS))
    manifest = manifest_of_settings(Settings(tasks=("easy", path)))
    assert [family.name for family in manifest.families] == [s.name for s in EASY] + ["mine"]
    assert str(tmp_path) not in manifest.raw.decode(errors="replace")
    alone = manifest_of_settings(Settings(tasks=(path,)))
    assert [family.name for family in alone.families] == ["mine"]
    assert [spec.name for spec in specs_of(alone, [path])] == ["mine"]
    # A node without the file has the other families; with no others it cannot start.
    assert [spec.name for spec in specs_of(manifest)] == [spec.name for spec in EASY]
    with pytest.raises(ManifestError, match="needs the file of 'mine'"):
        specs_of(alone)
    with pytest.raises(ManifestError, match="absent"):
        manifest_of_settings(Settings(tasks=("absent.toml",)))


class Questions:
    """A real worker with the families that a node can make, as intake uses it."""

    def __init__(self, manifest: Manifest, task_files: list[str]) -> None:
        self.worker = HereWorker(specs_of(manifest, task_files))

    async def question_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest]:
        return self.worker.question_digests(tasks)

    def known_digests(self, _tasks: Sequence[TaskCoordinates]) -> None:
        return None


def group_of(spec: FamilySpec, question: str) -> RolloutGroup:
    return make.group(of=make.task_of(spec, TRAIN_SEED_MIN + 3, question))


async def test_a_peer_with_the_file_verifies_and_one_without_ignores(tmp_path: Path) -> None:
    path = str(write(tmp_path, CAPITALS))
    spec = load_task_file(Path(path))
    manifest = manifest_of_settings(Settings(tasks=("easy", path)))
    with Questions(manifest, [path]).worker as maker:
        question = maker.questions([coordinates(spec, TRAIN_SEED_MIN + 3)])[0]
    assert question in {row["question"] for row in CAPITALS}
    author = make.Author(manifest)
    true = author.envelope(author.batch([group_of(spec, question)]))
    false = author.envelope(author.batch([group_of(spec, "Capital of nowhere?")]))
    for files, of_true, of_false in (
        ([path], Reason.VALID, Reason.QUESTION_MISMATCH),
        ([], Reason.UNKNOWN_FAMILY, Reason.UNKNOWN_FAMILY),
    ):
        questions = Questions(manifest, files)
        intake = IntakeBench(manifest, questions=questions).intake
        with questions.worker:
            verdicts = [
                await intake.validate(raw, author.peer_id, author.peer_id) for raw in (true, false)
            ]
        assert [verdict.reason for verdict in verdicts] == [of_true, of_false]


def test_the_command_shows_ones_own_family(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write(tmp_path, CAPITALS))
    assert main(["tasks", path]) == 0
    assert "mine" in capsys.readouterr().out
    assert main(["tasks", path, "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert view["scorer"] == "exact"
    assert view["sample"]["scored"][0]["reward"] == 1.0
    assert main(["tasks", "absent.toml"]) == 2
    assert "cannot read absent.toml" in capsys.readouterr().err


def test_a_row_that_asks_a_held_out_question_again_is_not_for_training(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n}?", "answer": str(n)} for n in range(8)]
    rows[3] = {"question": "  what is  7?", "answer": "7"}
    spec = load_task_file(write(tmp_path, rows, held_out=2))
    with HereWorker([spec]) as worker:
        assert {text for _, text in worker.held_out(9)} == {"What is 6?", "  what is  7?"}
        tasks = [coordinates(spec, TRAIN_SEED_MIN + n) for n in range(6)]
        assert set(worker.parts(tasks)) == {Split.TRAINING}
        assert set(worker.questions(tasks)) == {f"What is {n}?" for n in (0, 1, 2, 4, 5)}


def test_a_file_of_another_number_of_questions_is_refused(tmp_path: Path) -> None:
    spec = load_task_file(write(tmp_path, CAPITALS))
    with pytest.raises(FamilyError, match="has 20 different questions"):
        HereWorker([replace(spec, config={**spec.config, "rows": 21})])


def test_a_family_that_its_worker_refuses_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, CAPITALS, reward="reward.py")
    (tmp_path / "reward.py").write_text("raise OSError('no')\n")
    assert main(["tasks", str(path)]) == 1
    cause = capsys.readouterr().err
    assert cause.startswith("shoal tasks: ") and cause.endswith("line 1: OSError: no\n")
    assert cause.count("\n") == 1


def test_a_file_that_keeps_no_rows_is_not_evaluated_on(tmp_path: Path) -> None:
    spec = load_task_file(write(tmp_path, CAPITALS, held_out=0))
    with HereWorker([spec]) as worker:
        assert worker.held_out(3) == []
        assert len(worker.draw(random.Random(1), 20)) == 20
        assert worker.parts([coordinates(spec, 3)]) == [Split.TRAINING], "whatever its seed"


def test_a_swarm_of_no_tasks_or_of_two_with_one_name_is_one_line(tmp_path: Path) -> None:
    file = str(task_file(tmp_path, "sums", [{"question": f"{n}", "answer": "1"} for n in range(4)]))
    with pytest.raises(ManifestError, match=r"a swarm needs tasks: --tasks PRESET"):
        starting_families("none")
    with pytest.raises(ManifestError, match="two of the swarm's tasks are named 'sums'"):
        starting_families("easy", [file, file])
