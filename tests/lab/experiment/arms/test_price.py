"""`shoal experiment price`: weights that are averaged, nodes that leave, and what both cost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from shoal_lab.experiment.arms.price import all_arms, leaving, mixed, quick_arms, read, refusals
from shoal_lab.experiment.command import main
from shoal_lab.experiment.flags import UsageError, make_experiment, parser
from shoal_lab.experiment.plan import (
    SILO,
    Arm,
    Experiment,
    Job,
    NodeSpec,
    check_settings,
    refusal,
    uniform_arm,
)
from shoal_lab.experiment.playing import averaging
from shoal_lab.experiment.playing.in_process import Workers, play, workers
from shoal_lab.experiment.reading.report import Reading
from shoal_lab.experiment.reading.results import Run, make_run
from shoal_lab.figures import save
from shoal_lab.significance import paired

BASE = {
    "model": "tiny",
    "device": "cpu",
    "completions": 4,
    "eval_every": 2,
    "eval_per_family": 1,
    "local": 2,
    "external": 0,
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Workers]:
    torch.set_num_threads(1)
    with workers() as made:
        yield made


def lines_of(shared: Workers, arm: Arm, rounds: int) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    play(Job(arm=arm, seed=1, rounds=rounds, base=BASE), shared, lines.append)
    return lines


def rounds_of(lines: Sequence[dict[str, Any]], node: int) -> list[int]:
    return [one["round"] for one in lines if one["event"] == "round" and one["node"] == node]


def sent(lines: Sequence[dict[str, Any]], node: int, what: str) -> dict[int, int]:
    """By round: bytes. Before the first round nothing is said of them."""
    held_out = [one for one in lines if one["event"] == "held_out" and one["node"] == node]
    return {one["round"]: one[f"{what}_bytes"] for one in held_out if one["round"]}


def test_a_mean_is_of_what_is_trained_and_its_bytes_are_those_of_a_ring() -> None:
    models = [torch.nn.Linear(3, 2) for _ in range(4)]
    for number, model in enumerate(models):
        model.bias.requires_grad_(False)
        with torch.no_grad():
            model.weight.fill_(float(number))
            model.bias.fill_(float(number))
    # 3 of 4 parts go out twice: 6 weights of 4 bytes.
    assert averaging.average(models) == 2 * 3 * 24 // 4
    assert all(torch.equal(model.weight, torch.full((2, 3), 1.5)) for model in models)
    assert [float(model.bias[0]) for model in models] == [0.0, 1.0, 2.0, 3.0]
    assert averaging.average(models[:1]) == 0
    with pytest.raises(RuntimeError):
        averaging.average([torch.nn.Linear(3, 2), torch.nn.Linear(2, 2)])


def test_nodes_that_are_there_average_when_their_arm_says_so(
    shared: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = []

    def watched(models: Sequence[torch.nn.Module]) -> int:
        before = [next(model.parameters()).detach().clone() for model in models]
        num_bytes = averaging.average(models)
        seen.append((before, [next(model.parameters()).detach().clone() for model in models]))
        return num_bytes

    monkeypatch.setattr("shoal_lab.experiment.playing.in_process.average", watched)
    arm = replace(leaving(uniform_arm("silo", 3)), average_every=2)
    lines = lines_of(shared, arm, rounds=4)
    assert [len(before) for before, _ in seen] == [3, 2]  # the third has left after round 2
    for before, after in seen:
        assert not torch.equal(before[0], before[1])
        assert all(torch.allclose(one, sum(before) / len(before)) for one in after)
    weights = sent(lines, 0, "weight")
    # Of three each sends 4/3 of the weights, of two one whole.
    assert 4 * (weights[4] - weights[2]) == pytest.approx(3 * weights[2], abs=8)
    assert weights[2] > 0
    assert set(sent(lines, 0, "text").values()) == {0}


def test_who_leaves_plays_no_more_and_is_sent_nothing(shared: Workers) -> None:
    text = uniform_arm("text", 3, local=2, external=2)
    whole, parted = lines_of(shared, text, 6), lines_of(shared, leaving(text), 6)
    assert rounds_of(whole, 2) == [1, 2, 3, 4, 5, 6]
    assert rounds_of(parted, 2) == [1, 2, 3]
    assert list(sent(parted, 2, "text")) == [2, 3]  # asked a last time when it leaves
    assert list(sent(parted, 0, "text")) == [2, 4, 6]
    grown = [sent(lines, 0, "text")[6] - sent(lines, 0, "text")[4] for lines in (whole, parted)]
    assert 0 < grown[1] < 0.7 * grown[0]  # one other is there to be told, not two
    assert set(sent(parted, 0, "weight").values()) == {0}
    run = make_run(Job(arm=leaving(text), seed=1, rounds=6, base=BASE), parted)
    assert (len(run.fresh), run.rounds, len(run.looked_at)) == (2, 6, 6)  # of who stays
    for line in parted:
        line.pop("groups_looked_at", None)  # what was played before it was noted
    assert make_run(Job(arm=leaving(text), seed=1, rounds=6, base=BASE), parted).looked_at == ()


def test_every_arm_answers_and_trains_on_as_many_groups_in_as_many_steps() -> None:
    experiment = make_experiment(parser().parse_args(["price", "--seeds", "1"]))
    for job in experiment.jobs():
        for index in range(job.num_nodes):
            one = job.node_settings(index)
            wanted = 4 if job.arm.name == "4/4" else 8
            assert max(one.questions, one.local) == wanted, job.arm.name
            assert (one.local + one.external, one.minibatches) == (8, 2)
    check_settings(experiment)
    names = [arm.name for arm in all_arms(4)]
    assert [arm.average_every for arm in all_arms(4)[2:6]] == [1, 5, 20, 5]
    assert [sum(node.leaves < 1 for node in arm.nodes) for arm in all_arms(8)[7:10]] == [2, 2, 2]
    assert [arm.name for arm in quick_arms(4)] == ["8/0", "text", "weights 5", "both 5"]
    assert len(set(names)) == len(names) == 12


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 5, 64])
@pytest.mark.parametrize("rounds", [1, 2, 60])
def test_somebody_is_there_at_the_end_of_every_arm(num_nodes: int, rounds: int) -> None:
    for arm in (*all_arms(num_nodes), *quick_arms(num_nodes)):
        assert any(node.last_round(rounds) == rounds for node in arm.nodes), arm.name
        assert not arm.name.endswith(" leaving") or not all(node.leaves == 1 for node in arm.nodes)


def test_weights_of_different_models_are_refused() -> None:
    silo = uniform_arm(SILO, 4, local=8, external=0)
    averaged = replace(mixed(silo), average_every=5)
    job = Job(arm=averaged, seed=1, rounds=2, base={"model": "tiny-sparse"})
    assert "larger and tiny-sparse have no mean" in str(refusal(job))
    assert refusal(replace(job, arm=mixed(silo))) is None
    assert refusal(replace(job, arm=replace(silo, average_every=5))) is None
    ranked = Arm(
        name="ranks",
        nodes=tuple(NodeSpec(settings={"lora_rank": rank}) for rank in (4, 8)),
        average_every=1,
    )
    assert "no mean" in str(refusal(replace(job, arm=ranked)))
    with pytest.raises(UsageError, match="have no mean"):
        make_experiment(parser().parse_args(["price", "--arm", "8/0 mixed,average=2"]))


def test_an_arm_of_any_preset_may_average_and_others_are_the_jobs_that_they_were() -> None:
    flags = ["paper", "--nodes", "2", "--arm", "4/4,average=7", "--arm", "4/4"]
    silo, averaged, plain = make_experiment(parser().parse_args(flags)).arms
    assert (silo.average_every, averaged.average_every, plain.average_every) == (0, 7, 0)
    job = Job(arm=plain, seed=1, rounds=2, base={})
    assert job.to_json().keys() == {"event", "arm", "nodes", "seed", "rounds", "base", "swarm"}
    assert job.to_json()["nodes"][0].keys() == {"settings", "behaviour"}
    assert replace(job, arm=averaged).to_json()["average_every"] == 7
    assert replace(job, arm=leaving(plain)).to_json()["nodes"][1]["leaves"] == 0.5
    with pytest.raises(UsageError, match="average is 1 to"):
        make_experiment(parser().parse_args([*flags[:3], "--arm", "4/4,average=0"]))


def made_up(
    arm: Arm, seed: int, levels: Sequence[float], *, text: int = 0, weights: int = 0
) -> Run:
    """A job of ten rounds whose nodes know as much as `levels` at every evaluation."""
    job, lines = Job(arm=arm, seed=seed, rounds=10, base={}), []
    for node, level in enumerate(levels):
        last = arm.nodes[node].last_round(10)
        lines += [
            {
                "event": "round",
                "node": node,
                "round": n,
                "tokens_generated": 100,
                "reward_local": 1,
                "reward": 1,
                "groups_with_signal": 1,
                "step_time": 1,
            }
            for n in range(1, last + 1)
        ]
        lines += [
            {
                "event": "held_out",
                "node": node,
                "round": n,
                "held_out/pass@1": level,
                "text_bytes": n * text,
                "weight_bytes": n * weights,
            }
            for n in range(0, last + 1, 5)
        ]
    return make_run(job, lines)


def priced(runs: list[Run], *arms: Arm) -> Reading:
    experiment = Experiment(
        name="x", arms=arms, seeds=(1, 2), rounds=10, base={"model": "tiny-sparse"}
    )
    return read(runs, experiment)


def test_a_price_is_of_the_whole_swarm_and_of_who_is_there_at_the_end() -> None:
    silo, text = uniform_arm(SILO, 4), uniform_arm("text", 4)
    runs = []
    for seed in (1, 2):
        runs += [
            made_up(silo, seed, [0.1, 0.2, 0.3, 0.4]),
            made_up(text, seed, [0.5, 0.5, 0.5, 0.1 * seed], text=25_000),
            made_up(leaving(text), seed, [0.3, 0.4, 0.5, 0.9], text=1000, weights=9000),
        ]
    found = priced(runs, silo, text, leaving(text))
    base, sharing, parted = (
        {key: one["mean"] if isinstance(one, dict) else one for key, one in price.items()}
        for price in found.document["prices"]
    )
    of_nodes = ("heldout_mean", "heldout_best", "heldout_worst")
    assert [base[name] for name in of_nodes] == [0.25, 0.4, 0.1]
    assert (base["gain_over_8_0"], base["gain_per_mb"]) == (None, None)
    assert (base["swarm_tokens"], base["heldout_per_100k_tokens"]) == (4000, 6.25)
    assert [sharing[name] for name in of_nodes] == [0.4125, 0.5, 0.15]
    assert (sharing["text_bytes"], sharing["gain_over_8_0"]) == (1_000_000, 0.1625)
    assert sharing["gain_per_mb"] == 0.1625
    # Who left counts in tokens and bytes, not in what is known.
    assert (parted["heldout_mean"], parted["heldout_best"]) == (0.4, 0.5)
    assert parted["swarm_tokens"] == 3 * 1000 + 500
    assert (parted["text_bytes"], parted["weight_bytes"]) == (35_000, 315_000)
    pairs = {(one["arm"], one["minus"]): one for one in found.document["pairs"]}
    assert list(pairs) == [("text", SILO), ("text leaving", "text")]
    assert pairs["text leaving", "text"]["heldout"]["mean"] == pytest.approx(0.4 - 0.4125)
    first = pairs["text", SILO]
    assert (first["total"]["mean"], first["total_p_adjusted"]) == (0, 1.0)
    # Of two, the least of which counts twice.
    raw = [paired([0.15, 0.175]), paired([0.4 - 0.4, 0.4 - 0.425])]
    assert first["heldout_p_adjusted"] == pytest.approx(2 * min(p for p in raw if p is not None))
    page = found.sheet.markdown(found.rows, found.notes)
    assert "not played: weights 5 mixed, both 5 mixed: the weights of" in page
    assert "| text leaving | 0.400 ± 0.000 | 0.500 | 0.300 |" in page
    assert "| 0.500 | 0.150 | 10.0 ± 0.0 | 4 k | 10.312 | 25.0 | 0 | +0.1625 |" in page
    differing = [made_up(mixed(silo), 1, [0.2] * 4), made_up(mixed(text), 1, [0.3] * 4, text=1)]
    more = priced([*runs[:2], *differing], silo, text, mixed(silo), mixed(text))
    alone, together = more.document["prices"][2:]
    assert alone["gain_over_8_0"] is None and together["gain_over_8_0"]["mean"] == 0.1


def test_figures_are_drawn_of_every_arm(tmp_path: Path) -> None:
    silo, text = uniform_arm(SILO, 2), uniform_arm("text", 2)
    runs = [made_up(silo, 1, [0.1, 0.2]), made_up(text, 1, [0.3, 0.4], text=1000)]
    names = [path.name for path in save(tmp_path, priced(runs, silo, text).figures())]
    by = ["held-out-by-round.png", "held-out-by-tokens.png", "held-out-by-bytes.png"]
    assert names == ["held-out.png", *by]
    assert all((tmp_path / name).stat().st_size > 1000 for name in names)
    # Who sends nothing has no place beside those that send.
    assert "text" in (svg := (tmp_path / "held-out-by-bytes.svg").read_text())
    assert svg.count("8/0") == 1, "the line of its end"
    silent = save(tmp_path, priced(runs[:1], silo).figures())
    assert [path.name for path in silent] == names[:3]


def test_the_command_gives_table_numbers_and_refusals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["price", "--nodes", "2", "--rounds", "2", "--jobs", "0", "--seeds", "1"]
    flags += ["--arm", "text", "--arm", "weights 1", "--set", "completions=4"]
    flags += ["--set", "eval_every=1", "--set", "eval_per_family=1"]
    assert main([*flags, "--out", "out", "--json", "--no-figures"]) == 0
    document = json.loads(capsys.readouterr().out)
    text, weights = document["prices"][1:]
    assert [one["arm"] for one in document["prices"]] == [SILO, "text", "weights 1"]
    assert text["text_bytes"]["mean"] > 0 == text["weight_bytes"]["mean"]
    assert weights["weight_bytes"]["mean"] > 0 == weights["text_bytes"]["mean"]
    assert document["refused"].keys() == {"weights 5 mixed", "both 5 mixed"}
    assert (
        "not played: weights 5 mixed, both 5 mixed: the weights of"
        in (tmp_path / "out" / "table.md").read_text()
    )
    assert refusals(make_experiment(parser().parse_args(flags))) == document["refused"]
