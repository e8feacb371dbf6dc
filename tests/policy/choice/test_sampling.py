"""Strategies: which groups of others are chosen, and what of them is trained on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from policy.choice.candidates import Candidate, OwnRecord
from policy.choice.sampling import parse_strategy
from policy.choice.words import WORDS
from shoal_settings.schema import Settings
from shoal_settings.strategy import BASES, STRATEGY_WORDS
from shoal_settings.strategy import StrategyError as Unknown
from shoal_wire.types import PeerId

PAGE = Path(__file__).parents[3] / "docs" / "strategies.md"

ZERO, LOW, HIGH, FULL = (0.0, 0.0), (0.0, 0.0, 0.0, 1.0), (0.0, 1.0, 1.0, 1.0), (1.0, 1.0)


def one(rewards: tuple[float, ...] = LOW, **of: object) -> Candidate:
    values = {"family": "a", "publisher": PeerId("p"), "created_ms": 0, **of}
    return Candidate(rewards=rewards, **values)  # type: ignore[arg-type]


def test_the_setting_knows_the_same_words() -> None:
    assert tuple(word.name for word in WORDS) == STRATEGY_WORDS
    assert tuple(word.name for word in WORDS if word.usable is not None) == BASES


def test_the_documentation_says_of_each_word_what_its_row_says() -> None:
    (table,) = re.findall(r"\| word \| what it does \|\n\|[-|]+\n((?:\|.*\n)+)", PAGE.read_text())
    assert table.splitlines() == [f"| `{word.name}` | {word.does} |" for word in WORDS]


def test_the_setting_says_what_is_wrong_and_what_there_is() -> None:
    with pytest.raises(ValidationError, match=r"must be some of uniform, .*, capped, joined"):
        Settings(strategy="best")
    with pytest.raises(ValidationError, match="a thing twice, or two of the first three"):
        Settings(strategy="uniform+top-reward")


@pytest.mark.parametrize(
    "name", ["", "best", "uniform+", "positive+positive", "uniform+top-reward"]
)
def test_what_is_no_strategy_is_refused_by_both(name: str) -> None:
    with pytest.raises(Unknown):
        parse_strategy(name)
    with pytest.raises(ValidationError):
        Settings(strategy=name)


def test_the_papers_passes_over_groups_without_signal_and_takes_the_first_drawn() -> None:
    uniform = parse_strategy("uniform")
    assert [uniform.usable(rewards) for rewards in (ZERO, LOW, HIGH, FULL)] == [0, 1, 1, 0]
    assert uniform.choose([one(HIGH), one(LOW), one(HIGH)], 2) == [0, 1]
    assert uniform.enough(4) == 4


def test_the_demos_takes_every_group() -> None:
    demo = parse_strategy("uniform-unfiltered")
    assert all(demo.usable(rewards) for rewards in (ZERO, LOW, HIGH, FULL))
    assert not demo.usable(())


def test_top_reward_takes_the_best_of_all_that_it_looked_at() -> None:
    top = parse_strategy("top-reward")
    assert top.choose([one(LOW), one(ZERO), one(FULL), one(HIGH)], 2) == [2, 3]
    assert top.enough(2) == 8


def test_balance_takes_families_in_turn_and_diverse_publishers() -> None:
    families = [one(family=name) for name in "aaabc"]
    assert parse_strategy("balance").choose(families, 4) == [0, 3, 4, 1]
    publishers = [one(publisher=PeerId(name)) for name in "xxy"]
    assert parse_strategy("diverse").choose(publishers, 2) == [0, 2]


def test_fresh_takes_the_newest() -> None:
    assert parse_strategy("fresh").choose([one(created_ms=t) for t in (5, 9, 7)], 2) == [1, 2]


def test_weak_takes_families_in_which_the_node_itself_is_poor() -> None:
    own = OwnRecord()
    own.add("a", HIGH)
    own.add("b", LOW)
    groups = [one(family="a"), one(family="b"), one(family="never asked")]
    assert parse_strategy("weak").choose(groups, 3, own) == [2, 1, 0]


def test_the_first_word_decides_and_the_next_breaks_ties() -> None:
    groups = [one(family="a", created_ms=1), one(family="a", created_ms=2), one(family="b")]
    assert parse_strategy("balance+fresh").choose(groups, 2) == [1, 2]
    assert parse_strategy("fresh+balance").choose(groups, 2) == [1, 0]


def test_positive_keeps_what_others_got_right() -> None:
    advantages = [-0.5, 1.5, -0.5, 0.0]
    assert parse_strategy("positive").trained_on(advantages) == [1]
    assert parse_strategy("uniform").trained_on(advantages) == [0, 1, 2, 3]


def test_no_more_is_chosen_than_there_is() -> None:
    for name in STRATEGY_WORDS:
        two = [one(), one(publisher=PeerId("q"))]
        assert sorted(parse_strategy(name).choose(two, 5)) == [0, 1]
        assert parse_strategy(name).choose([], 5) == []


def test_distinct_counts_a_text_once_whoever_signed_it() -> None:
    task = ("a", 1, 0)
    first = one(task=task, texts=frozenset("abcd"))
    copy = one(task=task, texts=frozenset("cdx"), publisher=PeerId("thief"))
    other_answers = one(task=task, texts=frozenset("dxyz"))
    elsewhere = one(task=("a", 2, 0), texts=frozenset("abcd"))
    distinct = parse_strategy("distinct")
    assert distinct.choose([first, copy, other_answers, elsewhere], 4) == [0, 2, 3]
    own = OwnRecord()
    own.add_trained(first)
    assert distinct.choose([copy, elsewhere], 2, own) == [1]
    assert [distinct.is_spent(c, own) for c in (copy, other_answers, elsewhere)] == [
        True,
        False,
        False,
    ]
    assert not parse_strategy("uniform").is_spent(copy, own)
    assert parse_strategy("uniform").choose([copy, elsewhere], 2, own) == [0, 1]


def test_capped_takes_one_group_of_a_publisher() -> None:
    publishers = [one(publisher=PeerId(name)) for name in "xxyx"]
    assert parse_strategy("capped").choose(publishers, 3) == [0, 2]
    assert parse_strategy("capped").enough(2) > 2
