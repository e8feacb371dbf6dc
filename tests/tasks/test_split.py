"""Evaluation questions are never trained on, and no constant solves a family."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import pytest

from shoal_tasks.errors import GenerationError
from shoal_tasks.families import JUDGE_SEED_MIN, PRESETS, TRAIN_SEED_MIN
from shoal_tasks.floor import best_floor
from shoal_tasks.spec import FamilySpec
from shoal_tasks.split import MIN_HELD_OUT, choose_split
from shoal_tasks.types import Split
from shoal_tasks.worker.generate import GeneratedItem, TaskStream
from shoal_tasks.worker.scoring import score
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.digests import question_digest
from shoal_wire.rules import is_held_out
from shoal_wire.types import FinishReason
from tests.support import factories as make
from tests.tasks.here import HereWorker

TOO_SMALL = {"base_conversion_small", "binary_matrix_small", "fraction_simplification_small"}
HIGHEST_FLOOR = 0.35
COPIED: Final = {
    **dict.fromkeys(
        ("propositional_logic", "propositional_logic_small", "propositional_logic_3"),
        "the premises, joined",
    ),
    "binary_matrix_small": "the question's input, unchanged",
}
"""Families that copying solves, with the rule; docs/tasks.md names them. A changed split would
separate old nodes from new ones, so they stay."""
LIBRARY = {name: specs for name, specs in PRESETS.items() if not name.startswith("games")}
"""The presets of single-turn questions."""
FAMILIES = {spec.name: spec for specs in LIBRARY.values() for spec in specs}
"""By name, because presets overlap."""


@pytest.mark.parametrize("preset", LIBRARY)
def test_no_training_draw_gives_a_question_of_evaluations_or_judges(
    worker: SyncTaskWorker, preset: str
) -> None:
    families = PRESETS[preset]
    held_out = worker.held_out(12, families=families)
    assert {task.family for task, _ in held_out} == {one.name for one in families} - TOO_SMALL
    assert all(task.seed < JUDGE_SEED_MIN for task, _ in held_out)
    texts = {text for _, text in held_out}
    drawn = worker.draw(random.Random(1), 150, families=families)
    assert all(task.seed >= TRAIN_SEED_MIN for task, _ in drawn)
    assert not {text for _, text in drawn} & texts
    assert not any(is_held_out(question_digest(text)) for _, text in drawn)
    assert worker.held_out(12, families=families) == held_out, "always the same"


def test_a_judge_asks_what_training_never_does() -> None:
    rng, worker = random.Random(2), make.real_worker()
    drawn = [worker.draw_for_judge(rng) for _ in range(12)]
    assert all(JUDGE_SEED_MIN <= task.seed < TRAIN_SEED_MIN for task, _ in drawn)
    assert {*worker.parts([task for task, _ in drawn])} == {Split.HELD_OUT}


def items_of(spec: FamilySpec, count: int) -> list[GeneratedItem]:
    """Items of a family, sampled as training does."""
    stream, rng = TaskStream(spec), random.Random(3)
    found: list[GeneratedItem] = []
    while len(found) < count:
        item = stream.item(rng.randrange(TRAIN_SEED_MIN, 1 << 31), 0)
        if item.part is Split.TRAINING:
            found.append(item)
    return found


@pytest.mark.parametrize("spec", FAMILIES.values(), ids=lambda spec: spec.name)
def test_no_constant_and_no_echo_answers_a_family(spec: FamilySpec) -> None:
    items = items_of(spec, 300 if spec.generator == "letter_counting" else 120)

    def rewards_of(texts: Sequence[str]) -> Sequence[float]:
        return [
            score(spec, item, text, FinishReason.STOP)
            for item, text in zip(items, texts, strict=True)
        ]

    right = [item.answer for item in items if item.answer is not None]
    floor = best_floor(spec, [item.question for item in items], right, rewards_of)
    if spec.name in COPIED:
        assert (floor.answer, floor.is_echo) == (COPIED[spec.name], True)
        assert floor.reward > 0.8
        return
    # Two standard errors of a fraction of this many questions.
    assert floor.reward < HIGHEST_FLOOR + len(items) ** -0.5, floor


def test_the_split_is_by_the_text_alone() -> None:
    spec = PRESETS["easy"][0]
    texts = [f"What is {n}?" for n in range(4000)]
    parts = [choose_split(spec, text, "7") for text in texts]
    assert 400 < parts.count(Split.HELD_OUT) < 600
    assert [choose_split(spec, text, None) for text in texts] == parts
    letters = next(spec for spec in PRESETS["easy"] if spec.name == "letter_counting_easy")
    parts = [choose_split(letters, text, "1") for text in texts]
    assert 120 < parts.count(Split.HELD_OUT) + parts.count(Split.TRAINING) < 300
    assert parts.count(Split.HELD_OUT) * 2 < parts.count(Split.TRAINING)


def test_a_family_whose_only_question_is_held_out_is_not_drawn() -> None:
    only = FamilySpec(name="one", generator="count_bits", config={"min_n": 3, "max_n": 3})
    with HereWorker([only]) as worker:
        assert worker.held_out(1) == [], f"under {MIN_HELD_OUT} held-out questions"
        with pytest.raises(GenerationError, match="one has no question to train on"):
            worker.draw(random.Random(1), 1)
