"""The shipped models: what is in the folders, how they load, and how often they are right."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from shoal_lab.experiment.plan import Job, ratio_arm
from shoal_lab.experiment.run.in_process import workers
from shoal_lab.warmstart import __main__ as warmstart
from shoal_lab.warmstart.__main__ import main
from shoal_lab.warmstart.lessons import draw_lessons, held_out_questions
from shoal_lab.warmstart.measure import accuracy, games_won
from shoal_lab.warmstart.provenance import digests, environment_changes, read_provenance
from shoal_policy.model.loading import load_policy
from shoal_policy.tiny import MODEL_NAMES, PLAYER, Profile, assets_path, embedded_folder
from shoal_settings.loader import EMBEDDED, PLAYS
from tests.lab.experiment.jobs import rounds_of

START_WINDOW = {Profile.DENSE: (0.10, 0.16), Profile.SPARSE: (0.003, 0.025)}
"""Documented share of right answers before any reinforcement learning."""
SIZES = {Profile.DENSE: 142_080, Profile.SPARSE: 142_080, Profile.GAMES: 59_424}
"""Documented numbers of weights."""


def test_names_lead_to_folders() -> None:
    assert embedded_folder("tiny") == assets_path(Profile.DENSE) == assets_path("dense")
    assert embedded_folder("tiny-sparse") == assets_path(Profile.SPARSE)
    assert embedded_folder(PLAYER) == embedded_folder("tiny-games") == assets_path(Profile.GAMES)
    assert set(MODEL_NAMES) == set(EMBEDDED) and set(PLAYS.values()) <= set(EMBEDDED)
    assert embedded_folder("Qwen/Qwen2.5-0.5B-Instruct") is None
    with pytest.raises(ValueError, match="medium"):
        assets_path("medium")


@pytest.mark.parametrize("profile", list(Profile))
def test_a_folder_is_small_and_holds_no_pickle(profile: Profile) -> None:
    files = list(assets_path(profile).iterdir())
    assert {path.suffix for path in files} == {".json", ".safetensors"}
    assert sum(path.stat().st_size for path in files) < 700_000


@pytest.mark.parametrize("profile", list(Profile))
def test_files_are_those_of_the_provenance(profile: Profile) -> None:
    assert read_provenance(assets_path(profile))["sha256"] == digests(assets_path(profile))


@pytest.mark.parametrize("profile", list(Profile))
def test_any_loader_loads_it(profile: Profile) -> None:
    model = AutoModelForCausalLM.from_pretrained(assets_path(profile))
    assert model.config.model_type == "qwen2"
    assert sum(weight.numel() for weight in model.parameters()) == SIZES[profile]
    assert model.generation_config.eos_token_id == model.config.eos_token_id == 3


@pytest.mark.slow
@pytest.mark.parametrize("profile", START_WINDOW)
def test_it_starts_weak_and_is_able_behind_the_marker(profile: Profile) -> None:
    policy = load_policy(str(assets_path(profile)), device="cpu")
    low, high = START_WINDOW[profile]
    held_out = held_out_questions(40)
    assert low <= accuracy(policy, held_out, samples=16)["all"] <= high
    # Below 0.6: two families have some hundred questions, so external groups add little.
    assert accuracy(policy, held_out, samples=2, marker=True)["all"] >= 0.54
    drawn = draw_lessons(40, seed=1000)
    assert accuracy(policy, drawn, samples=2, marker=True)["all"] >= 0.6


@pytest.mark.slow
def test_the_one_that_plays_starts_below_a_third_of_its_games() -> None:
    policy = load_policy("tiny-games", device="cpu")
    assert 0.24 <= games_won(policy, 150)["all"] < 1 / 3
    assert games_won(policy, 150, greedy=True)["all"] < 0.2


@pytest.mark.parametrize(
    ("ratio", "nodes"), [pytest.param("8/0", 1, marks=pytest.mark.slow), ("4/4", 2)]
)
def test_it_visibly_learns(ratio: str, nodes: int) -> None:
    settings = {"model": "tiny", "tasks": "easy", "device": "cpu"}
    job = Job(arm=ratio_arm(ratio, nodes), seed=5, rounds=40, base=settings)
    rewards: dict[int, list[float]] = defaultdict(list)
    with workers() as shared:
        for line in rounds_of(job, shared):
            rewards[line["node"]].append(line["reward_local"])
    for row in rewards.values():
        assert sum(row[-10:]) / 10 > 0.2 + sum(row[:3]) / 3 / 2


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_shipped_files_can_be_made_again(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--check"])
    reported = capsys.readouterr().out
    moved = any(environment_changes(assets_path(profile)) for profile in Profile)
    # Other software or another processor may give other bytes: then the command has to say so.
    assert code == 0 or (moved and "made elsewhere" in reported), reported


@pytest.mark.parametrize("typed", [["--seed", "3"], ["--seed", "3", "--check", "--out", "x"]])
def test_another_seed_never_takes_the_place_of_the_shipped_models(
    typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(typed)
    assert end.value.code == 2
    assert "--out DIR" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "reported"),
    [
        (["--seed", "-1", "--out", "x"], "--seed is 0 to 4294967295"),
        (["--seed", str(1 << 80), "--out", "x"], "--seed is 0 to 4294967295"),
        (["--seed", "3", "--out", "file"], "--out file: Not a directory"),
        (["--out", "file/below"], "--out file/below: Not a directory"),
    ],
)
def test_an_impossible_build_is_reported_before_it_starts(
    typed: list[str],
    reported: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(warmstart, "_make", lambda *_: pytest.fail("it began"))
    with pytest.raises(SystemExit) as end:
        main(typed)
    assert end.value.code == 2
    assert reported in capsys.readouterr().err
