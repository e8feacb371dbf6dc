"""`shoal experiment unlike`: strong and weak nodes, and their comparisons."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from shoal_lab.experiment.arms.unlike import LARGER, all_arms
from shoal_lab.experiment.setup.larger_model import make_larger_model
from shoal_policy.model.loading import load_policy
from shoal_policy.model.prompting import encode_prompt
from tests.lab.experiment.jobs import document_of


def test_a_control_has_the_settings_of_its_role_in_the_mixed_swarm() -> None:
    arms = {arm.name: arm for arm in all_arms(6)}
    mixed = arms["unlike 4/8 shoal"].nodes
    assert [node.role for node in mixed] == ["strong", "weak"] * 3
    for role in ("strong", "weak"):
        assert {node.role for node in arms[f"alike 4/8, {role}"].nodes} == {role}
        assert all(node in mixed for node in arms[f"alike 4/8, {role}"].nodes)


def test_the_larger_model_starts_as_the_small_one_with_other_ids(tmp_path: Path) -> None:
    folder = tmp_path / "larger"
    make_larger_model(folder)
    small, large = (
        load_policy(name, device="cpu", dtype="auto", seed=1)
        for name in ("tiny-sparse", str(folder))
    )
    assert small.tokenizer_digest != large.tokenizer_digest
    assert large.model.num_parameters() > 1.4 * small.model.num_parameters()
    text = "Find the greatest common divisor: 12 and 8, zebra"
    prompts = [encode_prompt(policy, text) for policy in (small, large)]
    assert prompts[0] != prompts[1]
    assert large.tokenizer.decode(large.tokenizer(text)["input_ids"]) == text
    with torch.no_grad():
        by_small, by_large = (
            policy.model(torch.tensor([ids])).logits[0, -1]
            for policy, ids in zip((small, large), prompts, strict=True)
        )
    assert torch.allclose(by_small.sort().values, by_large.sort().values, atol=1e-4)
    before = (folder / "model.safetensors").stat().st_mtime_ns
    make_larger_model(folder)
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.slow
def test_the_command_gives_table_figures_and_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["unlike", "--nodes", "2", "--rounds", "2", "--jobs", "0", "--seeds", "1"]
    flags += ["--arm", "unlike 8/0", "--arm", "unlike 4/8 shoal", "--set", "completions=4"]
    flags += ["--set", "eval_every=1", "--set", "eval_per_family=1", "--set", "local=1"]
    document = document_of(capsys, *flags, "--out", "out")
    arms = ("unlike 8/0", "unlike 4/8 shoal")
    rows = [f"{arm}, {role}" for arm in arms for role in ("strong", "weak")]
    assert list(document["area"]) == rows
    compared = [(one["arm"], one["minus"]) for one in document["pairs"]]
    assert compared == [(rows[2], rows[0]), (rows[3], rows[1])]
    assert all((tmp_path / "out" / name).stat().st_size > 1000 for name in document["figures"])
    assert f"| {rows[1]} |" in (tmp_path / "out" / "table.md").read_text()
    assert LARGER.exists()
