"""`shoal tasks`, as a user meets it."""

from __future__ import annotations

import json

import pytest

from shoal.__main__ import main
from shoal_tasks.families import PRESETS, config_digest
from shoal_tasks.generators import ALLOWED_GENERATORS


def test_the_list_has_every_family_of_every_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    listed = {(row["preset"], row["name"], row["config_digest"]) for row in view["families"]}
    assert listed == {
        (preset, spec.name, config_digest(spec).hex())
        for preset, specs in PRESETS.items()
        for spec in specs
    }
    assert view["generators"] == sorted(ALLOWED_GENERATORS)
    assert main(["tasks"]) == 0
    text = capsys.readouterr().out
    assert all(row["name"] in text and row["scorer"] in text for row in view["families"])


def test_a_family_shows_a_sample_and_what_completions_earn(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["tasks", "gcd_easy", "--seed", "1048600", "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    sample = view["sample"]
    assert (view["preset"], view["generator"], view["instruction"]) == ("easy", "gcd", None)
    assert sample["seed"] == 1048600
    right, cut, tagged, wrong = sample["scored"]
    assert right == {"completion": sample["answer"], "finish_reason": "stop", "reward": 1.0}
    assert [row["reward"] for row in (cut, tagged, wrong)] == [0.0, 0.0, 0.0]
    assert cut["finish_reason"] == "length"


def test_a_generator_is_shown_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "spiral_matrix"]) == 0
    text = capsys.readouterr().out
    assert "list of elements in spiral order" in text
    assert "<answer>" in text
    assert " 1.00  " in text
    assert " 0.00  " in text


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["gcd_eazy"], "did you mean 'gcd_easy'"),
        (["%"], "`shoal tasks` lists them"),
    ],
)
def test_an_unknown_family_is_one_line_and_exit_code_2(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tasks", *argv]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.startswith("shoal tasks: ")
    assert said in shown.err
    assert len(shown.err.splitlines()) == 1


def test_a_seed_out_of_range_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["tasks", "gcd_easy", "--seed", "-1"])
    assert end.value.code == 2
    assert "must be 0 to" in capsys.readouterr().err
