"""`shoal experiment hetero`: nodes that differ, and what is compared of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from shoal_lab.experiment.arms.hetero import LARGER, all_arms
from shoal_lab.experiment.command import main
from shoal_lab.experiment.flags import make_experiment, parser
from shoal_lab.experiment.making.larger_model import make_larger_model
from shoal_lab.experiment.plan import Arm, Job, NodeSpec, check_settings
from shoal_lab.experiment.playing.in_process import Workers, play, workers
from shoal_lab.experiment.playing.tasks import SpecialistSource
from shoal_policy.model.loading import load_policy
from shoal_policy.model.prompting import encode_prompt

SHARING = {"local": 2, "external": 2}
BASE = {"model": "tiny", "device": "cpu", "completions": 4, "eval_every": 0}


@pytest.fixture(scope="module")
def shared() -> Iterator[Workers]:
    torch.set_num_threads(1)
    with workers() as made:
        yield made


def lines_of(shared: Workers, *nodes: NodeSpec) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    job = Job(arm=Arm(name="a", nodes=nodes), seed=1, rounds=4, base=BASE)
    play(job, shared, lines.append)
    return lines


def test_slow_and_late_nodes_play_fewer_rounds_and_hear_the_others(shared: Workers) -> None:
    steady = NodeSpec(settings=SHARING)
    slow, late = NodeSpec(settings=SHARING, every=3), NodeSpec(settings=SHARING, late=0.5)
    lines = lines_of(shared, steady, slow, late)
    numbers = {node: [o["round"] for o in lines if o["node"] == node] for node in range(3)}
    assert numbers == {0: [1, 2, 3, 4], 1: [3], 2: [3, 4]}
    assert sum(line["external_drawn"] for line in lines if line["node"] == 2) > 0


def test_a_specialist_asks_of_its_own_families_only(shared: Workers) -> None:
    asked: list[str] = []

    class Watched(SpecialistSource):
        def draw(self, rng: Any, count: int) -> Any:
            drawn = super().draw(rng, count)
            asked.extend(question.task.family for question in drawn)
            assert len(drawn) == count
            return drawn

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shoal_lab.experiment.playing.in_process.SpecialistSource", Watched)
        lines_of(
            shared, NodeSpec(settings=SHARING, families=("gcd_easy",)), NodeSpec(settings=SHARING)
        )
    assert set(asked) == {"gcd_easy"}
    assert len(asked) == 8


def test_the_larger_model_starts_as_the_small_one_with_other_ids(tmp_path: Path) -> None:
    folder = tmp_path / "larger"
    make_larger_model(folder)
    small, large = (
        load_policy(name, device="cpu", dtype="auto", attention="auto", seed=1)
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


def test_every_difference_has_its_arm() -> None:
    arms = {arm.name: arm for arm in all_arms(8)}
    assert all(len(arm.nodes) == 8 for arm in arms.values())
    assert {node.settings.get("completions") for node in arms["L 4/4"].nodes} == {4, 8, 16}
    assert len({node.families for node in arms["specialists 4/4"].nodes}) == 6
    assert [node.role for node in arms["slow and late 4/4"].nodes].count("slow") == 2
    assert any(
        node.settings.get("model") == str(LARGER) for node in arms["sizes and tokenizers 4/4"].nodes
    )
    for flags in (["hetero"], ["hetero", "--quick"]):
        check_settings(make_experiment(parser().parse_args(flags)))


def test_the_command_gives_table_figures_and_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["hetero", "--nodes", "2", "--rounds", "2", "--jobs", "0", "--seeds", "1"]
    flags += ["--arm", "sizes and tokenizers 4/4", "--set", "completions=4"]
    flags += ["--set", "eval_every=1", "--set", "eval_per_family=1", "--set", "local=1"]
    assert main([*flags, "--out", "out", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    roles = [f"sizes and tokenizers 4/4, {role}" for role in ("small", "larger")]
    assert list(document["area"]) == ["8/0", *roles]
    assert all((tmp_path / "out" / name).stat().st_size > 1000 for name in document["figures"])
    assert f"| {roles[1]} |" in (tmp_path / "out" / "table.md").read_text()
    assert LARGER.exists()
