"""A `GRPOTrainer` of TRL in a swarm: the cost of joining, and the gain from external groups.

**Share.** Its training's wall time, and how long it waited for work that a trainer alone does not
have: sharing local groups, sampling and verifying external ones, acknowledging. (A trainer alone
verifies its own completions, too.) These calls are made in a thread while TRL computes, so TRL's
wait counts. CPU time of that thread, and of the other processes (the node, the sandboxed workers),
is reported with TRL's. The neighbour is a node that trains the embedded model on this machine:
without pause where TRL trains the embedded model, and every five seconds where it trains
SmolLM2-135M, which makes as many groups as some eighteen such trainers share. SmolLM2 needs 12 GB
of memory here; a quick pass skips it.

With the embedded model, joining costs mostly what the node receives, which the neighbour decides.
So a second training, while the neighbour's trainer is stopped, gives the cost of a round, and the
difference gives the cost of a group received. CPU spent before the training is the cost of the
start.

**Gain.** Held-out answers that pass after the last round, and local reward of the last rounds, with
external groups minus without: of TRL and of a node with our trainer. Both have the same model,
rate, loss (the mean of each answer's), steps a round, questions and answers a round, pace, and a
neighbour of its own, which keeps that pace, too. Four seeds; not in a quick pass.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil

import shoal
from benchmarks.harness import Goal, Options, Report, at_least, at_most, main, note
from shoal.api.started_node import start_node
from shoal.trl import Rollouts
from shoal_policy.evaluate import evaluate
from shoal_policy.model.loading import Policy, load_policy
from shoal_policy.rollouts import Question
from shoal_policy.tiny.tokenizer import ANSWER, BOS
from shoal_wire.invite import Invite, encode_invite
from shoal_wire.types import Digest, SamplingParams

GROUPS, SIZE = 4, 8
"""Local groups a round, and as many external ones; completions of each."""
STEPS, QUICK_STEPS = 120, 40
"""Rounds in which joining is timed."""
REAL_STEPS, REAL_PACE_S = 3, 5.0
"""The same for SmolLM2, whose round takes 90 CPU seconds; its neighbour's time per round."""
ROUNDS, LAST, SEEDS = 150, 100, (1, 2, 3, 4)
"""Rounds in which the gain is measured, those at the end whose rewards are averaged, and seeds."""
PACE_S = 0.4
"""Time per round when the gain is measured. A faster trainer would train on groups of a less
trained neighbour."""
PER_FAMILY = 32
"""Most held-out questions of each family that a trained model answers."""
MINIBATCHES = 2
"""Optimiser steps a round: a node's default."""
MOST_SHARE, LEAST_GAIN = 0.05, 0.9
RATE, TOKENS = "4e-4", 24
LOOPBACK = ("--listen", "/ip4/127.0.0.1/tcp/0", "--no-mdns")
TRAINS = (
    *("--model=tiny", f"--local={GROUPS}", f"--completions={SIZE}", f"--learning-rate={RATE}"),
    *(f"--max-new-tokens={TOKENS}", "--eval-every=0", "--threads=1", "--log=none"),
)


class Clock:
    """Adds up the time that joining takes from TRL."""

    def __init__(self, swarm: shoal.Swarm, joined: Rollouts) -> None:
        self.waited: dict[str, float] = defaultdict(float)
        """Seconds that TRL waited, by cause."""
        self.cpu: dict[str, float] = defaultdict(float)
        """CPU seconds of the thread that makes the calls."""
        self.own_rewards: list[float] = []
        """Mean reward of each call's local groups."""
        for name in ("publish", "draw", "acknowledge", "release"):
            setattr(swarm, name, self._counted(name, getattr(swarm, name)))
        self._verify, self._of_others = swarm.verify, self._counted("verify", swarm.verify)
        swarm.verify = self._judged  # type: ignore[method-assign]
        self._do = joined._do
        joined._do = self._waited  # type: ignore[method-assign]
        joined._prefetch = self._timed("ahead", joined._prefetch)  # type: ignore[method-assign]

    def _judged(self, groups: Sequence[Any]) -> list[list[float]]:
        if groups and isinstance(groups[0], shoal.LeasedGroup):
            found: list[list[float]] = self._of_others(groups)
            return found
        rewards = self._verify(groups)
        self.own_rewards.append(fmean(one for group in rewards for one in group))
        return rewards

    def _waited(self, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if call == self._judged:  # a trainer alone verifies its own answers, too
            return self._do(call, *given, **named)
        name = getattr(call, "__name__", "call")
        return self._timed(name, self._do)(call, *given, **named)

    def _timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*given, **named)
            finally:
                self.waited[name] += time.perf_counter() - began

        return timed

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            began = time.thread_time()
            try:
                return call(*given, **named)
            finally:
                self.cpu[name] += time.thread_time() - began

        return counted


@contextmanager
def neighbour(folder: Path, *, seed: int = 7, pace_s: float = 0.0) -> Iterator[tuple[str, str]]:
    """Runs a node that trains; yields an invitation to its swarm, and its address."""
    flags = [*LOOPBACK, *TRAINS, f"--data-dir={folder}", f"--seed={seed}"]
    flags += [f"--round-seconds={pace_s}"]
    node = start_node("", flags)
    try:
        with shoal.connect(folder) as swarm:
            status = swarm.status()
            while status["groups_published"] < 10 * GROUPS:
                time.sleep(0.5)
                status = swarm.status()
        address = status["addresses"][0]
        digest = Digest(bytes.fromhex(status["swarm"]["digest"]))
        yield encode_invite(Invite(swarm=digest, addresses=(address,))), address
    finally:
        node.stop()


def train(
    swarm: shoal.Swarm,
    out: Path,
    rounds: int,
    *,
    model: str,
    others: int,
    seed: int,
    pace_s: float,
) -> dict[str, Any]:
    """Let TRL train in a swarm; return its cost and its rewards."""
    trl: Any = importlib.import_module("trl")
    importlib.import_module("torch").set_num_threads(1)
    policy = load_policy(model, device="cpu", seed=1)
    prompt = _plain if model == "tiny" else None
    joined = Rollouts(swarm, external=others, prompt=prompt)
    trainer = trl.GRPOTrainer(
        model=policy.model,
        processing_class=policy.tokenizer,
        reward_funcs=joined.reward,
        rollout_func=paced(joined, pace_s),
        train_dataset=joined.dataset(rounds * (GROUPS + others), seed=seed),
        args=trl.GRPOConfig(
            output_dir=str(out),
            per_device_train_batch_size=(GROUPS + others) * SIZE // MINIBATCHES,
            steps_per_generation=MINIBATCHES,
            loss_type="grpo",
            epsilon_high=0.28,
            num_generations=SIZE,
            max_completion_length=TOKENS,
            max_steps=MINIBATCHES * rounds,
            save_strategy="no",
            learning_rate=float(RATE),
            lr_scheduler_type="constant",
            gradient_checkpointing=False,
            seed=seed,
            use_cpu=True,
            bf16=False,
            report_to=[],
            disable_tqdm=True,
            logging_steps=1000,
        ),
    )
    clock = Clock(swarm, joined)
    before, received = _cpu_of_children(), swarm.status()["groups_received"]
    wall, cpu = time.perf_counter(), time.process_time()
    trainer.train()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    spent = _cpu_of_children() - before
    return {
        "rounds": rounds,
        "groups_of_others": joined.num_external,
        "groups_heard": swarm.status()["groups_received"] - received,
        "beside_start_cpu_s": before,
        "wall_s": wall,
        "cpu_s": cpu,
        "waited_s": dict(clock.waited),
        "api_cpu_s": dict(clock.cpu),
        "api_share_of_wall": sum(clock.waited.values()) / wall,
        "api_share_of_cpu": sum(clock.cpu.values()) / cpu,
        "beside_cpu_s": spent,
        "beside_share_of_cpu": spent / cpu,
        "own_reward": fmean(clock.own_rewards[-LAST:]),
        "held_out": held_out(policy, swarm) if model == "tiny" else None,
    }


def _plain(question: Question) -> str:
    return f"{BOS}{question.text}{ANSWER}"


def paced(joined: Rollouts, pace_s: float) -> Callable[[Any, Any], Any]:
    """The rollouts, a round begun `pace_s` after the one before it at the earliest."""
    began = 0.0

    def rollouts(prompts: Any, trainer: Any) -> Any:
        nonlocal began
        time.sleep(max(0.0, began + pace_s - time.monotonic()))
        began = time.monotonic()
        return joined(prompts, trainer)

    return rollouts


def held_out(policy: Policy, swarm: shoal.Swarm) -> float:
    """Share of the held-out questions that a policy answers right, greedily."""
    policy.model.eval()
    sampling = SamplingParams(temperature=0.0, top_p=1.0, top_k=0, max_new_tokens=TOKENS)
    return evaluate(
        policy, swarm._tasks, round_number=0, per_family=PER_FAMILY, sampling=sampling
    ).pass_at_1


def _cpu_of_children() -> float:
    """CPU seconds that the processes started by this one have taken so far."""
    processes = psutil.Process().children(recursive=True)
    return sum(times.user + times.system for times in (one.cpu_times() for one in processes))


def _trl(
    folder: Path,
    line: str,
    rounds: int,
    *,
    model: str = "tiny",
    others: int = GROUPS,
    seed: int = 1,
    pace_s: float = 0.0,
) -> dict[str, Any]:
    """Train in a process of its own, so that no run warms up the next."""
    given = [line, str(folder), str(rounds), model, str(others), str(seed), str(pace_s)]
    command = [sys.executable, "-m", "benchmarks.trl_join", "--child", *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def child(
    line: str, folder: str, rounds: str, model: str, others: str, seed: str, pace_s: str
) -> None:
    """Print the cost of one training of TRL."""
    flags = list(LOOPBACK)
    with shoal.connect(line, data_dir=folder, node_flags=flags) as swarm:
        while int(others) and swarm.status()["groups_received"] < 4 * GROUPS:
            time.sleep(0.2)
        found = train(
            swarm,
            Path(folder) / "out",
            int(rounds),
            model=model,
            others=int(others),
            seed=int(seed),
            pace_s=float(pace_s),
        )
    print(json.dumps(found))


def _native(folder: Path, line: str, address: str, *, others: int, seed: int) -> dict[str, Any]:
    """Train one of our nodes; return its rewards."""
    flags = [*LOOPBACK, *TRAINS, f"--data-dir={folder}", f"--external={others}", f"--seed={seed}"]
    flags += [f"--rounds={ROUNDS}", f"--bootstrap={address}", f"--round-seconds={PACE_S}"]
    command = [sys.executable, "-m", "shoal", "node", "--no-http", *flags]
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rounds = [one for one in lines if one.get("event") == "round"]
    export = [sys.executable, "-m", "shoal", "export", "model", f"--out={folder / 'model'}"]
    subprocess.run([*export, f"--data-dir={folder}"], check=True, capture_output=True)
    policy = load_policy(str(folder / "model"), device="cpu", seed=1)
    with shoal.connect(line, data_dir=folder / "looking", node_flags=list(LOOPBACK)) as swarm:
        passed = held_out(policy, swarm)
    return {
        "groups_of_others": sum(one["groups_external"] for one in rounds),
        "own_reward": fmean(one["reward_local"] for one in rounds[-LAST:]),
        "held_out": passed,
    }


def measure(options: Options) -> Report:
    """Measure the share and, unless quick, the gain."""
    rounds = QUICK_STEPS if options.quick else STEPS
    results: dict[str, Any] = {}
    goals: list[Goal] = []
    with tempfile.TemporaryDirectory(prefix="shoal-") as root:
        place = Path(root)
        _share(place, "tiny", rounds, 0.0, results, goals)
        results["embedded_costs"] = _costs(place, results["tiny"])
        if not options.quick:
            _share(place, "smollm2", REAL_STEPS, REAL_PACE_S, results, goals)
            results["gain"] = _gain(place, goals)
    return Report(results=results, goals=goals)


def _share(
    place: Path,
    model: str,
    rounds: int,
    pace_s: float,
    results: dict[str, Any],
    goals: list[Goal],
) -> None:
    """Measure the time that joining takes from TRL with one model."""
    with neighbour(place / f"neighbour-{model}", pace_s=pace_s) as (line, _):
        note(f"TRL with {model}, joined")
        joined = results[model] = _trl(place / model, line, rounds, model=model)
    share = joined["api_share_of_cpu"] + joined["beside_share_of_cpu"]
    joined["joining_share_of_cpu"] = share
    wall = joined["api_share_of_wall"]
    goals.append(at_most(f"{model}: share of TRL's wall time that it waits", wall, MOST_SHARE))
    goals.append(at_most(f"{model}: CPU time of joining, relative to TRL's", share, MOST_SHARE))


def _costs(place: Path, busy: dict[str, Any]) -> dict[str, float]:
    """Return the CPU time of joining at the start, for a round and for a group received."""
    rounds = busy["rounds"]
    with neighbour(place / "silent") as (line, _), _paused("shoal_policy"):
        note("TRL with tiny and a silent node")
        quiet = _trl(place / "in-silence", line, rounds)
    round_s = _joining_cpu_s(quiet) / rounds
    received = busy["groups_heard"] - quiet["groups_heard"]
    return {
        "start_s": quiet["beside_start_cpu_s"],
        "round_s": round_s,
        "group_heard_s": (_joining_cpu_s(busy) - round_s * rounds) / max(1, received),
        "round_share_of_cpu": round_s * rounds / quiet["cpu_s"],
        "groups_heard_a_round": busy["groups_heard"] / rounds,
    }


@contextmanager
def _paused(module: str) -> Iterator[None]:
    """Stop the descendant processes that run a module, and continue them afterwards."""
    below = psutil.Process().children(recursive=True)
    stopped = [one for one in below if module in one.cmdline()]
    for one in stopped:
        one.suspend()
    try:
        yield
    finally:
        for one in stopped:
            one.resume()


def _joining_cpu_s(run: dict[str, Any]) -> float:
    return float(run["beside_cpu_s"] + sum(run["api_cpu_s"].values()))


def _gain(place: Path, goals: list[Goal]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for seed in SEEDS:
        for others in (0, GROUPS):
            for kind in ("trl", "native"):
                name = f"{kind}_{others}_{seed}"
                folder = place / name
                with neighbour(folder / "other", seed=100 + seed, pace_s=PACE_S) as (line, address):
                    if kind == "trl":
                        one = _trl(
                            *(folder / "own", line, ROUNDS),
                            others=others,
                            seed=seed,
                            pace_s=PACE_S,
                        )
                    else:
                        one = _native(folder / "own", line, address, others=others, seed=seed)
                kept = ("groups_of_others", "own_reward", "held_out")
                found[name] = {key: one[key] for key in kept}
                note(f"{name}: {found[name]}")
    for figure in ("own_reward", "held_out"):
        gains = {
            kind: [
                found[f"{kind}_{GROUPS}_{seed}"][figure] - found[f"{kind}_0_{seed}"][figure]
                for seed in SEEDS
            ]
            for kind in ("trl", "native")
        }
        found[f"gain_{figure}"] = {f"{kind}_by_seed": gain for kind, gain in gains.items()}
        trl, native = fmean(gains["trl"]), fmean(gains["native"])
        share = trl / native if native > 0 else float("nan")
        found[f"gain_{figure}"] |= {"trl": trl, "native": native}
        goals.append(at_least(f"TRL's gain, relative to a node's, {figure}", share, LEAST_GAIN))
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        sys.exit(0)
    sys.exit(main("trl_join", __doc__ or "", measure))
