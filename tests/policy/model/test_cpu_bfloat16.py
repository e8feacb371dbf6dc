"""A CPU computes in bfloat16 exactly where it measures a gain; all exact tests are in float32."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from shoal_policy.generation.self_check import check_answers
from shoal_policy.model import cpu_bfloat16
from shoal_policy.model.cpu_bfloat16 import MIN_GAIN, bfloat16_gain, cpu_compute_dtype
from shoal_policy.model.loading import Policy, load_policy
from shoal_policy.rollouts import Origin
from shoal_policy.round.own import to_scored_group
from shoal_policy.update.grpo import GrpoConfig, TrainGroup, make_optimizer, update
from tests.policy import tiny_models
from tests.policy.round.test_own import own_group


def with_gain(monkeypatch: pytest.MonkeyPatch, gain: float) -> None:
    """As on a processor that measures this gain."""
    monkeypatch.setattr(cpu_bfloat16, "bfloat16_gain", lambda _in, _out: gain)


def test_this_processor_is_measured() -> None:
    """Emulated bfloat16 is five times slower, AMX several times faster: nothing is in between."""
    gain = bfloat16_gain(512, 1024)
    has_units = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    if torch.backends.cpu.get_cpu_capability() == "AVX512":
        assert (gain >= MIN_GAIN) is has_units, gain
    assert bfloat16_gain(512, 1024) == gain, "the same decision in one process"


@pytest.mark.parametrize("gain", [0.2, 1.0, MIN_GAIN, 7.0])
def test_the_type_follows_the_gain(
    gain: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with_gain(monkeypatch, gain)
    monkeypatch.setattr(cpu_bfloat16, "MIN_WEIGHTS", 1000)
    folder = tiny_models.save(tmp_path)
    caplog.set_level("INFO")
    expected = torch.bfloat16 if gain >= MIN_GAIN else None
    policy = load_policy(folder, device="cpu")
    assert policy.autocast_dtype is expected
    assert policy.model.dtype == torch.float32
    for dtype in ("float32", "bfloat16"):
        assert load_policy(folder, device="cpu", dtype=dtype).autocast_dtype is None
    check_answers(policy)
    lines = [one for one in caplog.messages if "computing in bfloat16" in one]
    assert len(lines) == (2 if expected else 0)
    if expected:
        assert f"{gain:.1f} times as fast" in lines[0] and "nats a token" in lines[1]


def test_a_small_model_and_one_without_layers_stay_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_gain(monkeypatch, 7.0)
    assert load_policy("tiny", device="cpu").autocast_dtype is None
    assert cpu_compute_dtype(tiny_models.model("qwen2")) is None
    monkeypatch.setattr(cpu_bfloat16, "MIN_WEIGHTS", 1)
    assert cpu_compute_dtype(tiny_models.model("qwen2")) is torch.bfloat16
    assert cpu_compute_dtype(tiny_models.model("gpt2")) is None  # its layers are no Linear


def difference_after_update(policy: Policy) -> float | None:
    prompt = [1, 5, 4]
    [answers] = tiny_models.draw(policy, [prompt], params=tiny_models.sampling(6))
    group = dataclasses.replace(own_group(Origin.POLICY), answers=tuple(answers))
    scored = to_scored_group(policy, group, (1.0, 0.0, 0.5), tiny_models.sampling(6))
    train = TrainGroup(
        prompt_ids=prompt,
        completions=scored.completions,
        advantages=[1.0, -1.0, 0.5],
        external=False,
        start_logprobs=scored.start_logprobs,
        sampling_logprobs=scored.sampling_logprobs,
    )
    stats = update(policy, make_optimizer(policy, lr=1e-6), [train], GrpoConfig())
    return stats.sampling_logp_difference


def test_what_rounding_does_is_shown_with_every_update() -> None:
    exact = tiny_models.policy()
    assert difference_after_update(exact) is None
    rounded = dataclasses.replace(exact, autocast_dtype=torch.bfloat16)
    found = difference_after_update(rounded)
    assert found is not None and 1e-5 < found < 0.2
