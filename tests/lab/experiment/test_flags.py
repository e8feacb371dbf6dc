"""How `shoal experiment` reads its flags."""

from __future__ import annotations

import pytest

from shoal_lab.experiment.flags import UsageError
from shoal_lab.experiment.plan import FILTERED, check_settings
from shoal_lab.experiment.presets import PRESETS
from tests.lab.experiment.jobs import experiment, parse_flags


@pytest.mark.parametrize("size", [[], ["--quick"]])
@pytest.mark.parametrize("preset", PRESETS)
def test_each_preset_has_settings_that_exist(preset: str, size: list[str]) -> None:
    check_settings(experiment(preset, *size))


def test_a_real_model_brings_its_own_defaults_and_flags_win() -> None:
    base = parse_flags(
        "--model", "org/name", "--tasks", "paper", "--set", "learning_rate=3e-6"
    ).base
    assert (base["model"], base["tasks"], base["device"]) == ("org/name", ["paper"], "auto")
    assert base["learning_rate"] == 3e-6
    assert base["max_new_tokens"] > 100


def test_games_are_played_by_the_embedded_model_that_knows_them() -> None:
    assert parse_flags("--tasks", "games-1").base["model"] == "tiny-games"
    assert parse_flags("--tasks", "games-1", "--model", "tiny").base["model"] == "tiny"


def test_arms_may_differ_in_any_setting_and_the_silo_is_always_there() -> None:
    experiment = parse_flags("--arm", "4/4,strategy=positive,minibatches=2", "--arm", "filtered")
    assert [arm.name for arm in experiment.arms] == [
        "8/0",
        "4/4 strategy=positive minibatches=2",
        FILTERED,
    ]
    settings = experiment.jobs()[1].node_settings(0)
    assert (settings.strategy, settings.minibatches, settings.local) == ("positive", 2, 4)


def test_an_arm_may_be_a_swarm_of_another_size_or_hear_later() -> None:
    arms = parse_flags(
        "--nodes", "4", "--arm", "32/0,nodes=1", "--arm", "4/4,delay=20,nodes=16"
    ).arms
    assert [(arm.name, len(arm.nodes)) for arm in arms] == [
        ("8/0", 4),
        ("32/0 nodes=1", 1),
        ("4/4 delay=20 nodes=16", 16),
    ]
    assert {node.delay for node in arms[2].nodes} == {20}
    assert {node.delay for arm in arms[:2] for node in arm.nodes} == {0}


@pytest.mark.parametrize(
    "change", ["nodes=0", "nodes=65", "nodes", "nodes=²", "delay=-1", "delay=x"]
)
def test_a_swarm_that_cannot_be_is_one_line(change: str) -> None:
    with pytest.raises(UsageError, match=r"is [01] to"):
        parse_flags("--arm", f"4/4,{change}")
