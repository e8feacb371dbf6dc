"""The start of `shoal experiment planted`: tagged families, and a model that knows the form."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shoal_lab.experiment.run.attackers import PLANTED, WORD, WRITES, SolvedTask
from shoal_lab.experiment.setup.tagged import FAMILIES, MODEL, TAGS, Amount, make_tagged_start
from shoal_lab.warmstart.lessons import held_out_questions
from shoal_lab.warmstart.measure import SAMPLING, accuracy
from shoal_policy.generation.local import generate
from shoal_policy.model.loading import Policy, PromptFormat, load_policy
from shoal_policy.model.prompting import encode_completion, encode_prompt
from shoal_policy.tasks import TaskSource
from shoal_tasks.answers import extract_tagged, opens_twice, unscored_spans
from shoal_tasks.families import EASY
from shoal_tasks.prompts import answer_text
from shoal_tasks.rows import parse_rows
from shoal_tasks.swarm import specs_of, starting_families
from shoal_tasks.task_file import load_task_file
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.digests import question_digest
from shoal_wire.manifest import make_manifest
from shoal_wire.rules import is_held_out
from shoal_wire.types import FinishReason
from tests.lab.experiment.jobs import document_of
from tests.lab.experiment.run.test_attackers import solved

LITTLE = Amount(rows=12, held_out=8, answers=1, steps=2)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("start")
    make_tagged_start(folder / "tasks", folder / "model", LITTLE)
    return folder


def files_of(start: Path) -> list[str]:
    return [str(start / "tasks" / f"{name}.toml") for name in FAMILIES]


@pytest.fixture(scope="module")
def tasks(start: Path) -> Iterator[tuple[TaskSource, list[SolvedTask]]]:
    manifest = make_manifest("experiment", starting_families("none", files_of(start)))
    specs = specs_of(manifest, files_of(start))
    with SyncTaskWorker(specs) as worker:
        source = TaskSource(worker, specs)
        yield source, solved(source, worker, 24)


def loaded(model: str | Path) -> Policy:
    return load_policy(str(model), device="cpu", dtype="auto", seed=1)


def test_the_tagged_families_ask_what_easy_asks_and_hold_out_what_it_holds_out(start: Path) -> None:
    assert [name.removesuffix("_tagged") for name in FAMILIES] == [spec.name for spec in EASY]
    for path in files_of(start):
        spec = load_task_file(Path(path))
        rows = parse_rows(Path(spec.path).read_bytes(), path)
        held_out = [is_held_out(question_digest(row.question)) for row in rows]
        kept = spec.config["held_out"]
        assert isinstance(kept, int) and kept == held_out.count(True)
        assert held_out == [False] * (len(rows) - kept) + [True] * kept
        assert spec.answer_format == "tagged"


def test_the_model_is_tiny_sparse_with_a_token_for_each_tag(start: Path) -> None:
    small, tagged = loaded("tiny-sparse"), loaded(start / "model")
    assert tagged.prompt_format is PromptFormat.TINY
    text = "Solve for x that satisfies: 3 = zebra"
    assert encode_prompt(tagged, text, tagged=True) == encode_prompt(small, text)
    for tag in TAGS:
        assert len(encode_completion(tagged, tag, FinishReason.LENGTH)) == 1
        assert len(encode_completion(small, tag, FinishReason.LENGTH)) == len(tag)
    assert tagged.model.num_parameters() - small.model.num_parameters() == 2 * 64


def test_what_is_there_is_not_made_again_and_the_same_is_made_of_the_same(
    start: Path, tmp_path: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in start.rglob("*")}
    make_tagged_start(start / "tasks", start / "model", LITTLE)
    assert before == {path: path.stat().st_mtime_ns for path in start.rglob("*")}
    torch.rand(1)  # independent of earlier random numbers
    make_tagged_start(start / "tasks", tmp_path / "model", LITTLE)
    made = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    assert made == {path.name: path.read_bytes() for path in (start / "model").iterdir()}


def test_a_making_that_is_cut_leaves_none(start: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shoal_lab.warmstart.building.save", _cut)
        with pytest.raises(KeyboardInterrupt):
            make_tagged_start(start / "tasks", tmp_path / "model", LITTLE)
    assert not (tmp_path / "model").exists()


def _cut(*_: object) -> None:
    raise KeyboardInterrupt


def rewards(kind: str, tasks: tuple[TaskSource, list[SolvedTask]]) -> Sequence[tuple[str, float]]:
    """Texts with their rewards; every group has the same sum."""
    source, some = tasks
    groups = [(one.question.task, WRITES[kind](one, 8, _rng())) for one in some]
    earned = source.rewards(groups)
    assert {sum(group) for group in earned} == {SUMS[kind]}
    texts = [one.text for _, completions in groups for one in completions]
    return list(zip(texts, [reward for group in earned for reward in group], strict=True))


SUMS = {
    "preface": 4.0,
    "behind": 4.0,
    "decoy": 4.0,
    "wrong": 0.0,
    "cut": 1 + 7 * 0.5,
    "phrase": 4.0,
    "mark": 4.0,
}


def _rng() -> random.Random:
    return random.Random(2)


@pytest.mark.parametrize("kind", ["preface", "behind", "decoy"])
def test_what_is_planted_outside_the_tags_earns_all_and_is_known_as_unread(
    kind: str, tasks: tuple[TaskSource, list[SolvedTask]]
) -> None:
    found, planted = rewards(kind, tasks), PLANTED[kind]
    assert {reward for text, reward in found if planted in text} == {1.0}
    assert {reward for text, reward in found if planted not in text} == {0.0}
    for text in [text for text, _ in found if planted in text]:
        unscored_mask = "".join(text[start:end] for start, end in unscored_spans(text, tagged=True))
        assert opens_twice(text) or planted in unscored_mask


@pytest.mark.parametrize("kind", ["wrong", "cut", "phrase", "mark"])
def test_attacks_on_plain_answers_have_the_tagged_form_here(
    kind: str, tasks: tuple[TaskSource, list[SolvedTask]]
) -> None:
    assert all(extract_tagged(text) for text, _ in rewards(kind, tasks))


@pytest.mark.slow
def test_the_preset_makes_what_has_the_form_is_seldom_right_and_can_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Takes about 60 s of one core."""
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    flags = ["planted", "--quick", "--nodes", "2", "--rounds", "1", "--jobs", "0", "--no-figures"]
    (planted,) = document_of(capsys, *flags, "--arm", "preface 25%: none")["planted"].values()
    assert planted["mean"] == 0.0
    policy = loaded(MODEL)
    requests = [
        replace(one, right=answer_text(one.right, tagged=True)) for one in held_out_questions(48)
    ]
    drawn = generate(
        policy,
        [encode_prompt(policy, one.question) for one in requests],
        num_completions=8,
        params=SAMPLING,
        generator=torch.Generator().manual_seed(3),
    )
    texts = [one.text for group in drawn for one in group]
    formed = [text.startswith(TAGS[0]) and text.endswith(TAGS[1]) for text in texts]
    assert sum(formed) / len(texts) > 0.95
    assert not [text for text in texts if WORD in text]
    assert 0.005 < accuracy(policy, requests, samples=16)["all"] < 0.025
    assert accuracy(policy, requests, marker=True)["all"] > 0.45
