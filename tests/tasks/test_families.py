"""Specs, digests, presets and draws: the pure part."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_settings.schema import TASK_PRESETS
from shoal_tasks.errors import FamilyError
from shoal_tasks.families import (
    EASY,
    EXAMPLE_SEED_MIN,
    JUDGE_SEED_MIN,
    PAPER,
    PRESETS,
    TRAIN_SEED_MIN,
    TRIAL_SEED_MIN,
    draw_coordinates,
    example_coordinates,
    judge_coordinates,
    trial_coordinates,
)
from shoal_tasks.spec import (
    ENVIRONMENT,
    EXACT,
    ROWS_GENERATOR,
    AnswerFormat,
    FamilySpec,
    JsonValue,
    spec_to_json,
)
from shoal_wire.digests import question_digest
from shoal_wire.limits import MAX_SEED
from tests.support.site import page
from tests.tasks.families import ALL_FAMILIES

PAPER_GENERATORS = {
    "arc_1d",
    "basic_arithmetic",
    "base_conversion",
    "bf",
    "binary_matrix",
    "calendar_arithmetic",
    "decimal_arithmetic",
    "fraction_simplification",
    "propositional_logic",
}


def test_presets_hold_the_families_they_claim() -> None:
    assert list(PRESETS) == ["easy", "easy-paper", "paper", "chat-1", "chat", "games-1", "games"]
    assert {spec.generator for spec in PAPER} == PAPER_GENERATORS
    assert {spec.generator for spec in PRESETS["easy-paper"]} == PAPER_GENERATORS
    assert all(spec.answer_format is AnswerFormat.TAGGED for spec in PAPER)
    assert not any(spec.is_tagged for spec in EASY + PRESETS["easy-paper"])
    names = [spec.name for spec in ALL_FAMILIES]
    assert len(set(names)) == len(names)


def test_the_setting_names_every_preset() -> None:
    assert (*PRESETS, "none") == TASK_PRESETS


def test_the_documentation_lists_every_family_of_every_preset() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (plain|tagged) \| (.+) \|$", page("tasks.md"), re.M)
    assert {
        (preset, answers, *re.findall(r"`(\w+)`", names)) for preset, answers, names in rows
    } == {
        (preset, answers, *names)
        for preset, specs in PRESETS.items()
        for answers in {str(spec.answer_format) for spec in specs}
        if (
            names := [
                spec.name
                for spec in specs
                if spec.answer_format == answers
                and (preset != "chat" or spec not in PRESETS["chat-1"])
            ]
        )
    }


def test_digests_are_those_peers_already_use() -> None:
    # A change here splits every existing swarm: it must be a decision, not an accident.
    spec = FamilySpec(name="x", generator="gcd", config={"min_value": 1, "max_value": 20})
    assert spec.canonical == '{"max_value":20,"min_value":1}'
    assert spec.digest.hex() == "ede415dd802798bba50cb853883091b8"
    assert question_digest("What is 1 + 1?").hex() == "72f8917549de2d6d055b75ba9f82b93a"


def test_digest_ignores_name_weight_and_order_but_not_content() -> None:
    one = FamilySpec(name="a", generator="gcd", config={"min_value": 1, "max_value": 9})
    same = FamilySpec(name="b", generator="gcd", config={"max_value": 9, "min_value": 1}, weight=3)
    other_value = FamilySpec(name="a", generator="gcd", config={"min_value": 1, "max_value": 8})
    other_generator = FamilySpec(name="a", generator="lcm", config=dict(one.config))
    assert one.digest == same.digest
    assert len({s.digest for s in (one, other_value, other_generator)}) == 3


def test_spec_does_not_follow_later_changes_of_the_callers_dict() -> None:
    config: dict[str, Any] = {"styles": ["plain"]}
    spec = FamilySpec(name="f", generator="fraction_simplification", config=config)
    before = spec.digest
    config["styles"].append("latex_frac")
    assert spec.digest == before
    assert hash(spec) == hash(FamilySpec(**spec_to_json(spec)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"generator": "composite"}, "not a reviewed generator"),
        ({"generator": "codeio"}, "not a reviewed generator"),
        ({"name": ""}, "family name"),
        ({"name": "n" * 201}, "family name"),
        ({"weight": 0.0}, "weight"),
        ({"weight": float("nan")}, "weight"),
        ({"verifier": "mine"}, "unknown verifier"),
        ({"answer_format": "xml"}, "answer_format"),
        ({"config": {"seed": 1}}, "may not set seed"),
        ({"config": {"size": 1}}, "may not set size"),
        ({"config": {"max_value": float("inf")}}, "not JSON"),
        ({"config": {"max_value": object()}}, "not JSON"),
        ({"config": {"operators": "+" * 5000}}, r"has 5,\d+ bytes, at most 4,096"),
    ],
)
def test_unusable_specs_say_which_field(changes: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {"name": "f", "generator": "gcd", **changes}
    with pytest.raises(FamilyError, match=message):
        FamilySpec(**fields)


SHA: Final = "0" * 64
GOOD: Final[dict[str, dict[str, JsonValue]]] = {
    "exact": {"sha256": SHA, "rows": 2, "held_out": 1, "split": "question"},
    "python": {
        "sha256": SHA,
        "rows": 2,
        "held_out": 0,
        "split": "text",
        "reward_sha256s": [SHA],
        "reward_names": ["reward"],
        "reward_weights": [1],
        "reward_range": [0, 1],
    },
    "environment": {"sha256": SHA, "class": "Game", "max_turns": 8, "reward_range": [-1, 1.5]},
    "own_game": {"game": "higher-lower", "max_turns": 5, "reward_range": [0, 1]},
    "openenv": {
        "environment": "e",
        "version": "",
        "schema_sha256": SHA,
        "games_sha256": SHA,
        "max_turns": 8,
        "reward_range": [0, 1],
    },
}


def stated(verifier: str, config: dict[str, JsonValue]) -> FamilySpec:
    generator = ROWS_GENERATOR if verifier in ("exact", "python") else ENVIRONMENT
    return FamilySpec(name="f", generator=generator, verifier=verifier, config=config)


@pytest.mark.parametrize("verifier", GOOD)
def test_a_family_of_ones_own_has_all_its_keys_and_no_others(verifier: str) -> None:
    good = GOOD[verifier]
    stated(verifier, {**good, "system": "You count."})
    if verifier == "openenv":
        stated(verifier, {**good, "action": "a", "observation": "o"})
    for key in good:
        with pytest.raises(FamilyError):
            stated(verifier, {name: value for name, value in good.items() if name != key})
        with pytest.raises(FamilyError):
            stated(verifier, {**good, key: None})
    for odd in ("path", "action") if verifier != "openenv" else ("path", "class"):
        with pytest.raises(FamilyError):
            stated(verifier, {**good, odd: "x"})
    with pytest.raises(FamilyError):
        stated(verifier, {**good, "system": 3})


@pytest.mark.parametrize(
    ("verifier", "changes"),
    [
        ("exact", {"held_out": 2}),
        ("exact", {"held_out": -1}),
        ("exact", {"rows": True, "held_out": 0}),
        ("exact", {"rows": 0, "held_out": 0}),
        ("exact", {"split": "row"}),
        ("exact", {"sha256": "F" * 64}),
        ("python", {"reward_names": ["a b"]}),
        ("python", {"reward_names": ["a", "b"]}),
        ("python", {"reward_weights": ["1"]}),
        ("python", {"reward_weights": []}),
        ("python", {"reward_range": [1, 1]}),
        ("python", {"reward_range": [0, True]}),
        ("python", {"reward_range": [0]}),
        ("environment", {"class": "a.b"}),
        ("environment", {"max_turns": 257}),
        ("environment", {"max_turns": 8.0}),
        ("own_game", {"game": "chess"}),
    ],
)
def test_keys_of_ones_own_family_have_values_that_can_be_used(
    verifier: str, changes: dict[str, JsonValue]
) -> None:
    with pytest.raises(FamilyError):
        stated(verifier, {**GOOD[verifier], **changes})


def as_the_worker_has_it(spec: FamilySpec) -> FamilySpec:
    """Return a spec that was sent in the set-up message."""
    fields: Any = json.loads(json.dumps(spec_to_json(spec)))
    return FamilySpec(**fields)


def test_the_worker_has_the_families_of_its_parent() -> None:
    for one in ALL_FAMILIES:
        assert (found := as_the_worker_has_it(one)) == one and found.digest == one.digest
    rows = replace(EASY[0], path="/a/b", reward_paths=("/c",), weight=2.5)
    found = as_the_worker_has_it(rows)
    assert (found.path, found.reward_paths, found.weight) == ("/a/b", ("/c",), 2.5)


@given(
    name=st.text(),
    config=st.dictionaries(
        st.text(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=8,
        ),
    ),
    weight=st.floats(),
)
def test_any_configuration_is_a_spec_or_a_family_error(
    name: str, config: dict[str, Any], weight: float
) -> None:
    try:
        spec = FamilySpec(name=name, generator="gcd", config=config, weight=weight)
    except FamilyError:
        return
    assert as_the_worker_has_it(spec) == spec


def test_draws_are_fresh_weighted_and_never_held_out() -> None:
    rare = FamilySpec(name="rare", generator="gcd", weight=1.0)
    often = FamilySpec(name="often", generator="lcm", weight=3.0)
    rng = random.Random(7)
    drawn = [draw_coordinates(rng, [rare, often]) for _ in range(2000)]
    assert all(TRAIN_SEED_MIN <= task.seed < MAX_SEED and task.index == 0 for task in drawn)
    assert len({task.seed for task in drawn}) == len(drawn)
    assert 1400 < sum(task.family == "often" for task in drawn) < 1600
    again = random.Random(7)
    assert drawn == [draw_coordinates(again, [rare, often]) for _ in range(2000)]
    with pytest.raises(ValueError, match="no task families"):
        draw_coordinates(rng, [])


def test_examples_and_trials_have_seeds_of_their_own() -> None:
    rng = random.Random(1)
    most_held_out = 1 << 16  # as `eval_per_family` allows
    others = {judge_coordinates(rng, EASY).seed for _ in range(5000)}
    others |= {draw_coordinates(rng, EASY).seed for _ in range(5000)}
    examples = {task.seed for task in example_coordinates(EASY[0], 1000)}
    trials = {task.seed for task in trial_coordinates(EASY[0], 1000)}
    assert not examples & trials and not others & (examples | trials)
    for draw, first, end in [
        (example_coordinates, EXAMPLE_SEED_MIN, TRIAL_SEED_MIN),
        (trial_coordinates, TRIAL_SEED_MIN, JUDGE_SEED_MIN),
    ]:
        assert most_held_out <= first < end <= JUDGE_SEED_MIN
        with pytest.raises(ValueError, match="seeds are reserved"):
            draw(EASY[0], end - first + 1)


@given(st.integers(1, 5000), st.integers(0, 50), st.integers(0, 20))
def test_examples_of_rows_are_the_first_training_rows_and_trials_the_last(
    num_training: int, held_out: int, count: int
) -> None:
    config: dict[str, JsonValue] = {
        "sha256": "0" * 64,
        "rows": num_training + held_out,
        "held_out": held_out,
        "split": "question",
    }
    rows = FamilySpec(name="mine", generator=ROWS_GENERATOR, config=config, verifier=EXACT)
    examples, trials = example_coordinates(rows, count), trial_coordinates(rows, count)
    assert all(TRAIN_SEED_MIN <= task.seed < MAX_SEED for task in (*examples, *trials))
    # As `RowTasks.item` finds a training row.
    shown = [(task.seed + task.index) % num_training for task in examples]
    tried = [(task.seed + task.index) % num_training for task in trials]
    assert shown == list(range(num_training))[:count]
    assert tried == list(reversed(range(num_training)))[:count]


def test_importing_the_pure_part_is_cheap_and_brings_no_reasoning_gym() -> None:
    code = (
        "import resource, sys\n"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = used()\n"
        "import shoal_tasks.families, shoal_tasks.types, shoal_tasks.errors\n"
        "print(used() - before, 'reasoning_gym' in sys.modules, 'trio' in sys.modules)\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    # KiB on Linux, bytes on macOS: there the bound is only looser in the wrong direction.
    assert int(output[0]) < (10 << 10) * (1024 if sys.platform == "darwin" else 1)
    assert output[1:] == ["False", "False"]
