"""A policy dealt out over two processes (FSDP2, gloo) trains, resumes and exports as in one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from policy.checkpoint.export import export_model
from policy.checkpoint.saving import latest_checkpoint
from policy.distributed import RankError
from policy.sharded import refuse_unsharded
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
def test_two_processes_with_a_part_each_train_as_one(tmp_path: Path) -> None:
    one, two, parts = tmp_path / "one", tmp_path / "two", tmp_path / "parts"
    run(one, 1, "--rounds=3")
    run(two, 2, "--rounds=3")
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
    run(parts, 2, "--rounds=1")
    run(parts, 2, "--rounds=3")
    assert worst(two, parts) == 0
    run(parts, 1, "--rounds=4")
    assert [row["round"] for row in recorded(parts) if row["event"] == "round"] == [1, 2, 3, 4]
    settings = case.settings(parts, "tiny")
    export_model(settings, tmp_path / "out", lambda _step: None)
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    assert all(torch.equal(exported[name], value) for name, value in weights(parts).items())


@pytest.mark.parametrize("changes", [{"lora_rank": 4}, {"kl_beta": 0.1}, {"generator": "vllm"}])
def test_what_is_not_dealt_out_is_refused_in_words(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RankError, match="start without FSDP"):
        refuse_unsharded(case.settings(tmp_path, "tiny", **changes))
