"""Architectures of the installed transformers: each answers and trains right, or is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.policy_flags import policy_of_model
from shoal_policy.generation import self_check
from shoal_policy.generation.self_check import check_answers
from shoal_policy.training_run import begin_or_resume
from shoal_policy.update.logprobs import completion_logprobs
from shoal_settings.exits import UsageExit
from tests.policy import tiny_models
from tests.policy import training_cases as case
from tests.policy.tiny_architectures import RECORDED, RIGHT, life, names, outcome, policy, tiny
from tests.policy.tiny_models import refused

HYBRIDS = (
    "bamba",
    "falcon_h1",
    "granitemoehybrid",
    "jamba",
    "lfm2",
    "mamba2",
    "nemotron_h",
    "qwen3_5_text",
    "qwen3_next",
)
"""Layers with a state next to layers of attention, or alone."""
EXPERTS = ("gpt_oss", "llama4_text", "mixtral", "qwen3_moe")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*HYBRIDS, *EXPERTS, "deepseek_v3", "gemma4_text"])
def test_it_is_right_from_load_to_reload(name: str) -> None:
    pytest.importorskip("peft")
    assert life(name) <= RIGHT


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["mamba", "falcon_mamba", "bart"])
def test_one_whose_padding_shows_is_refused(name: str) -> None:
    with refused(f"cannot use model '{name}': together with a longer prompt it answers with other"):
        policy(name)


@pytest.mark.filterwarnings("ignore")
def test_it_is_refused_wherever_a_model_is_loaded_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tiny_models.save(tmp_path / "mamba", tiny("mamba"))
    why = "together with a longer prompt it answers with other numbers than alone"
    with refused(why):
        begin_or_resume(case.settings(tmp_path / "run", folder), seed=1)
    assert not (tmp_path / "run" / "checkpoints").exists()
    with pytest.raises(UsageExit):
        policy_of_model("chat", folder, device="cpu")
    assert why in capsys.readouterr().err


def test_one_that_cannot_answer_at_all_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_given: object, **_named: object) -> None:
        raise AttributeError("no such thing\nin this cache")

    made = tiny_models.policy("qwen2")
    monkeypatch.setattr(made.model, "forward", fail)
    with refused("cannot use model 'qwen2': Qwen2ForCausalLM cannot answer here (no such thing"):
        check_answers(made)


def test_an_update_with_other_numbers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made, real = tiny_models.policy("qwen2"), completion_logprobs

    def off(*given: object, **named: object) -> object:
        found = real(*given, **named)  # type: ignore[arg-type]
        found.logprobs.add_(0.1)
        return found

    monkeypatch.setattr(self_check, "completion_logprobs", off)
    with refused("it trains with other numbers than alone (by 0.1 nats a token)"):
        check_answers(made)


def recorded() -> dict[str, str]:
    lines = RECORDED.read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines)


def test_the_page_tells_of_every_architecture() -> None:
    """The slow test plays them; here only whether its record is of this transformers."""
    assert sorted(recorded()) == names()
    tried = [one for one in recorded().values() if not one.startswith("not tried")]
    assert len(tried) >= 80
    assert sum(one == "right" for one in tried) >= 80
    wrong = [name for name, one in recorded().items() if one.startswith(("wrong", "failed"))]
    # transformers 5.24 zeroes the padding token's row of its tied embedding when it loads.
    assert wrong == ["youtu"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore")
def test_every_architecture_is_as_recorded() -> None:
    found = {name: outcome(name).split(":")[0] for name in names()}
    assert found == {name: one.split(":")[0] for name, one in recorded().items()}
