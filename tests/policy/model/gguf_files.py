"""A small Llama as a GGUF file, made on the spot: quantised weights, a BPE, a chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from transformers.convert_slow_tokenizer import bytes_to_unicode

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
HIDDEN, LAYERS, HEADS, KEY_HEADS, FEED = 64, 2, 4, 2, 96


def write_gguf(
    path: Path, *, seed: int = 0, architecture: str = "llama", without: str = ""
) -> list[str]:
    """Write the file; its numbers follow from `seed`. Returns the names of its tensors.

    The tensor called `without` is omitted.
    """
    characters = bytes_to_unicode()
    tokens = [*SPECIALS, *characters.values(), characters[ord("t")] + characters[ord("h")]]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("small")
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    kinds = [gguf.TokenType.CONTROL] * len(SPECIALS)
    writer.add_token_types([*kinds, *[gguf.TokenType.NORMAL] * (len(tokens) - len(SPECIALS))])
    writer.add_token_merges([f"{characters[ord('t')]} {characters[ord('h')]}"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    names = _add_weights(writer, len(tokens), np.random.default_rng(seed), without)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return names


def _add_weights(
    writer: gguf.GGUFWriter, vocab: int, rng: np.random.Generator, without: str
) -> list[str]:
    names: list[str] = []

    def add(name: str, values: Any, kind: gguf.GGMLQuantizationType | None = None) -> None:
        if name != without:
            names.append(name)
            writer.add_tensor(name, values, raw_dtype=kind)

    def matrix(name: str, rows: int, columns: int) -> None:
        values = rng.normal(0, 0.2, (rows, columns)).astype(np.float32)
        kind = gguf.GGMLQuantizationType.Q8_0
        add(name, gguf.quants.quantize(values, kind), kind)

    def norm(name: str) -> None:
        add(name, rng.normal(1, 0.1, HIDDEN).astype(np.float32))

    keys = HIDDEN * KEY_HEADS // HEADS
    matrix("token_embd.weight", vocab, HIDDEN)
    norm("output_norm.weight")
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        norm(f"{block}.attn_norm.weight")
        norm(f"{block}.ffn_norm.weight")
        for name, rows, columns in [
            ("attn_q", HIDDEN, HIDDEN),
            ("attn_k", keys, HIDDEN),
            ("attn_v", keys, HIDDEN),
            ("attn_output", HIDDEN, HIDDEN),
            ("ffn_gate", FEED, HIDDEN),
            ("ffn_up", FEED, HIDDEN),
            ("ffn_down", HIDDEN, FEED),
        ]:
            matrix(f"{block}.{name}.weight", rows, columns)
    return names
