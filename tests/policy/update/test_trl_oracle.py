"""Our loss, gradients and advantages against those of the installed TRL's GRPOTrainer.

TRL gets a copy of the same model and rows as its own padded tensors; it runs its own forward pass
and its own loss. Everything in float32 on the CPU.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from shoal_policy.choice.advantage import group_advantages
from shoal_policy.model.loading import Policy
from shoal_policy.model.reference import freeze
from shoal_policy.update.grpo import GrpoConfig, TrainGroup
from shoal_policy.update.losses import LOSSES
from shoal_policy.update.objective import k3
from shoal_policy.update.off_policy import IMPORTANCE_CAP
from shoal_settings.groups import choices_of
from tests.policy import tiny_models
from tests.policy.update import update_cases
from tests.policy.update.update_cases import EOS, LIMIT, group_of, own_logprobs, recorded

if importlib.util.find_spec("trl") is None and not os.environ.get("CI"):
    pytest.skip("trl is not installed: no oracle to ask", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def policy() -> Policy:
    made = tiny_models.policy()
    assert made.autocast_dtype is None, "in float32 on every processor"
    return made


@pytest.fixture(scope="module")
def reference() -> Policy:
    made = tiny_models.policy()
    return freeze(replace(made, model=nudged(made.model, 0.03)))


@pytest.fixture(scope="module")
def trainers(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Callable[[float], Any]:
    """Gives the trainer of a temperature, which alone TRL builds into the model."""
    return functools.cache(
        lambda temperature: make_trainer(policy, temperature, tmp_path_factory.mktemp("trl"))
    )


@pytest.fixture
def trainer(trainers: Callable[[float], Any]) -> Any:
    return trainers(1.0)


def make_trainer(policy: Policy, temperature: float, folder: Path) -> Any:
    """A real trainer around a copy of the policy; each test sets what its variant needs."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer  # type: ignore[attr-defined]

    config = GRPOConfig(
        output_dir=str(folder),
        temperature=temperature,
        use_cpu=True,
        bf16=False,
        report_to=[],
        num_generations=4,
        generation_batch_size=8,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=1,
        max_completion_length=LIMIT,
        use_bias_correction_kl=False,
        disable_dropout=True,
        seed=3,
    )
    made = GRPOTrainer(
        model=copy.deepcopy(policy.model),
        reward_funcs=count_of_sevens,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": text} for text in ("2+2=", "spell it: abc")]),
        processing_class=policy.tokenizer,
    )
    made.current_gradient_accumulation_steps = 1
    return made


def count_of_sevens(completions: Sequence[str], **_: Any) -> list[float]:
    """A reward that random text earns in different amounts."""
    return [float(text.count("7") + len(text) % 3) for text in completions]


def nudged(model: Any, by: float) -> Any:
    """A copy whose weights are a little off."""
    made = copy.deepcopy(model)
    torch.manual_seed(5)
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(torch.randn_like(weight) * by)
    return made


def make_groups(seed: int = 0) -> list[TrainGroup]:
    """Mixed L, prompts and lengths; completions cut and ended; one group without signal."""
    rng = random.Random(seed)
    groups = []
    for number, size in enumerate((4, 2, 7, 3)):
        completions = [
            [rng.randrange(5, 50) for _ in range(rng.randint(1, 20))] + [EOS] * rng.randint(0, 1)
            for _ in range(size)
        ]
        rewards = [0.0 if number == 3 else float(rng.randint(0, 3)) for _ in range(size)]
        prompt = [1, *(rng.randrange(5, 50) for _ in range(rng.randint(1, 15))), 4]
        advantages = group_advantages(rewards)
        groups.append(group_of(prompt, completions, advantages, external=bool(number % 2)))
    return groups


def make_games(seed: int = 0) -> list[TrainGroup]:
    """The same, but for what an environment says in the midst of most completions."""
    rng = random.Random(seed + 2)
    return [
        replace(
            group, completion_positions=[positions_of(rng, len(ids)) for ids in group.completions]
        )
        for group in make_groups(seed)
    ]


def positions_of(rng: random.Random, size: int) -> tuple[int, ...] | None:
    """Return the positions of policy tokens among `size` tokens: a game begins and ends with its
    messages."""
    if rng.random() < 0.2:
        return None
    mine = [True, *(rng.random() < 0.6 for _ in range(size - 2)), True][:size]
    return tuple(place for place, is_policy in enumerate(mine) if is_policy)


def places_in(group: TrainGroup) -> list[Sequence[int]]:
    """Return the positions of policy tokens in each completion."""
    all_of = [range(len(ids)) for ids in group.completions]
    return [
        positions or every
        for positions, every in zip(group.completion_positions or all_of, all_of, strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One of our configurations, and what makes TRL compute the same."""

    config: GrpoConfig
    given_old: bool = True


def grpo(**changes: Any) -> GrpoConfig:
    return update_cases.config(token_budget=90, **changes)


FORMS: dict[str, dict[str, Any]] = {
    "": {"epsilon_high": 0.2},
    " clip-higher": {"epsilon_low": 0.1, "epsilon_high": 0.4},
    " kl": {"kl_beta": 0.5},
}
BY_LOSS = {
    f"{word}{what}": grpo(loss_type=word, **changes)
    for word in LOSSES
    for what, changes in FORMS.items()
}
"""Every loss by the word that TRL has for it, in every form: a new row of `LOSSES` is asked too."""
VARIANTS = {
    f"{name} {'old given' if given_old else 'own old'}": Variant(config=config, given_old=given_old)
    for given_old in (False, True)
    for name, config in {**BY_LOSS, "temperature": grpo(temperature=0.7)}.items()
}


def at_their_places(groups: Sequence[TrainGroup], values: Sequence[Sequence[float]]) -> Any:
    """Per-token values as TRL holds them, 0 where an environment speaks."""
    rows = [
        (ids, positions)
        for g in groups
        for ids, positions in zip(g.completions, places_in(g), strict=True)
    ]
    full = [[0.0] * len(ids) for ids, _ in rows]
    for row, (_, positions), given in zip(full, rows, values, strict=True):
        for place, value in zip(positions, given, strict=True):
            row[place] = value
    return padded(full, 0.0)


def with_old(groups: Sequence[TrainGroup], model: Any, temperature: float) -> list[TrainGroup]:
    return [replace(g, old_logprobs=own_logprobs(model, g, temperature)) for g in groups]


def padded(rows: Sequence[Sequence[float]], fill: float, *, left: bool = False) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor(
        [
            [fill] * (width - len(row)) * left + [*row] + [fill] * (width - len(row)) * (not left)
            for row in rows
        ]
    )


def trl_inputs(groups: Sequence[TrainGroup]) -> dict[str, torch.Tensor]:
    """The same rows as TRL holds them: prompts padded left, completions right."""
    prompts = [list(g.prompt_ids) for g in groups for _ in g.completions]
    completions = [list(ids) for g in groups for ids in g.completions]
    inputs = {
        "prompt_ids": padded(prompts, 0, left=True),
        "prompt_mask": padded([[1] * len(row) for row in prompts], 0, left=True),
        "completion_ids": padded(completions, 0),
        "completion_mask": padded([[1] * len(row) for row in completions], 0),
        "advantages": torch.tensor([a for g in groups for a in g.advantages]),
        "num_items_in_batch": torch.tensor(
            float(sum(len(positions) for g in groups for positions in places_in(g)))
        ),
    }
    if any(g.completion_positions for g in groups):
        ones = [[1.0] * len(positions) for g in groups for positions in places_in(g)]
        inputs["tool_mask"] = at_their_places(groups, ones)
    if groups[0].old_logprobs is not None:
        old = [row for g in groups for row in g.old_logprobs or ()]
        inputs["old_per_token_logps"] = at_their_places(groups, old)
    return inputs


def set_up(trainer: Any, config: GrpoConfig) -> None:
    """Tell TRL's trainer our settings, by its own names."""
    trainer.loss_type = config.loss_type
    trainer.epsilon_low, trainer.epsilon_high = config.epsilon_low, config.epsilon_high
    trainer.beta = config.kl_beta
    assert trainer.temperature == config.temperature
    trainer.importance_sampling_level = "token"
    trainer.use_vllm = trainer.vllm_importance_sampling_correction = False


def trl_loss(trainer: Any, inputs: dict[str, torch.Tensor]) -> tuple[float, dict[str, Any]]:
    trainer.model.eval()
    trainer.model.zero_grad(set_to_none=True)
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    gradients = {name: weight.grad.clone() for name, weight in trainer.model.named_parameters()}
    return float(loss.detach()), gradients


def assert_same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert max(float(gradient.abs().max()) for gradient in theirs.values()) > 1e-2
    for name, gradient in ours.items():
        assert torch.allclose(gradient, theirs[name], rtol=1e-4, atol=TOLERANCE), name


@pytest.mark.parametrize("make", [make_groups, make_games])
@pytest.mark.parametrize("name", VARIANTS)
def test_loss_and_gradients_are_trl_s(
    name: str,
    make: Callable[[], list[TrainGroup]],
    policy: Policy,
    reference: Policy,
    trainers: Callable[[float], Any],
) -> None:
    """TRL masks the environment's tokens in a game (its `env_mask`)."""
    variant = VARIANTS[name]
    config, groups = variant.config, make()
    trainer = trainers(config.temperature)
    if variant.given_old:
        groups = with_old(groups, nudged(policy.model, 0.02), config.temperature)
    inputs = trl_inputs(groups)
    if config.kl_beta:
        ours = [own_logprobs(reference.model, g, config.temperature) for g in groups]
        flat = [row for rows in ours for row in rows]
        inputs["ref_per_token_logps"] = at_their_places(groups, flat)
    held = reference if config.kl_beta else None
    stats, steps = recorded(policy, groups, held, settings=config)
    set_up(trainer, config)
    trainer._metrics["eval"].clear()
    loss, gradients = trl_loss(trainer, inputs)
    assert stats.loss == pytest.approx(loss, abs=TOLERANCE)
    assert_same(steps[-1], gradients)
    assert abs(loss) > 1e-3 or not variant.given_old
    metrics = {key: values[-1] for key, values in trainer._metrics["eval"].items()}
    if config.kl_beta:
        # Both are means over tokens of all rows, with a KL term those without advantage too.
        assert stats.kl == pytest.approx(metrics["kl"], rel=1e-4)
        assert stats.entropy == pytest.approx(metrics["entropy"], rel=1e-4)
        assert stats.kl > 0.01
    if variant.given_old and config.kl_beta:
        for ours_of, theirs_of in (("low", "low_mean"), ("high", "high_mean")):
            found = getattr(stats, f"clip_fraction_{ours_of}")
            assert found == pytest.approx(metrics[f"clip_ratio/{theirs_of}"], rel=1e-4)
            assert found > 0.005


@pytest.mark.parametrize("loss_type", LOSSES)
def test_importance_weights_are_trl_s_correction_of_a_server_s_samples(
    loss_type: str, policy: Policy, trainer: Any
) -> None:
    """TRL corrects for a sampler of other numbers by min(own / sampler's, cap)."""
    config = grpo(loss_type=loss_type)
    generator = nudged(policy.model, 0.1)
    groups = [
        replace(g, external=False, sampling_logprobs=own_logprobs(generator, g))
        for g in make_groups()
    ]
    stats, steps = recorded(policy, groups, settings=config)
    set_up(trainer, config)
    trainer.use_vllm = trainer.vllm_importance_sampling_correction = True
    own = padded([row for g in groups for row in own_logprobs(policy.model, g)], 0.0)
    theirs = padded([row for g in groups for row in g.sampling_logprobs or ()], 0.0)
    inputs = trl_inputs(groups)
    inputs["importance_sampling_ratio"] = (own - theirs).exp().clamp(max=IMPORTANCE_CAP)
    loss, gradients = trl_loss(trainer, inputs)
    assert stats.loss == pytest.approx(loss, abs=TOLERANCE)
    assert_same(steps[-1], gradients)
    assert 0.02 < float((own - theirs > math.log(IMPORTANCE_CAP)).float().mean()) < 0.9


@pytest.mark.parametrize("scale", ["group", "none"])
def test_a_whole_trl_batch_has_our_advantages_loss_and_gradients(
    scale: Any, policy: Policy, trainer: Any
) -> None:
    """TRL samples, scores and scales by itself; we are given its texts' ids and its rewards."""
    config = grpo(epsilon_high=0.2)
    set_up(trainer, config)
    trainer.scale_rewards = scale
    trainer.model.train()
    prompts = [{"prompt": text} for text in ("2+2=", "spell it: abc") for _ in range(4)]
    torch.manual_seed(11)
    batch = trainer._generate_and_score_completions(prompts)
    rows = [
        [
            ids[mask.bool()].tolist()
            for ids, mask in zip(batch[f"{of}_ids"], batch[f"{of}_mask"], strict=True)
        ]
        for of in ("prompt", "completion")
    ]
    texts = policy.tokenizer.batch_decode(rows[1], skip_special_tokens=True)
    rewards = count_of_sevens(texts)
    groups = [
        group_of(
            rows[0][start],
            rows[1][start : start + 4],
            group_advantages(rewards[start : start + 4], scale),
        )
        for start in (0, 4)
    ]
    ours = [advantage for group in groups for advantage in group.advantages]
    assert len(set(ours)) > 3
    assert ours == pytest.approx(batch["advantages"].tolist(), abs=TOLERANCE)
    stats, steps = recorded(policy, groups, settings=config)
    loss, gradients = trl_loss(trainer, batch)
    assert stats.loss == pytest.approx(loss, abs=TOLERANCE)
    assert_same(steps[-1], gradients)


def test_k3_is_the_estimator_by_that_name() -> None:
    now, reference = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -2.0])
    assert k3(now, reference).tolist() == pytest.approx([0.10653066, 0.0])
    assert bool(k3(torch.tensor([-100.0]), torch.tensor([0.0])).isfinite().all())


def test_the_oracle_is_a_version_whose_loss_was_read() -> None:
    """Another version may rename what these tests set; then read its loss again."""
    import trl

    assert trl.__version__.split(".")[0] == "1", Path(trl.__file__)


def test_the_setting_and_the_page_have_every_loss() -> None:
    page = (Path(__file__).parents[3] / "docs" / "losses.md").read_text()
    assert set(choices_of("loss_type")) == set(LOSSES)
    assert all(f"\n| `{word}` |" in page for word in LOSSES)
