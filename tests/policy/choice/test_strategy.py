"""Strategies: which groups of others are chosen, and what of them is trained on."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from shoal_policy.choice.sources import Candidate
from shoal_policy.choice.strategy import WORDS, parse_strategy
from shoal_settings.schema import Settings
from shoal_settings.strategy import STRATEGY_WORDS, StrategyError
from tests.support.site import page


def one(**of: Any) -> Candidate:
    usual = {"family": "a", "signal": 0.0, "network": "n"}
    return Candidate(**{**usual, **of})


def test_the_setting_and_the_documentation_know_the_same_words() -> None:
    assert tuple(word.name for word in WORDS) == STRATEGY_WORDS
    table = r"\| word \| what it does \|\n\|[-| ]+\n((?:\|.*\n)+)"
    (rows,) = re.findall(table, page("losses.md"))
    assert rows.splitlines() == [f"| `{word.name}` | {word.does} |" for word in WORDS]


@pytest.mark.parametrize("name", ["", "best", "uniform+", "positive+positive", "weak"])
def test_what_is_no_strategy_is_refused(name: str) -> None:
    with pytest.raises(StrategyError):
        parse_strategy(name)
    with pytest.raises(ValidationError):
        Settings(strategy=name)


def test_the_papers_takes_the_first_drawn() -> None:
    uniform = parse_strategy("uniform")
    assert uniform.choose([one(signal=s) for s in (2, 1, 3)], 2) == [0, 1]
    assert uniform.num_candidates(4) == 4
    assert parse_strategy("uniform+positive").num_candidates(4) == 16


def test_balance_takes_families_in_turn() -> None:
    families = [one(family=name) for name in "aaabc"]
    assert parse_strategy("balance").choose(families, 4) == [0, 3, 4, 1]


def test_positive_keeps_what_others_got_right() -> None:
    advantages = [-0.5, 1.5, -0.5, 0.0]
    assert parse_strategy("positive").select_completions(advantages) == [1]
    assert parse_strategy("uniform").select_completions(advantages) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", STRATEGY_WORDS)
def test_no_more_is_chosen_than_there_is(name: str) -> None:
    assert sorted(parse_strategy(name).choose([one(), one(network="m")], 5)) == [0, 1]
    assert parse_strategy(name).choose([], 5) == []
