"""`shoal experiment poison`: its arms, and the command's table and figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_lab.experiment.arms import poison
from shoal_lab.experiment.run.attackers import ATTACKS, PLANTED
from shoal_settings.schema import Settings
from tests.lab.experiment.jobs import document_of, experiment


def test_shares_are_of_all_members() -> None:
    assert [poison.num_attackers(share, 9) for share in poison.SHARES] == [1, 3, 9]
    assert poison.num_attackers(0.1, 2) == 1


def test_every_attack_at_every_share_in_the_papers_swarm_and_in_ours() -> None:
    arms = {arm.name: arm for arm in poison.all_arms(6)}
    names = [node.behaviour for node in arms["names 67%: default"].nodes]
    assert names == ["honest"] * 6 + ["names"] * 12
    for kind in poison.KINDS[:-1]:
        for share, hostile in ((0.1, 1), (0.25, 2), (0.5, 6)):
            for defence in (poison.NONE, poison.DEFAULT):
                behaviours = [n.behaviour for n in arms[f"{kind} {share:.0%}: {defence}"].nodes]
                assert behaviours == ["honest"] * 6 + [kind] * hostile
    assert {"clean: none", "clean: default"} < set(arms)
    assert {arm.name for arm in poison.quick_arms(6)} < set(arms)


def test_every_attack_is_of_plain_or_tagged_answers_or_games() -> None:
    assert sorted(ATTACKS) == sorted((*poison.KINDS, *poison.TAGGED_KINDS, "tabs"))
    assert set(poison.TAGGED_KINDS) < set(PLANTED)


@pytest.mark.slow
def test_the_command_gives_table_and_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--quick", "--nodes", "2", "--rounds", "2", "--jobs", "0", "--model", "tiny"]
    for arm in ("clean: none", "mark 25%: none", "mark 25%: default"):
        flags += ["--arm", arm]
    flags += ["--set", "completions=4", "--set", "eval_every=1", "--set", "eval_per_family=1"]
    flags += ["--no-figures"]
    document = document_of(capsys, "poison", *flags, "--out", str(tmp_path))
    assert list(document["area"]) == ["clean: none", "mark 25%: none", "mark 25%: default"]
    assert document["planted"]["mark 25%: none"] == {"mean": 0.0, "sd": 0.0, "ci95": None}
    assert [(one["arm"], one["minus"]) for one in document["pairs"]][:1] == [
        ("mark 25%: none", "clean: none")
    ]
    assert "| mark 25%: default |" in (tmp_path / "table.md").read_text()


def test_the_default_is_what_a_node_runs() -> None:
    jobs = [job for job in experiment("poison").jobs() if job.arm.name == "clean: default"]
    mine, node = jobs[0].node_settings(0), Settings()
    for name in (
        "local",
        "external",
        "strategy",
        "publisher_sampling",
        "completions",
        "learning_rate",
    ):
        assert getattr(mine, name) == getattr(node, name), name
    assert (mine.minibatches, mine.max_new_tokens) == (node.minibatches, node.max_new_tokens)
