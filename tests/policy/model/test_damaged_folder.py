"""A model's folder with a word of its files changed: it loads and answers, or is one line."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_policy.model.loading import ModelError, check_model, load_policy
from shoal_policy.model.prompting import encode_prompt
from tests.policy import tiny_models

ODD = st.sampled_from(
    [None, -1, 0, 1, 3, 1 << 62, 1e308, True, "x", "", "../../x", [], {}, [1, 2], {"a": 1}]
)
FILES = ["config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(tiny_models.save(tmp_path_factory.mktemp("model")))


def damaged(value: Any, data: st.DataObject) -> Any:
    """The same, with one value in it, at any depth, another or not there."""
    deeper = value and isinstance(value, dict | list) and data.draw(st.integers(0, 3))
    if not deeper:
        return data.draw(ODD)
    value = value.copy()
    key = data.draw(
        st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value)))
    )
    if data.draw(st.integers(0, 5)):
        value[key] = damaged(value[key], data)
    else:
        del value[key]
    return value


@settings(max_examples=60)
@given(name=st.sampled_from(FILES), data=st.data())
def test_it_answers_or_is_one_line(folder: Path, name: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as parent:
        copied = shutil.copytree(folder, Path(parent) / "model")
        content = damaged(json.loads((copied / name).read_text()), data)
        (copied / name).write_text(json.dumps(content))
        try:
            check_model(str(copied))
            policy = load_policy(str(copied), device="cpu")
        except ModelError as error:
            assert "\n" not in str(error)
            return
        assert all(0 <= one < policy.model.config.vocab_size for one in policy.eos_ids)
        prompts = [encode_prompt(policy, "1 + 1")]
        if len(prompts[0]) >= policy.max_positions:
            return  # refused where it is asked its first question
        with torch.random.fork_rng():
            made = tiny_models.draw(policy, prompts, num=2, params=tiny_models.sampling(2))
        assert [len(of_prompt) for of_prompt in made] == [2]
