"""`make gpu-check`: is the trainer right, and how fast, on whatever card is here?

Prints tables as markdown, ready for docs/contributing/benchmarks.md: comparisons with
transformers' own forward pass, generation and autograd, throughput, and on a GPU the kernel
launches and waits per generated token. Without a GPU the same code runs on the CPU with a smaller
model. Exit code 1 when a comparison fails. ``--model NAME`` takes another model than a random one;
``--json`` prints the numbers alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch.profiler import ProfilerActivity, profile
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from benchmarks.update_cases import Case, make_groups
from shoal_base.lines import say_json, say_lines
from shoal_policy.generation.local import generate
from shoal_policy.model.loading import (
    Policy,
    autocast_dtype,
    load_policy,
    parse_device,
    wrap_policy,
)
from shoal_policy.tiny import assets_path
from shoal_policy.update import head
from shoal_policy.update.grpo import GrpoConfig, TrainGroup, UpdateStats, make_optimizer, update
from shoal_policy.update.logprobs import completion_logprobs
from shoal_policy.update.rows import TrainingRow, should_pack
from shoal_wire.types import SamplingParams

LARGE = {
    "vocab_size": 151_936,
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
}
"""The shape of Qwen2.5-0.5B, for a GPU."""
SMALL = {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
}
NEAR, NEAR_IN_BFLOAT16 = 2e-3, 0.15
"""Nats that log-probabilities may be apart, in float32 and between float32 and bfloat16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One comparison."""

    what: str
    off: float
    limit: float

    @property
    def right(self) -> bool:
        """Whether it holds; a number that is none does not."""
        return self.off <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One speed."""

    what: str
    per_second: float
    unit: str
    peak_mib: float | None
    """Peak of the device's memory; None on a CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """All results on one device."""

    device: str
    versions: str
    model: str
    compared: Sequence[Compared]
    timed: Sequence[Timed]
    a_token: Mapping[str, float]
    """Kernel launches, and waits of the host, for each generated token; empty on a CPU."""


def check(model: str, device: str, *, rounds: int = 3) -> Checked:
    """Compare and time on a device; `model` may be ``random``. Raises ModelError."""
    where = parse_device(device)
    whole = _policy(model, where)
    halved = dataclasses.replace(whole, autocast_dtype=_half_type(where))
    groups = make_groups(Case(vocabulary=_vocabulary(whole), prompt=(48, 64), groups=4))
    compared = [
        *_compare_logprobs(whole, halved, groups),
        _compare_generation(whole),
        _compare_gradients(whole, groups),
        _compare_tiles(whole, groups),
    ]
    return Checked(
        device=_named(where),
        versions=f"torch {torch.__version__}, transformers {transformers.__version__}",
        model=f"{model}, {sum(w.numel() for w in whole.model.parameters()) / 1e6:.1f} M weights",
        compared=compared,
        timed=[
            *_time_generation(whole, "float32", rounds),
            *_time_generation(halved, "computing in bfloat16", rounds),
            _time_update(whole, groups, "float32", rounds),
            _time_update(halved, groups, "computing in bfloat16", rounds),
            *_time_tiles(whole, rounds),
        ],
        a_token=_counted(whole) if where.type == "cuda" else {},
    )


def _policy(model: str, where: torch.device) -> Policy:
    if model != "random":
        return load_policy(model, device=str(where), dtype="float32")
    torch.manual_seed(0)
    sizes = LARGE if where.type == "cuda" else SMALL
    made = Qwen2ForCausalLM(
        Qwen2Config(**sizes, max_position_embeddings=2048, tie_word_embeddings=True)
    )
    tokenizer = AutoTokenizer.from_pretrained(assets_path())
    return wrap_policy(made, tokenizer, name="random", device=where)


def _half_type(where: torch.device) -> torch.dtype | None:
    """The dtype of `--dtype auto`; bfloat16 also on a CPU, to run the same code."""
    return torch.bfloat16 if where.type == "cpu" else autocast_dtype(where)


def _vocabulary(policy: Policy) -> int:
    return int(policy.model.config.get_text_config().vocab_size)


def _rows(groups: Sequence[TrainGroup]) -> list[TrainingRow]:
    return [
        TrainingRow(
            group=number,
            prompt_ids=group.prompt_ids,
            completion_ids=ids,
            advantage=1.0,
            external=False,
        )
        for number, group in enumerate(groups)
        for ids in group.completions
    ]


def _plain_logprobs(policy: Policy, row: TrainingRow) -> torch.Tensor:
    """Of a row's completion, from transformers' own logits."""
    ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]], device=policy.device)
    with policy.autocast():
        logits = policy.model(input_ids=ids, use_cache=False).logits[0]
    part = logits[len(row.prompt_ids) - 1 : -1].float().log_softmax(-1)
    return part.gather(-1, ids[0, len(row.prompt_ids) :, None])[:, 0]


def _compare_logprobs(
    whole: Policy, halved: Policy, groups: Sequence[TrainGroup]
) -> list[Compared]:
    rows = _rows(groups)[:8]
    found = []
    with torch.no_grad():
        plain_N = torch.cat([_plain_logprobs(whole, row) for row in rows])
        for name, policy, limit in (
            ("float32", whole, NEAR),
            ("computing in bfloat16", halved, NEAR_IN_BFLOAT16),
        ):
            for packed in {False, should_pack(policy, rows, 1 << 20)}:
                ours_N = completion_logprobs(policy, rows, packed=packed).logprobs
                how = "packed" if packed else "padded"
                off = float((ours_N - plain_N).abs().mean())
                what = f"log-probabilities, {how}, {name}, mean difference in nats"
                found.append(Compared(what=what, off=off, limit=limit))
    return found


def _compare_generation(policy: Policy) -> Compared:
    """Share of greedy answers that differ from transformers' generate."""
    prompts = [[7 + number, 11, 13, 17 + number] for number in range(4)]
    greedy = SamplingParams(temperature=0.0, top_p=1.0, top_k=0, max_new_tokens=24)
    ours = generate(policy, prompts, num_completions=1, params=greedy, generator=torch.Generator())
    different = 0
    for prompt, [sample] in zip(prompts, ours, strict=True):
        ids = torch.tensor([prompt], device=policy.device)
        theirs = policy.model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=24,
            eos_token_id=sorted(policy.eos_ids),
            pad_token_id=policy.pad_id,
        )[0, len(prompt) :].tolist()
        different += list(sample.ids) != theirs
    what = "greedy answers unlike transformers' generate, share"
    # On a GPU two kernels may diverge where two tokens are almost tied.
    limit = 0.0 if policy.device.type == "cpu" else 0.25
    return Compared(what=what, off=different / len(prompts), limit=limit)


class _Kept:
    """Stands in for an optimiser: keeps the gradients."""

    def __init__(self, policy: Policy) -> None:
        self._model, self.found = policy.model, dict[str, torch.Tensor]()

    def zero_grad(self, *, set_to_none: bool) -> None:
        self._model.zero_grad(set_to_none=set_to_none)

    def step(self) -> None:
        self.found = {
            name: weight.grad.detach().clone()
            for name, weight in self._model.named_parameters()
            if weight.grad is not None
        }


def _gradients(policy: Policy, groups: Sequence[TrainGroup]) -> dict[str, torch.Tensor]:
    kept = _Kept(policy)
    update(policy, kept, groups, GrpoConfig(max_grad_norm=0))
    return kept.found


def _apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The worst relative difference of any weight's gradient."""
    return max(float((one[n] - g).norm() / g.norm().clamp(min=1e-9)) for n, g in other.items())


def _compare_gradients(policy: Policy, groups: Sequence[TrainGroup]) -> Compared:
    """The update's gradient against autograd's through all logits."""
    ours = _gradients(policy, groups)
    rows = _rows(groups)
    advantages = [advantage for group in groups for advantage in group.advantages]
    for row, advantage in zip(rows, advantages, strict=True):
        logprobs_n = _plain_logprobs(policy, row)
        ratio_n = (logprobs_n - logprobs_n.detach()).exp()
        (-(ratio_n * advantage).mean() / len(rows)).backward()
    plain = _Kept(policy)
    plain.step()
    policy.model.zero_grad(set_to_none=True)
    what = "gradients, float32, worst relative difference"
    return Compared(what=what, off=_apart(ours, plain.found), limit=1e-2)


def _compare_tiles(policy: Policy, groups: Sequence[TrainGroup]) -> Compared:
    whole = _gradients(policy, groups)
    with _tiles_of(_vocabulary(policy) * 7):
        parts = _gradients(policy, groups)
    what = "gradients with tiles of 7 tokens, worst relative difference"
    return Compared(what=what, off=_apart(parts, whole), limit=1e-3)


class _tiles_of:  # noqa: N801 - a context
    def __init__(self, elements: int) -> None:
        self._elements = elements

    def __enter__(self) -> None:
        self._before = head.TILE_ELEMENTS, head.GPU_TILE_ELEMENTS
        head.TILE_ELEMENTS = head.GPU_TILE_ELEMENTS = self._elements

    def __exit__(self, *_: object) -> None:
        head.TILE_ELEMENTS, head.GPU_TILE_ELEMENTS = self._before


def _timed(
    device: torch.device, what: str, unit: str, work: Callable[[], float], rounds: int
) -> Timed:
    """The best of several rounds; `work` returns the units of work that it did."""
    on_gpu, best = device.type == "cuda", 0.0
    work()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(rounds):
        started = time.perf_counter()
        done = work()
        if on_gpu:
            torch.cuda.synchronize(device)
        best = max(best, done / (time.perf_counter() - started))
    peak = torch.cuda.max_memory_allocated(device) / 2**20 if on_gpu else None
    return Timed(what=what, per_second=best, unit=unit, peak_mib=peak)


def _time_generation(policy: Policy, name: str, rounds: int) -> list[Timed]:
    prompts = [[7 + number] * 64 for number in range(8)]
    params = SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=64)

    def work(each: int) -> float:
        made = generate(
            policy, prompts, num_completions=each, params=params, generator=torch.Generator()
        )
        return float(sum(len(one.ids) for group in made for one in group))

    return [
        _timed(
            policy.device,
            f"generation, {8 * each} rows, {name}",
            "tokens",
            lambda each=each: work(each),  # type: ignore[misc]
            rounds,
        )
        for each in (1, 8)
    ]


def _time_update(policy: Policy, groups: Sequence[TrainGroup], name: str, rounds: int) -> Timed:
    optimizer = make_optimizer(policy, lr=0.0)
    tokens = sum(len(group.prompt_ids) + sum(map(len, group.completions)) for group in groups)

    def work() -> float:
        stats: UpdateStats = update(policy, optimizer, groups, GrpoConfig())
        assert stats.num_steps == 1
        return float(tokens)

    return _timed(policy.device, f"update, {name}", "tokens", work, rounds)


def _time_tiles(policy: Policy, rounds: int) -> list[Timed]:
    weight = policy.model.get_output_embeddings().weight.detach()
    dtype = _half_type(policy.device) or torch.float32
    hidden = torch.randn(2048, weight.shape[1], device=policy.device).to(dtype)
    targets = torch.arange(2048, device=policy.device) % weight.shape[0]
    flops = 6.0 * 2048 * int(weight.numel()) / 1e9

    def work() -> float:
        leaf = weight.clone().requires_grad_()
        state = hidden.clone().requires_grad_()
        given = torch.ones(2048, device=policy.device)
        found, _ = head.head_logprobs(
            *(state, leaf, None, targets, 1.0), lambda _logprobs, part: given[part]
        )
        found.backward(given)
        return flops

    timed = []
    for power in (24, 26, 28) if policy.device.type == "cuda" else (18, 24):
        with _tiles_of(1 << power):
            what = f"output matrix and its gradient, tiles of 2^{power} numbers"
            timed.append(_timed(policy.device, what, "GFLOP", work, rounds))
    return timed


def _counted(policy: Policy) -> dict[str, float]:
    few, many = 8, 72
    return by_token(_cuda_calls(policy, few), _cuda_calls(policy, many), many - few)


def _cuda_calls(policy: Policy, tokens: int) -> Counter[str]:
    """Counts CUDA API calls while eight rows generate `tokens` tokens."""
    params = SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=tokens)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        generate(
            policy,
            [[7 + number] * 64 for number in range(8)],
            num_completions=1,
            params=params,
            generator=torch.Generator(),
        )
    return Counter({one.key: one.count for one in seen.key_averages()})


def by_token(few: Counter[str], many: Counter[str], tokens: int) -> dict[str, float]:
    """Return the additional calls per additional token; tests/policy/test_on_a_card.py bounds
    both."""
    more = {name: many[name] - few[name] for name in many}
    counts = {
        "kernel launches": sum(more[name] for name in more if "LaunchKernel" in name),
        "waits": sum(more[name] for name in more if name.endswith("Synchronize")),
    }
    return {what: count / tokens for what, count in counts.items()}


def _named(where: torch.device) -> str:
    if where.type == "cuda":
        return str(torch.cuda.get_device_name(where))
    return f"CPU, {torch.get_num_threads()} threads"


def markdown(found: Checked) -> str:
    """All tables."""
    lines = [
        f"**{found.device}**, {found.versions}, model {found.model}.",
        "",
        "| compared | off | at most | right |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {one.what} | {one.off:.2g} | {one.limit:g} | {'yes' if one.right else '**no**'} |"
        for one in found.compared
    ]
    lines += ["", "| speed | a second | peak memory |", "|---|---|---|"]
    lines += [
        f"| {one.what} | {one.per_second:,.0f} {one.unit} | "
        f"{'' if one.peak_mib is None else f'{one.peak_mib:,.0f} MiB'} |"
        for one in found.timed
    ]
    if found.a_token:
        lines += ["", "| counted | for each generated token |", "|---|---|"]
        lines += [f"| {what} | {count:,.1f} |" for what, count in found.a_token.items()]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the results; return 1 when a comparison does not hold."""
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__)
    parser.add_argument("--model", default="random", help="hub name or folder (random)")
    parser.add_argument("--device", default="auto", help="torch device (auto)")
    parser.add_argument("--rounds", type=int, default=3, help="of each timing (3)")
    parser.add_argument("--json", action="store_true", help="numbers instead of tables")
    given = parser.parse_args(argv)
    found = check(given.model, given.device, rounds=given.rounds)
    if given.json:
        say_json(_document(found))
    else:
        say_lines(markdown(found))
    return 0 if all(one.right for one in found.compared) else 1


def _document(found: Checked) -> dict[str, Any]:
    document = dataclasses.asdict(found)
    for one, made in zip(document["compared"], found.compared, strict=True):
        one["right"] = made.right
    return document


if __name__ == "__main__":
    sys.exit(main())
