"""A node's own questions come from where they teach it something, within bounds."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.choice.curriculum import LEAST, MOST, Curriculum, Lately, num_effective

FAMILIES = ("a", "b", "c", "d")
GROUPS = st.lists(st.tuples(st.sampled_from((*FAMILIES, "strange")), st.booleans()), max_size=60)
PASSED = st.dictionaries(st.sampled_from((*FAMILIES, "strange")), st.floats(0, 1))
WEIGHTS = st.fixed_dictionaries({family: st.floats(0.01, 100) for family in FAMILIES})


def played(*groups: tuple[str, bool]) -> Curriculum:
    return Curriculum.start(FAMILIES).after(groups)


def test_families_that_teach_are_drawn_more() -> None:
    seen = played(*[("a", True), ("b", False), ("c", True), ("c", False)] * 10)
    shares = seen.shares(dict.fromkeys(FAMILIES, 1.0))
    assert shares["a"] > shares["c"] > shares["b"]
    assert shares["d"] > shares["b"], "what nobody asked yet is looked at"
    assert seen.families["d"] == Lately()


def test_it_climbs_when_a_level_is_known() -> None:
    seen = played(*[("a", True), ("b", False)] * 20)
    before = seen.shares(dict.fromkeys(FAMILIES, 1.0))
    seen = seen.after([("a", False), ("b", True)] * 20)
    after = seen.shares(dict.fromkeys(FAMILIES, 1.0))
    assert before["a"] > 4 * before["b"] and after["b"] > 4 * after["a"]


def test_a_family_whose_held_out_answers_get_better_is_drawn_more() -> None:
    seen = played(*[(family, False) for family in FAMILIES] * 20)
    seen = seen.evaluated({"a": 0.1, "b": 0.1}).evaluated({"a": 0.6, "b": 0.1, "c": 0.9})
    shares = seen.shares(dict.fromkeys(FAMILIES, 1.0))
    assert shares["a"] > 2 * shares["b"]
    assert shares["b"] == shares["c"] == shares["d"], "a first evaluation says nothing of a move"
    fallen = seen.evaluated({"a": 0.0}).evaluated({"a": 0.0}).evaluated({"a": 0.0})
    assert fallen.factor("a") == LEAST, "a fall is no gain"


@given(GROUPS, PASSED, GROUPS, PASSED, WEIGHTS)
def test_shares_are_bounded_whatever_happens(first, passed, second, again, weights) -> None:
    seen = Curriculum.start(FAMILIES).after(first).evaluated(passed).after(second).evaluated(again)
    assert set(seen.families) == set(FAMILIES), "what the swarm does not have is not kept"
    shares, total = seen.shares(weights), sum(weights.values())
    assert sum(shares.values()) == pytest.approx(1)
    for family, share in shares.items():
        fixed = weights[family] / total
        assert fixed * LEAST / MOST * 0.999 <= share <= fixed * MOST / LEAST * 1.001
    assert 1 <= num_effective(shares) <= len(FAMILIES) + 1e-9


@given(GROUPS, PASSED)
def test_a_checkpoint_keeps_it_whole(groups, passed) -> None:
    seen = Curriculum.start(FAMILIES).after(groups).evaluated(passed)
    assert Curriculum.from_json(json.loads(json.dumps(seen.to_json())), FAMILIES) == seen


def test_another_swarm_begins_anew() -> None:
    saved = played(("a", True)).to_json() | {"gone": {"signal": 0.1}}
    found = Curriculum.from_json({**saved, "b": {"later": 1}}, (*FAMILIES, "new"))
    assert found.families["a"].groups == 1 and found.families["new"] == Lately()
    assert "gone" not in found.families and found.families["b"] == Lately()
    assert Curriculum.from_json(None, FAMILIES) == Curriculum.start(FAMILIES)


def test_effective_families_of_equal_shares_are_all() -> None:
    assert num_effective(dict.fromkeys(FAMILIES, 0.25)) == pytest.approx(4)
    assert math.isclose(num_effective({"a": 1.0, "b": 0.0}), 1.0)
