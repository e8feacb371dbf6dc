"""An evaluation has no question twice, and none that is trained on in other words."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from shoal_lab.experiment.run.meaning import has_wordings, meaning
from shoal_lab.experiment.run.tasks import SharedWorker
from shoal_tasks.families import EASY, PRESETS, training_coordinates
from shoal_tasks.split import MIN_HELD_OUT
from shoal_tasks.types import Split
from shoal_tasks.worker.sync import SyncTaskWorker
from tests.support import site

FAMILIES = {spec.name: spec for spec in (*EASY, *PRESETS["chat-1"])}


@pytest.fixture(scope="module")
def worker():  # type: ignore[no-untyped-def]
    with SharedWorker(list(FAMILIES.values())) as running:
        yield running


@pytest.mark.parametrize(
    ("generator", "one", "other"),
    [
        (
            "gcd",
            "Find the GCD of these numbers: 16, 8. Give",
            "Find the GCD of these numbers: 8, 16. Give",
        ),
        ("products", "Solve: 8 * 5. Give", "Solve: 5 * 8. Give"),
        (
            "simple_equations",
            "Solve for i: 6 - 9*i = -3",
            "Find the value of z in the equation: 6 - 9*z = -3",
        ),
        (
            "aiw",
            "Jessica has 3 brothers. How many sisters does Jessica's brother have?",
            "Barbara has 3 brothers. How many sisters does Barbara's brother have?",
        ),
        ("count_bits", "The  number 3?\n", "The number 3?"),
    ],
)
def test_another_wording_is_the_same_question(generator: str, one: str, other: str) -> None:
    assert meaning(generator, one) == meaning(generator, other)
    assert meaning(generator, one) != meaning(
        generator, one.replace("3", "4").replace("5", "7").replace("16", "12")
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_no_held_out_question_is_repeated_or_sampled_in_other_words(
    worker: SharedWorker, name: str
) -> None:
    """300 samples of each of 17 families."""
    spec = FAMILIES[name]
    kept = worker.held_out(40, families=[spec])
    meanings = [meaning(spec.generator, text) for _, text in kept]
    assert len(set(meanings)) == len(meanings)
    assert len(meanings) >= MIN_HELD_OUT
    drawn = worker.draw(random.Random(name), 300, families=[spec])
    assert not {meaning(spec.generator, text) for _, text in drawn} & set(meanings)
    assert {*worker.parts([task for task, _ in drawn])} == {Split.TRAINING}
    if has_wordings(spec.generator):
        assert Split.TRAINING not in worker.parts([task for task, _ in kept])
    assert worker.held_out(40, families=[spec]) == kept, "always the same"


@hypothesis_settings(max_examples=200)
@given(st.text(max_size=80), st.sampled_from(["aiw", "gcd", "simple_equations", "bf"]))
def test_any_text_has_one_normal_form(text: str, generator: str) -> None:
    """200 generated texts."""
    form = meaning(generator, text)
    assert form == " ".join(form.split())
    assert meaning(generator, f" {text}\n") == form


@pytest.mark.slow
@pytest.mark.parametrize("name", ["base_conversion_easy", "count_bits_easy", "gcd_easy"])
def test_the_page_has_the_number_of_questions_that_draws_show(name: str) -> None:
    """The counts are made as those in lab/results/question-counts.csv were."""
    (spec,) = [one for one in PRESETS["easy"] if one.name == name]
    rng = random.Random(f"count/{name}")
    with SyncTaskWorker([spec]) as worker:
        tasks = [training_coordinates(rng, spec) for _ in range(20_000)]
        found = {
            meaning(spec.generator, text)
            for start in range(0, len(tasks), 500)
            for text in worker.questions(tasks[start : start + 500])
        }
    assert f"| `easy` | `{name}` | {len(found):,} |" in site.page("tasks.md")
