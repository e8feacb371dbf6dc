"""Several processes compute what one does; only the order of additions differs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from shoal_policy.checkpoint.saved import latest_checkpoint
from shoal_policy.distributed import RankError, Ranks, join
from shoal_policy.generation.local import SampledCompletion, generate
from shoal_policy.update.rows import TrainingRow
from shoal_wire.types import SamplingParams
from tests.policy import resume_cases, tiny_models
from tests.support.rooms import python_path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 100


FLAGS = (
    *(
        "--alone",
        "--model=tiny",
        "--local=3",
        "--external=0",
        "--rounds=2",
        "--seed=5",
        "--log=none",
    ),
    *("--device=cpu", "--eval-every=0", "--checkpoint-seconds=1000", "--epochs=2", "--threads=1"),
)


def recorded(data_dir: Path) -> list[dict[str, Any]]:
    lines = (data_dir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def launch(data_dir: Path, *more: str) -> None:
    """Run a trainer on two processes as a user would."""
    command = [
        # The flag for several processes is named after GPUs, whatever they compute on.
        *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines=1"),
        *("--num_processes=2", "--mixed_precision=no", "--dynamo_backend=no"),
        *("--main_process_port=0", "-m", "shoal_policy", *FLAGS, f"--data-dir={data_dir}", *more),
    ]
    environment = {name: v for name, v in os.environ.items() if not name.startswith("SHOAL_")}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": python_path()}
    done = subprocess.run(
        command,
        check=False,
        env=environment,
        cwd=data_dir.parent,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert b"2 processes share the work" in done.stderr


def weights(data_dir: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    found = latest_checkpoint(data_dir).path
    assert found is not None
    (file,) = (found / "model").glob("*.safetensors")
    return load_file(file)


def launch_forked(data_dir: Path, *more: str) -> None:
    """The same without the launcher, from a server that has torch loaded: a fifth of the time."""
    flags = [*FLAGS, f"--data-dir={data_dir}", *more]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [resume_cases.start_command(flags, **meeting, RANK=str(rank)) for rank in (0, 1)]
    assert [resume_cases.finish(process) for process in ranks] == [0, 0]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("start_two", "more"),
    [
        pytest.param(launch_forked, (), id="forked"),
        pytest.param(launch, (), id="accelerate", marks=pytest.mark.slow),
        pytest.param(launch, ("--lora-rank=2",), id="accelerate-lora", marks=pytest.mark.slow),
    ],
)
def test_two_processes_train_as_one(
    start_two: Callable[..., None], more: Sequence[str], tmp_path: Path
) -> None:
    if start_two is launch:
        pytest.importorskip("accelerate")
    alone = resume_cases.start_command([*FLAGS, f"--data-dir={tmp_path / 'one'}", *more])
    assert resume_cases.finish(alone) == 0
    start_two(tmp_path / "two", *more)
    one, two = recorded(tmp_path / "one"), recorded(tmp_path / "two")
    assert len(one) == len(two) == 2
    assert sum(row["groups_with_signal"] for row in one) > 1
    assert max(abs(row["loss"]) for row in one) > 1e-4, "no loss, no comparison"
    for name in ("reward", "tokens_generated", "num_tokens", "groups_with_signal"):
        assert [row[name] for row in one] == [row[name] for row in two], name
    for name in ("loss", "grad_norm", "entropy"):
        assert [row[name] for row in two] == pytest.approx([row[name] for row in one], abs=1e-5)
    ended, other = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert ended.keys() == other.keys()
    for name, weight in ended.items():
        assert torch.allclose(weight, other[name], atol=1e-4), name


def test_rows_are_dealt_out_whole() -> None:
    rows = [
        TrainingRow(group=0, prompt_ids=[1], completion_ids=[1] * n, advantage=1.0, external=False)
        for n in (3, 9, 1, 9, 4)
    ]
    parts = [Ranks(rank, 2).share(rows) for rank in (0, 1)]
    assert sorted(map(id, parts[0] + parts[1])) == sorted(map(id, rows))
    assert [[row.length for row in part] for part in parts] == [[10, 5, 2], [10, 4]]


@pytest.mark.parametrize("count", [0, 1, 5, 8])
def test_prompts_are_dealt_out_whole_and_in_order(count: int) -> None:
    parts = [Ranks(rank, 3).part(count) for rank in range(3)]
    assert [index for part in parts for index in part] == list(range(count))


def test_a_later_prompt_has_the_numbers_it_has_on_one_process() -> None:
    """What `_skip` rests on: uniform numbers are drawn one after another."""
    whole, parts = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    drawn = torch.rand((5, 3, 7), generator=whole)
    torch.rand(2 * 3 * 7, generator=parts)
    assert torch.equal(torch.rand((3, 3, 7), generator=parts), drawn[2:])
    assert torch.equal(whole.get_state(), parts.get_state())


def test_an_answer_by_its_own_seed_is_the_same_whoever_draws_it() -> None:
    """A game's next message: which games still go on, and which process plays it, is all one."""
    policy = tiny_models.policy()
    prompts, seeds = [[1, number, 4] for number in range(5, 10)], [3, 1, 4, 1, 5]
    sampling = SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=6)

    def drawn(which: list[int]) -> list[list[SampledCompletion]]:
        return generate(
            policy,
            [prompts[one] for one in which],
            num_completions=2,
            params=sampling,
            generator=[seeds[one] for one in which],
        )

    whole, part = drawn([0, 1, 2, 3, 4]), drawn([4, 1])
    assert [[one.ids for one in row] for row in part] == [
        [one.ids for one in whole[number]] for number in (4, 1)
    ]
    with pytest.raises(ValueError, match="a seed for each"):
        generate(policy, prompts, num_completions=1, params=sampling, generator=[1])


def test_other_sharding_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(RankError, match="sharded by FSDP alone"):
        join()
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert join() is None


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_when_one_process_dies_the_other_says_so_and_ends(tmp_path: Path) -> None:
    port = free_port()
    environment = {name: v for name, v in os.environ.items() if not name.startswith("SHOAL_")}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": python_path()}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    flags = [
        *("--alone", "--model=tiny", "--local=2", "--external=0", "--seed=5", "--device=cpu"),
        *("--eval-every=0", "--json", f"--data-dir={tmp_path / 'd'}"),
    ]
    leader, follower = (
        subprocess.Popen(
            [sys.executable, "-m", "shoal_policy", *flags],
            env=environment | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in (0, 1)
    )
    try:
        assert leader.stdout is not None and leader.stdout.readline()
        follower.kill()
        _, said = leader.communicate(timeout=PATIENCE_S)
        assert leader.returncode == 1
        assert said.decode().splitlines()[-1] == (
            "shoal trainer: another process of this run has ended"
        )
    finally:
        leader.kill()
        follower.kill()
        follower.communicate()
