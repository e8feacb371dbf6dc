"""A policy dealt out over two processes (FSDP2, gloo) trains, resumes and exports as in one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM

from shoal_policy.checkpoint.export import export_model
from shoal_policy.checkpoint.saved import checkpoint_to_export, latest_checkpoint
from shoal_policy.distributed import RankError, Ranks, join
from shoal_policy.generation.local import generate
from shoal_policy.model.from_settings import fresh_policy
from shoal_policy.model.loading import compute_dtype
from shoal_policy.sharded import ShardedLeader, ShardedPart, _Take, follow_sharded, refuse_unsharded
from shoal_policy.update.grpo import GrpoConfig, TrainGroup, make_optimizer, update
from tests.policy import resume_cases
from tests.policy import training_cases as case
from tests.policy.test_distributed import free_port, recorded, weights

FLAGS = (
    *("--alone", "--model=tiny", "--local=5", "--external=0", "--seed=5", "--log=none"),
    *("--device=cpu", "--eval-every=1", "--eval-per-family=1", "--checkpoint-seconds=1000"),
    *("--epochs=2", "--threads=1"),
)


def run(data_dir: Path, ranks: int, *more: str) -> None:
    """Run a trainer on so many processes; more than one hold a part of the weights each."""
    flags = [*FLAGS, f"--data-dir={data_dir}", *more]
    meeting: dict[str, str] = {}
    if ranks > 1:
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        meeting |= {"WORLD_SIZE": str(ranks), "ACCELERATE_USE_FSDP": "true"}
    found = [
        resume_cases.start_command(flags, **meeting, **({"RANK": str(rank)} if meeting else {}))
        for rank in range(ranks)
    ]
    assert [resume_cases.finish(process) for process in found] == [0] * ranks


def optimizer_of(data_dir: Path) -> dict[int, dict[str, torch.Tensor]]:
    found = latest_checkpoint(data_dir).path
    assert found is not None
    state: dict[int, dict[str, torch.Tensor]]
    state = torch.load(found / "optimizer.pt", weights_only=True)["state"]
    return state


def worst(one: Path, other: Path) -> float:
    """The largest difference of any weight."""
    mine, theirs = weights(one), weights(other)
    assert mine.keys() == theirs.keys()
    return max(float((mine[name] - theirs[name]).abs().max()) for name in mine)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("more", [(), ("--lora-rank=4", "--learning-rate=1e-2")], ids=len)
def test_two_processes_with_a_part_each_train_as_one(tmp_path: Path, more: tuple[str, ...]) -> None:
    one, two, parts = tmp_path / "one", tmp_path / "two", tmp_path / "parts"
    run(one, 1, "--rounds=3", *more)
    run(two, 2, "--rounds=3", *more)
    rows, other = recorded(one), recorded(two)
    played = [row for row in rows if row["event"] == "round"]
    assert max(abs(row["loss"]) for row in played) > 1e-4, "no loss, no comparison"
    assert [row["event"] for row in other] == [row["event"] for row in rows]
    for mine, theirs in zip(rows, other, strict=True):
        for name in ("reward", "num_tokens", "loss", "grad_norm", "held_out/pass@1"):
            if mine.get(name) is not None:
                assert theirs[name] == pytest.approx(mine[name], abs=1e-5), name
    assert worst(one, two) < 1e-4
    for index, state in optimizer_of(one).items():
        for name, value in state.items():
            assert torch.allclose(value, optimizer_of(two)[index][name], atol=1e-4), name
    # Taken up in parts it is the run that was not interrupted, to the bit; and any number may.
    run(parts, 2, "--rounds=1", *more)
    run(parts, 2, "--rounds=3", *more)
    assert worst(two, parts) == 0
    run(parts, 1, "--rounds=4", *more)
    assert [row["round"] for row in recorded(parts) if row["event"] == "round"] == [1, 2, 3, 4]
    if more:
        return
    settings = case.settings(parts, "tiny")
    found = checkpoint_to_export(parts, tmp_path / "out")
    export_model(settings, found, tmp_path / "out", lambda _step: None)
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    assert all(torch.equal(exported[name], value) for name, value in weights(parts).items())


class Stopped(Exception):  # noqa: N818 - an order
    """Told to stop in the middle of an answer."""


def _stop(_done: int, _fraction: float) -> None:
    raise Stopped


def lead_or_follow(rank: int, port: str, folder: Path) -> None:
    """Rank 0 answers alone, breaks off, learns, and takes back what it had."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": str(rank)}
    os.environ |= {"WORLD_SIZE": "2", "ACCELERATE_USE_FSDP": "true"}
    settings, ranks = case.settings(folder, "tiny", seed=3), join()
    assert ranks is not None and ranks.shards
    if rank:
        follow_sharded(settings, ranks)
        return
    leader = ShardedLeader(ranks, settings)
    fresh = fresh_policy(settings, seed=3)
    policy, optimizer = leader.take(fresh, make_optimizer(fresh, lr=1e-3))
    parts = [w for w in policy.model.parameters() if isinstance(w, DTensor)]
    assert parts and all(
        w.to_local().numel() <= w.numel() // 2 + w.shape[1:].numel() for w in parts
    )
    alone = fresh_policy(settings, seed=3)
    prompts = [[1, 7, 9, 4], [1, 8, 4]]
    drawn: dict[str, Any] = {"num_completions": 2, "params": case.SAMPLING}
    with pytest.raises(Stopped):
        generate(policy, prompts, generator=torch.Generator(), on_step=_stop, **drawn)
    found = [
        [
            sample.ids
            for group in generate(one, prompts, generator=torch.Generator(), **drawn)
            for sample in group
        ]
        for one in (policy, alone)
    ]
    assert found[0] == found[1]
    group = TrainGroup(
        prompt_ids=[1, 7, 4], completions=[[9, 2], [8, 2]], advantages=[1.0, -1.0], external=False
    )
    own = make_optimizer(alone, lr=1e-3)
    for _ in range(2):
        leader.update(policy, optimizer, [group], GrpoConfig())
        update(alone, own, [group], GrpoConfig())
    stepped = leader.snapshot(policy, optimizer)
    start = dict(fresh_policy(settings, seed=3).model.named_parameters())
    for name, weight in alone.model.named_parameters():
        # Softmax does not see a key's bias: its gradient is rounding alone, and Adam scales it up.
        if "k_proj.bias" not in name:
            off = (stepped.weights[name] - weight).norm()
            assert off <= 0.05 * (weight - start[name]).norm(), name
    leader.update(policy, optimizer, [group], GrpoConfig())
    leader.restore(policy, optimizer, alone, own)
    back = leader.snapshot(policy, optimizer)
    assert all(torch.equal(back.weights[n], w) for n, w in alone.model.named_parameters())
    for index, state in own.state_dict()["state"].items():
        for name, value in state.items():
            assert torch.equal(back.optimizer["state"][index][name], value), name
    leader.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_parts_are_gathered_stepped_and_taken_back(tmp_path: Path) -> None:
    port = str(free_port())
    made = [
        resume_cases.context().Process(target=lead_or_follow, args=(rank, port, tmp_path))
        for rank in (0, 1)
    ]
    for process in made:
        process.start()
    assert [resume_cases.finish(process) for process in made] == [0, 0]


def test_parts_are_computed_in_the_device_s_type_though_the_host_loaded_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host computes float32 weights as they are, a card in bfloat16."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    assert compute_dtype("auto", torch.device("cuda", 3)) is torch.bfloat16
    assert compute_dtype("auto", torch.device("cpu")) is None
    assert compute_dtype("float32", torch.device("cuda", 3)) is None
    asked: list[tuple[str, torch.device]] = []

    def of_a_card(dtype: str, device: torch.device) -> torch.dtype | None:
        asked.append((dtype, device))
        return torch.bfloat16

    monkeypatch.setattr("shoal_policy.sharded.compute_dtype", of_a_card)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1
    )
    try:
        settings = case.settings(tmp_path, "tiny", device="cpu")
        order = _Take(known={}, weights_too=False)
        loaded = fresh_policy(settings, seed=1)
        assert loaded.autocast_dtype is None
        policy, _ = ShardedPart(Ranks(0, 1), settings).take(loaded, order, {})
    finally:
        torch.distributed.destroy_process_group()
    assert asked == [(settings.dtype, torch.device("cpu"))]
    assert policy.autocast_dtype is torch.bfloat16
    mixed = policy.model._get_fsdp_state()._mp_policy
    assert (mixed.param_dtype, mixed.reduce_dtype) == (torch.bfloat16, torch.float32)
    weights = list(policy.model.parameters())
    assert all(isinstance(one, DTensor) and one.dtype == torch.float32 for one in weights)


@pytest.mark.parametrize("changes", [{"kl_beta": 0.1}, {"generator": "vllm"}])
def test_what_is_not_dealt_out_is_refused_in_words(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RankError, match="start without FSDP"):
        refuse_unsharded(case.settings(tmp_path, "tiny", **changes))
