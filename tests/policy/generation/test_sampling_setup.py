"""Weights cast once a generation, and as many rows at once as memory holds."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from shoal_policy.generation import decoding, local, sampling_setup
from shoal_policy.model.loading import Policy
from shoal_policy.rollouts import Answer
from tests.policy import tiny_models

PROMPTS = [[1, 20, 21, 22, 4], [1, 30, 4], [1, 9, 9, 14, 33, 40, 12, 4]]


def draw(policy: Policy, num: int = 4, **options: Any) -> list[Answer]:
    how = tiny_models.sampling(10)
    return list(chain(*tiny_models.draw(policy, PROMPTS, num=num, params=how, **options)))


@contextmanager
def casts() -> Iterator[Counter[tuple[int, ...]]]:
    """Counts casts, by shape: autocast's own, too, which a mode of Python's never sees."""
    found: Counter[tuple[int, ...]] = Counter()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as made:
        yield found
    for event in made.key_averages(group_by_input_shape=True):
        if event.key == "aten::_to_copy":
            found[tuple(event.input_shapes[0])] += event.count


def in_bfloat16(policy: Policy) -> Policy:
    return dataclasses.replace(policy, autocast_dtype=torch.bfloat16)


@pytest.mark.parametrize(("architecture", "lora"), [("qwen2", False), ("llama", True)])
def test_matrices_are_cast_once_and_not_at_every_token(architecture: str, lora: bool) -> None:
    policy = in_bfloat16(tiny_models.policy(architecture))
    if lora:
        policy = tiny_models.with_adapter(policy)
    before = {name: id(weight) for name, weight in policy.model.named_parameters()}
    with casts() as found:
        draw(policy, num=1)
    assert found[(48, 32)] == 4  # gate and up of two layers
    assert found[(tiny_models.VOCAB, 32)] == 1  # the output matrix, tied or not
    assert before == {name: id(weight) for name, weight in policy.model.named_parameters()}
    assert {weight.dtype for weight in policy.model.parameters()} == {torch.float32}


def test_what_is_drawn_is_what_autocast_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = in_bfloat16(tiny_models.policy("qwen2"))
    ours = draw(policy)
    monkeypatch.setattr(local, "inference_weights", lambda _policy: torch.no_grad())
    assert [one.ids for one in draw(policy)] == [one.ids for one in ours]
    assert draw(policy) == ours


@pytest.mark.parametrize("architecture", tiny_models.ARCHITECTURES)
@pytest.mark.parametrize("half", [False, True])
def test_adapters_are_in_the_matrices_while_tokens_are_drawn(architecture: str, half: bool) -> None:
    policy = tiny_models.policy(architecture)
    policy = tiny_models.with_adapter(in_bfloat16(policy) if half else policy)
    before = {name: (id(w), w.clone()) for name, w in policy.model.named_parameters()}
    ids = torch.tensor([[1, 20, 21, 22, 23]])

    def logprobs() -> torch.Tensor:
        with torch.inference_mode(), policy.autocast():
            return policy.model(input_ids=ids).logits.float().log_softmax(-1)

    calls: list[Any] = []
    layer = next(module for module in policy.model.modules() if hasattr(module, "lora_A"))
    hook = layer.lora_A["default"].register_forward_hook(lambda *given: calls.append(given))
    with sampling_setup.inference_weights(policy):
        within = logprobs()
    assert not calls, "the adapter's own matrices are not used"
    outside = logprobs()
    assert calls
    hook.remove()
    assert float((within - outside).abs().mean()) < (0.05 if half else 1e-5)
    with policy.adapter.disable_adapter():
        assert float((outside - logprobs()).abs().mean()) > 0.1, "it says something"
        with sampling_setup.inference_weights(policy):
            assert float((outside - logprobs()).abs().mean()) > 0.1, "and not where it is off"
    for name, weight in policy.model.named_parameters():
        assert before[name][0] == id(weight) and torch.equal(before[name][1], weight), name


def test_adapters_stay_apart_where_memory_holds_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_models.with_adapter(tiny_models.policy())
    monkeypatch.setattr(sampling_setup, "_SMALL_BYTES", 0)
    for free, merged in ((1_000_000_000, True), (1_000, False)):
        monkeypatch.setattr(sampling_setup, "free_bytes", lambda _device, free=free: free)
        with sampling_setup.inference_weights(policy):
            found = [m.merged_adapters for m in policy.model.modules() if hasattr(m, "lora_A")]
            assert all(bool(one) is merged for one in found)


def test_weights_come_back_when_generation_breaks_off() -> None:
    policy = in_bfloat16(tiny_models.policy("qwen2"))
    before = {name: id(weight) for name, weight in policy.model.named_parameters()}

    def stop(_done: int, fraction: float) -> None:
        if fraction > 0.3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        draw(policy, on_step=stop)
    assert before == {name: id(weight) for name, weight in policy.model.named_parameters()}


class SmallMemory:
    """A decoder's maker on a device that holds `rows` rows."""

    def __init__(self, rows: int, text: str | None = None) -> None:
        self.rows, self.text, self.requested = rows, text, list[int]()

    def __call__(self, policy: Policy, prompts: Any, repeat: int, max_new: int) -> Any:
        self.requested.append(len(prompts) * repeat)
        if len(prompts) * repeat > self.rows:
            if self.text is not None:
                raise RuntimeError(self.text)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return decoding.make_decoder(policy, prompts, repeat, max_new)


@pytest.mark.parametrize("rows", range(1, 13))
def test_where_memory_runs_out_half_as_many_rows_are_done_at_once(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = draw(tiny_models.policy())
    memory = SmallMemory(rows, [None, "DefaultCPUAllocator: can't allocate memory"][rows % 2])
    monkeypatch.setattr(local, "make_decoder", memory)
    reported: list[tuple[int, float]] = []
    policy = tiny_models.policy()
    parts = draw(policy, on_step=lambda done, fraction: reported.append((done, fraction)))
    assert [one.ids for one in parts] == [one.ids for one in whole]
    assert reported[-1] == (12, 1.0) and all(done <= 12 and part <= 1 for done, part in reported)
    memory.requested.clear()
    draw(policy)  # what did not fit once is not tried again
    assert max(memory.requested) <= rows


def test_one_row_that_does_not_fit_and_other_errors_are_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local, "make_decoder", SmallMemory(0))
    with pytest.raises(torch.OutOfMemoryError):
        draw(tiny_models.policy())
    broken = SmallMemory(0, "expected scalar type Float")
    monkeypatch.setattr(local, "make_decoder", broken)
    with pytest.raises(RuntimeError, match="scalar type"):
        draw(tiny_models.policy())
    assert broken.requested == [12]


def test_rows_follow_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_models.policy()
    # Two layers, two key heads of eight numbers, keys and values, four bytes each; logits.
    assert sampling_setup.row_bytes(policy, 100) == 2 * 2 * 2 * 8 * 4 * 100 + 16 * tiny_models.VOCAB
    assert (
        sampling_setup.row_bytes(in_bfloat16(policy), 100)
        == 2 * 2 * 2 * 8 * 2 * 100 + 16 * tiny_models.VOCAB
    )
    assert (
        sampling_setup.row_bytes(tiny_models.policy("gpt2"), 100)
        == 2 * 2 * 4 * 8 * 4 * 100 + 16 * tiny_models.VOCAB
    )
    monkeypatch.setattr(sampling_setup, "_SMALL_BYTES", 0)
    for free, rows in ((0, 1), (100 * sampling_setup.row_bytes(policy, 64), 80), (1 << 40, 200)):
        monkeypatch.setattr(sampling_setup, "free_bytes", lambda _device, free=free: free)
        assert sampling_setup.max_batch_rows(policy, 200, 64) == rows
    monkeypatch.setattr(
        sampling_setup, "free_bytes", lambda _device: 5 * sampling_setup.row_bytes(policy, 18)
    )
    requested = SmallMemory(1000)
    monkeypatch.setattr(local, "make_decoder", requested)
    draw(policy)
    assert max(requested.requested) <= 4 and sum(requested.requested) == 12
