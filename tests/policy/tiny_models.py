"""Small random models of several architectures, with a character tokenizer, made on the spot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from shoal_policy.generation.local import generate
from shoal_policy.model.loading import ModelError, Policy, wrap_policy
from shoal_policy.model.lora import add_adapter
from shoal_policy.rollouts import Answer
from shoal_wire.types import SamplingParams

torch.set_num_threads(1)

CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789 .,?!+-*/=()<>_\n:"
SPECIALS = ["<pad>", "<bos>", "<eos>", "<unk>"]
VOCAB = len(CHARACTERS) + len(SPECIALS) + 1
ARCHITECTURES = ("qwen2", "llama", "gpt2")


def tokenizer(*, answer_token: bool = True, template: str | None = None) -> PreTrainedTokenizerFast:
    """One token a character; in the embedded model's prompt format, a chat's, or none."""
    has_answer_token = answer_token and template is None
    words = [*SPECIALS, "<ans>" if has_answer_token else "<x>", *CHARACTERS]
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = Split(Regex("[\\s\\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([AddedToken(word, special=True) for word in words[:5]])
    return wrapped(backend, chat_template=template)


def wrapped(backend: Tokenizer, **more: Any) -> PreTrainedTokenizerFast:
    """A tokenizer as transformers has it."""
    names = {f"{word[1:-1]}_token": word for word in SPECIALS}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names, **more)


def model(
    architecture: str, *, seed: int = 0, positions: int = 96, vocab: int = VOCAB, **changes: Any
) -> Any:
    """A random model, sharp enough that its choices are no ties; `changes` are of its config."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 48,
        "max_position_embeddings": positions,
        "tie_word_embeddings": architecture == "qwen2",
    }
    if architecture == "gpt2":
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": positions}
    common = {"vocab_size": vocab, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = AutoConfig.for_model(architecture, **{**common, **sizes, **changes})
    made = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for weight in made.parameters():
            # Norms and biases too: as initialised, they would hide a missing one.
            noise = torch.randn_like(weight) * 0.2
            weight.copy_(noise if weight.ndim > 1 else weight + noise)
    return made.eval()


def policy(
    architecture: str = "qwen2",
    *,
    answer_token: bool = True,
    template: str | None = None,
    **options: Any,
) -> Policy:
    """A policy around `model` and `tokenizer`."""
    words = tokenizer(answer_token=answer_token, template=template)
    return wrap_policy(model(architecture, **options), words, name=architecture)


def save(folder: Path, made: Any = None, words: Any = None) -> str:
    """Write a model and its tokenizer, those of `policy` unless given, as a folder that loads."""
    (made or model("qwen2")).save_pretrained(folder)
    (words or tokenizer()).save_pretrained(folder)
    return str(folder)


def with_adapter(policy: Policy, *, std: float = 0.2) -> Policy:
    """The policy with an adapter that does something: a fresh one does nothing."""
    pytest.importorskip("peft")
    policy = add_adapter(policy, 2, seed=3)
    torch.manual_seed(5)
    for weight in policy.model.parameters():
        if weight.requires_grad:
            torch.nn.init.normal_(weight, std=std)
    return policy


@contextmanager
def refused(*message: str, error: type[Exception] = ModelError) -> Iterator[None]:
    """Expect the work within to be refused in one line, which says these things."""
    with pytest.raises(error) as caught:
        yield
    line = str(caught.value)
    assert all(one in line for one in message), line
    assert "\n" not in line


def sampling(max_new_tokens: int = 6, **changes: Any) -> SamplingParams:
    """How to sample from the policy's own distribution, unless `changes` say otherwise."""
    return SamplingParams(
        **{"temperature": 1.0, "top_p": 1.0, "top_k": 0, **changes}, max_new_tokens=max_new_tokens
    )


def draw(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    *,
    num: int = 3,
    params: SamplingParams,
    seed: int = 3,
    **options: Any,
) -> list[list[Answer]]:
    """Return answers to each prompt."""
    generator = torch.Generator().manual_seed(seed)
    return generate(
        policy, prompts, num_completions=num, params=params, generator=generator, **options
    )


def assert_same_answers(
    found: Iterable[Sequence[Answer]],
    expected: Iterable[Sequence[Answer]],
    tolerance: float = 2e-5,
) -> None:
    """The same tokens, and the same log-probabilities but for the order of additions."""
    for rows, others in zip(found, expected, strict=True):
        assert [row.ids for row in rows] == [row.ids for row in others]
        for row, other in zip(rows, others, strict=True):
            assert row.logprobs == pytest.approx(other.logprobs, abs=tolerance)
