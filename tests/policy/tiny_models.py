"""Small random models of several architectures, with a character tokenizer, made on the spot."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from shoal_policy.model.loading import Policy, wrap_policy

torch.set_num_threads(1)

CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789 .,?!+-*/=()<>_\n:"
SPECIALS = ["<pad>", "<bos>", "<eos>", "<unk>"]
VOCAB = len(CHARACTERS) + len(SPECIALS) + 1
ARCHITECTURES = ("qwen2", "llama", "gpt2")


def tokenizer(*, answer_token: bool = True) -> PreTrainedTokenizerFast:
    """One token a character; with `answer_token`, the embedded model's prompt format."""
    words = [*SPECIALS, "<ans>" if answer_token else "<x>", *CHARACTERS]
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = Split(Regex("[\\s\\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([AddedToken(word, special=True) for word in words[:5]])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
    )


def model(architecture: str, *, seed: int = 0, positions: int = 96, vocab: int = VOCAB) -> Any:
    """A random model, sharp enough that its choices are no ties."""
    torch.manual_seed(seed)
    common = {"vocab_size": vocab, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    if architecture == "gpt2":
        made = GPT2LMHeadModel(
            GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=positions, **common)
        )
    else:
        make, config = {
            "qwen2": (Qwen2ForCausalLM, Qwen2Config),
            "llama": (LlamaForCausalLM, LlamaConfig),
        }[architecture]
        made = make(
            config(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                intermediate_size=48,
                max_position_embeddings=positions,
                tie_word_embeddings=architecture == "qwen2",
                **common,
            )
        )
    with torch.no_grad():
        for weight in made.parameters():
            # Norms and biases too: as initialised, they would hide it when one is left out.
            noise = torch.randn_like(weight) * 0.2
            weight.copy_(noise if weight.ndim > 1 else weight + noise)
    return made.eval()


def policy(architecture: str = "qwen2", **options: int) -> Policy:
    """A policy around `model` and `tokenizer`."""
    return wrap_policy(model(architecture, **options), tokenizer(), name=architecture)
