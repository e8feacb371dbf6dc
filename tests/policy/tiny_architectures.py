"""A tiny random model of each causal architecture that the installed transformers has.

``python -m tests.policy.tiny_architectures`` plays every one through `life`, which takes minutes,
and writes `RECORDED`, the source of the table in docs/models.md.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from shoal_base.visible import first_line
from shoal_policy.generation.self_check import check_answers, differences
from shoal_policy.model.loading import ModelError, Policy, wrap_policy
from shoal_policy.model.lora import add_adapter, merge_adapter
from shoal_policy.update.grpo import GrpoConfig, TrainGroup, make_optimizer, update
from tests.policy import tiny_models

RIGHT: Final = 1e-3
"""Largest difference, in nats a token and in logits, of a model that is right."""

RECORDED: Final = Path(__file__).with_name("architectures.txt")
"""A line for each architecture: its name and its outcome."""

_MOST_WEIGHTS: Final = 3_000_000

_COMMON: Final[dict[str, Any]] = {
    "vocab_size": tiny_models.VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 96,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_OTHER_NAMES: Final[dict[str, Any]] = {
    **dict.fromkeys(("n_embd", "d_model", "attention_hidden_size", "embedding_size"), 32),
    **dict.fromkeys(("n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers"), 2),
    **dict.fromkeys(("n_head", "n_heads", "num_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("n_inner", "ffn_dim", "ffn_hidden_size", "decoder_ffn_dim", "hidden_dim"), 48),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "moe_k"), 2),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 16),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace"), 1),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"), 8),
    **dict.fromkeys(("v_head_dim", "kv_channels", "state_size", "linear_key_head_dim"), 8),
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "n_positions": 96,
    "word_embed_proj_dim": 32,
    "multi_query_group_num": 2,
    "rotary_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 8,
}
_SSM: Final = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 8}
_ALL_OF: Final[dict[str, dict[str, Any]]] = {
    "bamba": {**_SSM, "num_hidden_layers": 4, "attn_layer_indices": [1, 3]},
    "falcon_h1": {**_SSM, "mamba_d_ssm": 64, "mamba_n_groups": 1},
    "gpt_neo": {
        "num_layers": 2,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 8,
        "max_position_embeddings": 96,
    },
    "gptj": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96, "rotary_dim": 4},
    "codegen": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 96, "rotary_dim": 4},
    "gemma4_text": {
        "num_hidden_layers": 4,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": tiny_models.VOCAB,
        "num_kv_shared_layers": 0,
        "global_head_dim": 16,
    },
    "granitemoehybrid": {
        **_SSM,
        "num_hidden_layers": 4,
        "layer_types": ["mamba", "attention"] * 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 32,
    },
    "jamba": {
        "num_hidden_layers": 4,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "num_experts": 4,
        "mamba_d_state": 8,
        "use_mamba_kernels": False,
    },
    "lfm2": {
        "num_hidden_layers": 4,
        "layer_types": ["conv", "full_attention"] * 2,
        "block_multiple_of": 8,
    },
    "llama4_text": {
        "num_hidden_layers": 4,
        "num_local_experts": 4,
        "intermediate_size_mlp": 48,
        "attention_chunk_size": 16,
        "num_experts_per_tok": 1,
    },
    "falcon_mamba": {"state_size": 8},
    "mamba": {"state_size": 8},
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 1, "chunk_size": 8},
    "mixtral": {"num_local_experts": 4},
    "nemotron_h": {
        "num_hidden_layers": 4,
        "hybrid_override_pattern": "M*M-",
        "mamba_num_heads": 8,
        "mamba_head_dim": 8,
        "ssm_state_size": 8,
        "n_groups": 1,
        "chunk_size": 8,
    },
    "qwen3_5_text": {
        "num_hidden_layers": 4,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
    },
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "qwen3_next": {
        "num_hidden_layers": 4,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
    },
    "recurrent_gemma": {
        "num_hidden_layers": 3,
        "lru_width": 32,
        "attention_window_size": 16,
        "block_types": ["recurrent", "recurrent", "attention"],
    },
}
"""Extra sizes of architectures that need more than the common ones."""


class TooLargeError(Exception):
    """No tiny configuration of an architecture is known."""


def names() -> list[str]:
    """Return the causal architectures of the installed transformers."""
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def tiny(name: str) -> Any:
    """Return a random model. Raises TooLargeError, or what its configuration raises."""
    torch.manual_seed(0)
    config = _config(name)
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config)
    if sum(weight.numel() for weight in empty.parameters()) > _MOST_WEIGHTS:
        raise TooLargeError("its default configuration is large, and no tiny one is known")
    made = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for weight in made.parameters():
            if weight.ndim > 1:
                weight.mul_(3)  # sharp enough that a wrong number shows
    return made


def _config(name: str) -> Any:
    if name in _ALL_OF:
        return AutoConfig.for_model(name, **{**_COMMON, **_ALL_OF[name]})
    usual = AutoConfig.for_model(name)
    known = set(usual.to_dict()) | set(usual.attribute_map)
    sizes = {key: value for key, value in {**_COMMON, **_OTHER_NAMES}.items() if key in known}
    if "kv_lora_rank" in known:  # attention through a latent vector has a key for each query
        sizes["num_key_value_heads"] = _COMMON["num_attention_heads"]
        sizes.pop("head_dim", None)
    kinds = getattr(usual, "layer_types", None)
    if kinds and "num_hidden_layers" in sizes:
        sizes["layer_types"] = (sorted(set(kinds)) * 2)[: max(2, len(set(kinds)))]
        sizes["num_hidden_layers"] = len(sizes["layer_types"])
    return AutoConfig.for_model(name, **sizes)


def policy(name: str) -> Policy:
    """Return a policy around `tiny`. Raises ModelError: refused when it is loaded."""
    model = tiny(name)
    try:
        made = wrap_policy(model, tiny_models.tokenizer(), name=name)
    except ModelError:
        raise
    except Exception as error:  # as `load_policy` has it
        raise ModelError(f"cannot use model {name!r}: {first_line(error)}") from error
    check_answers(made)
    return made


def life(name: str) -> float:
    """Play a model through everything; return the largest difference that was found.

    Answers of unequal prompts against full forward passes, an update, saved and reloaded in plain
    transformers; then the same with adapters, merged into the saved weights.

    Raises:
        ModelError: refused when it is loaded, or when adapters are put in.
    """
    found = []
    for rank in (0, 4):
        made = policy(name)
        if rank:
            made = add_adapter(made, rank, seed=0)
            check_answers(made)
        by = differences(made)
        before = {key: value.clone() for key, value in made.model.state_dict().items()}
        group = TrainGroup(
            prompt_ids=[5, 6, 7],
            completions=[[8, 9], [10, 11, 2]],
            advantages=[1.0, -1.0],
            external=False,
        )
        update(made, make_optimizer(made, lr=1e-2), [group], GrpoConfig())
        after = made.model.state_dict()
        assert any(not torch.equal(before[key], after[key]) for key in before), "nothing moved"
        found += [by.answering, by.training, _reloaded_difference(made)]
    return max(found)


def _reloaded_difference(made: Policy) -> float:
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        expected = made.model(input_ids=ids, use_cache=False).logits
        merge_adapter(made).save_pretrained(folder)
        again = AutoModelForCausalLM.from_pretrained(folder).eval()
        return float((again(input_ids=ids, use_cache=False).logits - expected).abs().max())


def outcome(name: str) -> str:
    """Return `right`, or why not, in one line."""
    try:
        tiny(name)
    except TooLargeError as error:
        return f"not tried: {error}"
    except Exception as error:  # noqa: BLE001 - a configuration refuses the common sizes as it likes
        return f"not tried: its tiny configuration fails ({first_line(error)})"
    try:
        by = life(name)
    except ModelError as error:
        return f"refused: {error}"
    except Exception as error:  # noqa: BLE001 - a fault to be found
        return f"failed: {type(error).__name__}: {first_line(error)}"
    return "right" if by <= RIGHT else f"wrong: by {by:.1e}"


def main() -> None:
    """Write the record."""
    warnings.filterwarnings("ignore")
    lines = []
    for name in names():
        lines.append(f"{name}: {outcome(name)}")
        print(lines[-1], flush=True)
    RECORDED.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
