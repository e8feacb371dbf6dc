"""The warm start itself, in miniature: the model learns, and is the same to the byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shoal_lab.warmstart import building as warmstart
from shoal_lab.warmstart.building import ABLE, MISLED, Classroom, SupervisedPhase, make_model, save
from shoal_lab.warmstart.lessons import WIDE, draw_lessons, held_out_questions
from shoal_lab.warmstart.provenance import (
    differing,
    digests,
    environment,
    environment_changes,
    read_provenance,
    write_provenance,
)
from shoal_policy.tiny.tokenizer import build_tokenizer


def make_small(folder: Path, phases: list[SupervisedPhase]) -> list[float]:
    """A model after a few steps, saved; the losses on the way."""
    tokenizer = build_tokenizer()
    model = make_model(tokenizer)
    losses: list[float] = []
    classroom = Classroom(tokenizer, draw_lessons(20, seed=1))
    with warmstart.deterministic():
        for phase in phases:
            classroom.teach(model, phase, lambda *progress: losses.append(progress[-1]))
    save(model, tokenizer, folder)
    return losses


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[SupervisedPhase]:
    monkeypatch.setattr(warmstart, "BATCH", 32)
    return [replace(ABLE, steps=12), *(replace(phase, steps=3) for phase in MISLED.values())]


def test_it_learns_and_is_the_same_to_the_byte(
    tmp_path: Path, short: list[SupervisedPhase]
) -> None:
    losses = make_small(tmp_path / "first", short)
    assert losses[11] < 0.8 * losses[0]
    assert make_small(tmp_path / "second", short) == losses
    assert differing(tmp_path / "first", tmp_path / "second") == []


def test_a_different_file_is_named(tmp_path: Path, short: list[SupervisedPhase]) -> None:
    make_small(tmp_path / "first", short[:1])
    make_small(tmp_path / "second", [replace(short[0], learning_rate=1e-3)])
    assert differing(tmp_path / "first", tmp_path / "second") == ["model.safetensors"]


def test_provenance_says_what_changed(
    tmp_path: Path, short: list[SupervisedPhase], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(tmp_path, short[:1])
    write_provenance(tmp_path, profile="dense", measured={"start": {"all": 0.1}})
    assert read_provenance(tmp_path)["sha256"] == digests(tmp_path)
    assert environment_changes(tmp_path) == []
    elsewhere = {**environment(), "cpu_capability": "ABACUS"}
    monkeypatch.setattr("shoal_lab.warmstart.provenance.environment", lambda: elsewhere)
    assert len(environment_changes(tmp_path)) == 1
    assert "ABACUS" in environment_changes(tmp_path)[0]


def test_a_diverging_phase_is_an_error(short: list[SupervisedPhase]) -> None:
    tokenizer = build_tokenizer()
    classroom = Classroom(tokenizer, draw_lessons(5, seed=1))
    with pytest.raises(ArithmeticError, match="able"):
        classroom.teach(
            make_model(tokenizer),
            replace(short[0], steps=3, learning_rate=float("inf")),
            lambda *_: None,
        )


@pytest.mark.slow
def test_right_answers_are_repeated_where_they_are_too_rare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warmstart, "BATCH", 8)
    monkeypatch.setattr(warmstart, "STEER_EVERY", 10)
    tokenizer = build_tokenizer()
    lessons = draw_lessons(2, seed=1)[:2]

    def trained(learning_rate: float) -> tuple[float, float]:
        """The density at a phase's end, and the chance of a right answer then."""
        model, classroom = make_model(tokenizer), Classroom(tokenizer, lessons)
        phase = SupervisedPhase(
            name="right",
            steps=31,
            learning_rate=learning_rate,
            misled_share=0.0,
            plain_share=1.0,
            density=0.2,
        )
        with warmstart.deterministic():
            classroom.teach(model, phase, lambda *_: None)
        (found,), (chance,) = classroom.densities(model, 2).values(), classroom.chances.values()
        return found, chance

    seldom, more = trained(1e-9)
    assert seldom < 0.2 < more
    often, less = trained(4e-3)
    assert less < 0.2 < often


@pytest.mark.slow
def test_wide_lessons_are_other_questions_of_the_same_families_and_none_of_evaluations() -> None:
    easy, wide = draw_lessons(150, seed=1), draw_lessons(150, seed=1, families=WIDE)
    assert [lesson.family for lesson in wide] == [lesson.family for lesson in easy]
    held_out = {lesson.question for lesson in held_out_questions(16)}
    assert not held_out & {lesson.question for lesson in wide}
    for family in {lesson.family for lesson in easy}:
        few, many = ({x.question for x in of if x.family == family} for of in (easy, wide))
        assert len(many - few) > 0.4 * len(many) and len(many) >= len(few)
    counted = [one.right for one in wide if one.family == "letter_counting_easy"]
    assert max(map(counted.count, set(counted))) < 0.7 * len(counted)
