"""Several processes, each with a part of the policy (FSDP2, gloo), train, resume and export as one.

Only the order of additions differs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM

from shoal_policy.checkpoint.export import export_model
from shoal_policy.checkpoint.saved import latest_checkpoint
from shoal_policy.distributed import RankError, Ranks, init_process_group
from shoal_policy.generation.local import generate
from shoal_policy.model.from_settings import fresh_policy
from shoal_policy.model.loading import Policy, compute_dtype
from shoal_policy.model.reference import load_reference
from shoal_policy.rollouts import Answer
from shoal_policy.sharded import RankShard, ShardedBackend, run_worker
from shoal_policy.update.grpo import GrpoConfig, make_optimizer, update
from shoal_policy.update.rows import TrainingRow
from shoal_policy.update.stats import NonFiniteCause
from tests.policy import resume_cases, tiny_models
from tests.policy import training_cases as case
from tests.policy.generation import vllm_cases
from tests.policy.update.update_cases import group_of
from tests.policy.vllm_server import VllmServer
from tests.support.rooms import python_path

PATIENCE_S = 100

FLAGS = (
    *("--alone", "--model=tiny", "--local=3", "--external=0", "--seed=5", "--log=none"),
    *("--device=cpu", "--checkpoint-seconds=1000", "--epochs=2", "--threads=1"),
)
WITHOUT_EVALUATION = ("--rounds=2", "--eval-every=0")
EVALUATED = ("--local=5", "--eval-every=1", "--eval-per-family=1")


def environment() -> dict[str, str]:
    """The environment of a process that a user starts."""
    plain = {name: v for name, v in os.environ.items() if not name.startswith("SHOAL_")}
    return plain | {"OMP_NUM_THREADS": "1", "PYTHONPATH": python_path()}


def meeting(size: int) -> dict[str, str]:
    """The variables that a launcher sets for each process."""
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(case.free_port()),
        "WORLD_SIZE": str(size),
    }


def launch(data_dir: Path, *more: str, launcher: Sequence[str] = ()) -> None:
    """Run a trainer on two processes as a user would."""
    command = [
        # The flag for several processes is named after GPUs, whatever they compute on.
        *(sys.executable, "-m", "accelerate.commands.launch", "--num_machines=1", *launcher),
        *("--num_processes=2", "--mixed_precision=no", "--dynamo_backend=no"),
        *("--main_process_port=0", "-m", "shoal_policy", *FLAGS, f"--data-dir={data_dir}", *more),
    ]
    done = subprocess.run(
        command,
        check=False,
        env=environment(),
        cwd=data_dir.parent,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert b"2 processes share the work" in done.stderr


def run(data_dir: Path, *more: str, ranks: int = 2) -> None:
    """The same without the launcher, from a server that has torch loaded: a fifth of the time."""
    flags = [*FLAGS, f"--data-dir={data_dir}", *more]
    reported = meeting(ranks) if ranks > 1 else {}
    found = [resume_cases.start_command(flags, **reported, RANK=str(rank)) for rank in range(ranks)]
    assert [resume_cases.finish(process) for process in found] == [0] * ranks


def run_ranks(work: Callable[..., None], *arguments: Any) -> None:
    """Call ``work(rank, *arguments)`` in two processes that a launcher has connected."""
    reported = meeting(2)
    made = [
        resume_cases.context().Process(target=_as_rank, args=(rank, reported, work, *arguments))
        for rank in (0, 1)
    ]
    for process in made:
        process.start()
    assert [resume_cases.finish(process) for process in made] == [0, 0]


def _as_rank(
    rank: int, reported: dict[str, str], work: Callable[..., None], *arguments: Any
) -> None:
    os.environ |= {**reported, "RANK": str(rank)}
    work(rank, *arguments)


def weights(data_dir: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    (file,) = (resume_cases.newest(data_dir) / "model").glob("*.safetensors")
    return load_file(file)


def build_optimizer(data_dir: Path) -> dict[int, dict[str, torch.Tensor]]:
    state: dict[int, dict[str, torch.Tensor]]
    path = resume_cases.newest(data_dir) / "optimizer.pt"
    state = torch.load(path, weights_only=True)["state"]
    return state


def worst(one: Path, other: Path) -> float:
    """The largest difference of any weight."""
    mine, theirs = weights(one), weights(other)
    assert mine.keys() == theirs.keys()
    return max(float((mine[name] - theirs[name]).abs().max()) for name in mine)


def assert_alike(one: Path, other: Path) -> None:
    """Two runs recorded the same rounds, and ended alike, but for the order of additions."""
    rows, theirs = case.metrics(one), case.metrics(other)
    played = [row for row in rows if row["event"] == "round"]
    assert sum(row["groups_with_signal"] for row in played) > 1
    assert max(abs(row["loss"]) for row in played) > 1e-4, "no loss, no comparison"
    assert [row["event"] for row in theirs] == [row["event"] for row in rows]
    for mine, their in zip(rows, theirs, strict=True):
        for name in ("reward", "tokens_generated", "num_tokens", "groups_with_signal"):
            assert their.get(name) == mine.get(name), name
        for name in ("loss", "grad_norm", "entropy", "kl", "held_out/pass@1"):
            if mine.get(name) is not None:
                assert their[name] == pytest.approx(mine[name], abs=1e-5, rel=1e-5), name
    assert worst(one, other) < 1e-4
    ended = build_optimizer(other)
    for index, state in build_optimizer(one).items():
        assert all(torch.allclose(v, ended[index][n], atol=1e-4) for n, v in state.items()), index


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("start_two", "more"),
    [
        pytest.param(run, (), id="forked"),
        pytest.param(
            partial(launch, launcher=["--multi_gpu"]),
            (),
            id="accelerate",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            partial(launch, launcher=["--use_fsdp", "--fsdp_version=2"]),
            ("--lora-rank=2",),
            id="accelerate-fsdp-lora",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_two_processes_train_as_one(
    start_two: Callable[..., None], more: Sequence[str], tmp_path: Path
) -> None:
    """The ranks are the same whatever the launcher asks for."""
    if start_two is not run:
        pytest.importorskip("accelerate")
    run(tmp_path / "one", *WITHOUT_EVALUATION, *more, ranks=1)
    start_two(tmp_path / "two", *WITHOUT_EVALUATION, *more)
    assert len(case.metrics(tmp_path / "two")) == 2
    assert_alike(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "more",
    [
        pytest.param((), id="all"),
        pytest.param(("--lora-rank=4", "--learning-rate=1e-2"), id="lora"),
        pytest.param(("--kl-beta=0.5", "--learning-rate=1e-3"), id="kl"),
        pytest.param(("--lora-rank=4", "--learning-rate=1e-2", "--kl-beta=0.5"), id="lora-kl"),
        pytest.param(
            ("--minibatches=2", "--gradient-checkpointing", "--token-budget=64"), id="passes"
        ),
    ],
)
def test_a_run_goes_on_with_any_number_of_processes(tmp_path: Path, more: tuple[str, ...]) -> None:
    one, two, parts = tmp_path / "one", tmp_path / "two", tmp_path / "parts"
    run(one, "--rounds=3", *EVALUATED, *more, ranks=1)
    run(two, "--rounds=3", *EVALUATED, *more)
    assert_alike(one, two)
    # Taken up in parts it is the run that was not interrupted, to the bit; and any number may.
    run(parts, "--rounds=1", *EVALUATED, *more)
    run(parts, "--rounds=3", *EVALUATED, *more)
    assert worst(two, parts) == 0
    run(parts, "--rounds=4", *EVALUATED, *more, ranks=3 if "--kl-beta=0.5" in more else 1)
    assert [row["round"] for row in case.metrics(parts) if row["event"] == "round"] == [1, 2, 3, 4]
    if more:
        return
    settings = case.settings(parts, "tiny")
    found = latest_checkpoint(parts).path
    assert found is not None
    export_model(settings, found, tmp_path / "out", lambda _step: None)
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    assert all(torch.equal(exported[name], value) for name, value in weights(parts).items())


class Stopped(Exception):  # noqa: N818 - an order
    """Raised to stop in the middle of an answer."""


def _stop(_done: int, _fraction: float) -> None:
    raise Stopped


def led(
    rank: int, folder: Path, **changes: Any
) -> tuple[ShardedBackend, Policy, Any, Policy] | None:
    """Rank 0's leader, what it trains, and a policy alone that began alike; None elsewhere."""
    settings, ranks = case.settings(folder, "tiny", seed=3, **changes), init_process_group()
    assert ranks is not None and ranks.size == 2
    if rank:
        run_worker(settings, ranks)
        return None
    leader = ShardedBackend(ranks, settings)
    fresh = fresh_policy(settings, seed=3)
    policy, optimizer = leader.prepare(fresh, make_optimizer(fresh, lr=1e-3))
    return leader, policy, optimizer, fresh_policy(settings, seed=3)


GROUP = group_of([1, 7, 4], [[9, 2], [8, 2]], [1.0, -1.0])
PROMPTS = [[1, 7, 9, 4], [1, 8, 4]]


def lead_or_follow(rank: int, folder: Path) -> None:
    """Rank 0 answers alone, breaks off, learns, and takes back what it had."""
    if (found := led(rank, folder)) is None:
        return
    leader, policy, optimizer, alone = found
    parts = [w for w in policy.model.parameters() if isinstance(w, DTensor)]
    assert parts and all(
        w.to_local().numel() <= w.numel() // 2 + w.shape[1:].numel() for w in parts
    )
    drawn: dict[str, Any] = {"num_completions": 2, "params": case.SAMPLING}
    with pytest.raises(Stopped):
        generate(policy, PROMPTS, generator=torch.Generator(), on_step=_stop, **drawn)
    # Alone, and by all: each prompt has the numbers that it has on one process.
    answers = [
        [
            sample.ids
            for group in make(one, PROMPTS, generator=torch.Generator(), **drawn)
            for sample in group
        ]
        for make, one in ((generate, policy), (leader.generate, policy), (generate, alone))
    ]
    assert answers[0] == answers[1] == answers[2]
    own = make_optimizer(alone, lr=1e-3)
    for _ in range(2):
        leader.update(policy, optimizer, [GROUP], GrpoConfig())
        update(alone, own, [GROUP], GrpoConfig())
    stepped = policy.weights() or {}
    start = dict(fresh_policy(case.settings(folder, "tiny"), seed=3).model.named_parameters())
    for name, weight in alone.model.named_parameters():
        # Softmax does not see a key's bias: its gradient is rounding alone, and Adam scales it up.
        if "k_proj.bias" not in name:
            off = (stepped[name] - weight).norm()
            assert off <= 0.05 * (weight - start[name]).norm(), name
    leader.update(policy, optimizer, [GROUP], GrpoConfig())
    leader.restore(policy, optimizer, alone, own)
    assert leader.is_finite(policy)
    back, state = policy.weights() or {}, optimizer.state_dict()["state"]
    assert all(torch.equal(back[n], w) for n, w in alone.model.named_parameters())
    for index, values in own.state_dict()["state"].items():
        assert all(torch.equal(state[index][name], value) for name, value in values.items()), index
    leader.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_parts_are_gathered_stepped_and_taken_back(tmp_path: Path) -> None:
    run_ranks(lead_or_follow, tmp_path)


def lead_to_a_poisonous_group(rank: int, folder: Path, lora_rank: int) -> None:
    """Each rank computes each group again, a reference's passes too, and none waits in vain."""
    if (found := led(rank, folder, kl_beta=0.1, lora_rank=lora_rank)) is None:
        return
    leader, policy, optimizer, _ = found
    settings = case.settings(folder, "tiny", seed=3, kl_beta=0.1, lora_rank=lora_rank)
    reference = leader.load_reference(settings, policy, seed=3)
    assert reference is not None and (reference.model is policy.model) == bool(lora_rank)
    poisonous = group_of([1, 8, 4], [[9, 2], [8, 2]], [float("inf"), -1.0])
    config = GrpoConfig(kl_beta=0.1)
    stats = leader.update(policy, optimizer, [GROUP, poisonous], config)
    assert [(one.cause, one.groups) for one in stats.nonfinite] == [(NonFiniteCause.GROUPS, (1,))]
    assert leader.update(policy, optimizer, [GROUP], config).num_steps == 1
    leader.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("lora_rank", [0, 2])
def test_all_ranks_find_the_groups_of_a_non_finite_step(tmp_path: Path, lora_rank: int) -> None:
    run_ranks(lead_to_a_poisonous_group, tmp_path, lora_rank)


def lead_and_serve(rank: int, folder: Path, base_url: str, lora_rank: int) -> None:
    """A server receives the weights of two ranks, and answers with them."""
    if (found := led(rank, folder, lora_rank=lora_rank)) is None:
        return
    leader, policy, optimizer, _ = found
    leader.update(policy, optimizer, [GROUP], GrpoConfig())
    one = vllm_cases.follower_of(policy, base_url, folder)
    assert len(vllm_cases.ask(one, policy, 1)) == 2
    assert one.server_logp_difference is not None and one.server_logp_difference < 1e-5
    leader.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("lora_rank", [0, 2])
def test_a_server_follows_what_two_processes_learn(tmp_path: Path, lora_rank: int) -> None:
    settings = case.settings(tmp_path, "tiny", seed=3)
    with VllmServer(lambda: fresh_policy(settings, seed=3), folder=tmp_path / "model") as server:
        run_ranks(lead_and_serve, tmp_path, server.base_url, lora_rank)


def as_only_rank(folder: Path, **changes: Any) -> RankShard:
    """A policy that is dealt out over one process."""
    settings = case.settings(folder, "tiny", device="cpu", **changes)
    return RankShard(Ranks(0, 1), settings, fresh_policy(settings, seed=1), {})


@pytest.fixture
def _group(tmp_path: Path) -> Any:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("_group")
def test_parts_are_computed_in_the_device_s_type_though_the_host_loaded_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host computes float32 weights as they are, a card in bfloat16."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    assert compute_dtype("auto", torch.device("cuda", 3)) is torch.bfloat16
    assert compute_dtype("auto", torch.device("cpu")) is None
    assert compute_dtype("float32", torch.device("cuda", 3)) is None
    requested: list[tuple[str, torch.device]] = []

    def of_a_card(dtype: str, device: torch.device) -> torch.dtype | None:
        requested.append((dtype, device))
        return torch.bfloat16

    monkeypatch.setattr("shoal_policy.sharded.compute_dtype", of_a_card)
    policy = as_only_rank(tmp_path).policy
    assert requested == [("auto", torch.device("cpu"))]
    assert policy.autocast_dtype is torch.bfloat16
    mixed = policy.model._get_fsdp_state()._mp_policy
    assert (mixed.param_dtype, mixed.reduce_dtype) == (torch.bfloat16, torch.float32)
    weights = list(policy.model.parameters())
    assert all(isinstance(one, DTensor) and one.dtype == torch.float32 for one in weights)


@pytest.mark.usefixtures("_group")
def test_frozen_weights_under_adapters_stay_whole(tmp_path: Path) -> None:
    """Generation needs them so; and they compute in their own type, as on one process."""
    pytest.importorskip("peft")
    part = as_only_rank(tmp_path, lora_rank=2, dtype="bfloat16")
    for weight in part.policy.model.parameters():
        assert isinstance(weight, DTensor) == weight.requires_grad
        assert weight.dtype == (torch.float32 if weight.requires_grad else torch.bfloat16)
    assert part.policy.autocast_dtype is torch.bfloat16
    assert part.update([GROUP], GrpoConfig()).num_steps == 1
    assert part.weights().keys() == {
        name for name, weight in part.policy.model.named_parameters() if weight.requires_grad
    }


@pytest.mark.usefixtures("_group")
def test_a_reference_is_dealt_out_too_and_stays_what_it_was(tmp_path: Path) -> None:
    part = as_only_rank(tmp_path, kl_beta=0.5)
    reference = part.load_reference(seed=1)
    assert reference is not None
    held = list(reference.model.parameters())
    assert all(isinstance(one, DTensor) and not one.requires_grad for one in held)
    settings = case.settings(tmp_path, "tiny", kl_beta=0.5)
    alone = fresh_policy(settings, seed=1)
    own, first = (
        make_optimizer(alone, lr=settings.learning_rate),
        load_reference(settings, alone, seed=1),
    )
    for _ in range(3):
        found = part.update([GROUP], GrpoConfig(kl_beta=0.5))
        known = update(alone, own, [GROUP], GrpoConfig(kl_beta=0.5), first)
        assert (found.loss, found.kl) == pytest.approx((known.loss, known.kl), rel=1e-5)
    assert known.kl is not None and known.kl > 0


def test_rows_are_dealt_out_whole() -> None:
    rows = [
        TrainingRow(group=0, prompt_ids=[1], completion_ids=[1] * n, advantage=1.0, external=False)
        for n in (3, 9, 1, 9, 4)
    ]
    parts = [Ranks(rank, 2).local_rows(rows) for rank in (0, 1)]
    assert sorted(map(id, parts[0] + parts[1])) == sorted(map(id, rows))
    assert [[row.length for row in part] for part in parts] == [[10, 5, 2], [10, 4]]


@pytest.mark.parametrize("count", [0, 1, 5, 8])
def test_prompts_are_dealt_out_whole_and_in_order(count: int) -> None:
    whole = list(range(count))
    assert [one for rank in range(3) for one in whole[Ranks(rank, 3).local_slice(count)]] == whole


def test_an_answer_with_its_own_seed_is_the_same_on_any_rank() -> None:
    """A game's next message: which games still go on, and which process plays it, is all one."""
    policy = tiny_models.policy()
    prompts, seeds = [[1, number, 4] for number in range(5, 10)], [3, 1, 4, 1, 5]
    sampling = case.SAMPLING

    def drawn(which: list[int]) -> list[list[Answer]]:
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
    with pytest.raises(RankError, match="only with FSDP"):
        init_process_group()
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert init_process_group() is None


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("killed", [0, 1])
def test_when_one_process_dies_the_other_says_so_and_ends(tmp_path: Path, killed: int) -> None:
    flags = [
        *("--alone", "--model=tiny", "--local=2", "--external=0", "--seed=5", "--device=cpu"),
        *("--eval-every=0", "--json", f"--data-dir={tmp_path / 'd'}"),
    ]
    reported = environment() | meeting(2)
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "shoal_policy", *flags],
            env=reported | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in (0, 1)
    ]
    try:
        leader, other = ranks[0], ranks[1 - killed]
        assert leader.stdout is not None and leader.stdout.readline()
        ranks[killed].kill()
        _, message = other.communicate(timeout=PATIENCE_S)
        assert other.returncode == 1
        assert message.decode().splitlines()[-1] == (
            "shoal trainer: another process of this run has ended"
        )
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
