"""Loads a causal language model and its tokenizer, with the facts that training needs about them.

Anything that ``AutoModelForCausalLM`` loads is supported: a hub name, a folder, a GGUF file, or
``tiny``, the model in this package. Nothing outside this file depends on an architecture: two facts
that differ are *probed* on four tokens when a model is loaded (whether it is causal, and whether
its logits are exactly last hidden states times output matrix).
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import torch
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
)
from transformers.utils.logging import disable_progress_bar

from shoal_base.files import expanded
from shoal_base.visible import first_line
from shoal_policy.model.cpu_bfloat16 import cpu_compute_dtype
from shoal_policy.model.end_tokens import declared_end_tokens, turn_end
from shoal_policy.model.examples import NO_EXAMPLES, FewShotExamples
from shoal_policy.model.gguf import GgufError, converted_folder, describe_missing_weights, gguf_file
from shoal_policy.model.logit_form import LogitForm, form_of
from shoal_policy.model.memory import format_gib, free_bytes, training_bytes
from shoal_policy.tiny import embedded_folder
from shoal_settings.early import quantised, refusal_of_model
from shoal_wire.types import Digest

ANSWER_TOKEN = "<ans>"
"""The token after a question in the embedded model's format."""

# Its progress bars would overwrite the trainer's output at every checkpoint.
disable_progress_bar()

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class ModelError(Exception):
    """A model cannot be loaded or used. The text is one line and names the model."""


class PromptFormat(StrEnum):
    """The form in which a question becomes a prompt; see `shoal_policy.model.prompting`."""

    TINY = "tiny"
    """``<bos>question<ans>``: the embedded model."""
    CHAT = "chat"
    """The tokenizer's own chat template."""
    PLAIN = "plain"
    """Question, line break, ``Answer:``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTokenizer:
    """A model's tokenizer with its prompt format and end tokens."""

    tokenizer: Any
    prompt_format: PromptFormat
    eos_ids: frozenset[int]
    """All tokens that end a completion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(PromptTokenizer):
    """A model with everything that generation and training need. The weights change in place."""

    model: Any
    """A ``transformers`` causal LM, always in eval mode: dropout would add noise to the ratio."""
    name: str
    """Name as the user gave it: hub name, folder, or ``tiny``."""
    tokenizer_digest: Digest
    """16 bytes: truncated SHA-256 of the vocabulary, token and id, in the order of ids."""
    device: torch.device
    eos_id: int
    """The end token appended to a re-encoded completion that stopped by itself: in a chat, the one
    that its template puts after an answer."""
    pad_id: int
    max_positions: int
    """Maximum sequence length, prompt and completion together, in tokens."""
    logit_form: LogitForm | None
    """Relation of logits to hidden states times the output matrix; None if unknown."""
    forward_names: frozenset[str]
    """Argument names of the model's ``forward``."""
    autocast_dtype: torch.dtype | None = None
    """Compute in this type with float32 weights; None computes in the weights' type."""
    adapter: Any = None
    """The peft model around `model` if it has LoRA adapters; then only these are trained."""
    base_fingerprint: str = ""
    """Fingerprint of the base weights under an adapter, taken before they were sharded."""
    few_shot: FewShotExamples = NO_EXAMPLES
    """Worked examples before its questions."""
    is_sharded: bool = False
    """True if its weights are sharded: they are complete only inside the model's forward pass."""
    gather: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Context in which all weights are complete in any call; used around generation."""
    weights: Callable[[], dict[str, torch.Tensor] | None] = lambda: None
    """Gathers the state dict, or only the adapters', on the host; None if not sharded."""

    @property
    def linear_head(self) -> bool:
        """Return whether logits are exactly hidden states times output matrix (no scale or cap)."""
        return self.logit_form is not None and self.logit_form.is_plain

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context for every forward pass of this policy."""
        if self.autocast_dtype is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast_dtype)


def load_tokenizer(model: str, *, prompt: str = "auto") -> PromptTokenizer:
    """Load only a model's tokenizer, no weights. Raises ModelError."""
    source, local = _resolve(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source, local_files_only=local, trust_remote_code=False
        )
    except Exception as error:  # as in load_policy
        raise _load_error(model, source, local=local, error=error) from error
    ends = frozenset([] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id])
    requested = _prompt_format(tokenizer, prompt, model)
    return PromptTokenizer(tokenizer=tokenizer, prompt_format=requested, eos_ids=ends)


def load_policy(
    model: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    prompt: str = "auto",
    seed: int = 0,
    name: str | None = None,
) -> Policy:
    """Load a policy from a hub name, folder, GGUF file or the name of an embedded model.

    `device` is ``auto`` (CUDA if available) or a torch device name. `dtype` is the weights' type;
    ``auto`` keeps them in float32, since small learning rates vanish in bfloat16, and computes in
    bfloat16 where the GPU supports it, or where a CPU is measured to gain. `prompt` is ``chat``,
    ``plain``, or ``auto`` (chat if there is a template). `seed` seeds torch's global generator.
    `name` replaces `model` as the policy's name, for a checkpoint folder. Blocks for a download, if
    any. Raises ModelError.
    """
    torch.manual_seed(seed)
    where, weights_dtype = parse_device(device), _pick_dtype(dtype)
    source, local = _resolve(model)
    _read_config(model, source, local=local)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source, local_files_only=local, trust_remote_code=False
        )
        loaded, info = AutoModelForCausalLM.from_pretrained(
            source,
            local_files_only=local,
            trust_remote_code=False,
            dtype=weights_dtype,
            output_loading_info=True,
        )
    except Exception as error:  # the loaders raise arbitrary errors for a damaged folder
        raise _load_error(model, source, local=local, error=error) from error
    if info["missing_keys"]:
        raise ModelError(f"cannot use model {model!r}: it {describe_missing_weights(info)}")
    autocast = compute_dtype(dtype, where)
    if dtype == "auto" and where.type == "cpu":
        autocast = cpu_compute_dtype(loaded)
    try:
        tokenizer("1 + 1")
        return wrap_policy(
            loaded,
            tokenizer,
            name=name or model,
            device=where,
            autocast_dtype=autocast,
            prompt=prompt,
        )
    except ModelError:
        raise
    except Exception as error:  # an error that the loaders missed
        raise ModelError(f"cannot use model {model!r}: {first_line(error)}") from error


def check_device(device: str) -> None:
    """Raise ModelError unless this machine and this torch build can compute on a device."""
    where = parse_device(device)
    try:
        float(torch.zeros(1, device=where).sum())
    except Exception as error:  # each backend raises its own error
        if where.type == "cuda" and not torch.cuda.is_available():
            why = "no NVIDIA GPU" if torch.version.cuda else "a torch that was built without CUDA"
            raise ModelError(
                f"--device {device}: this machine has {why}; use --device cpu, "
                "or install what is missing"
            ) from error
        raise ModelError(f"cannot use --device {device}: {first_line(error)}") from error


def check_model(
    model: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    num_trained_copies: int | None = None,
    parts: int = 1,
    parts_here: int = 1,
) -> None:
    """Raise ModelError for everything that `load_policy` rejects without reading weights.

    With `num_trained_copies` (0, or 1 with a reference model) it also rejects a model that cannot
    be trained in the free memory. Sharded weights have `parts`, each on its own device;
    `parts_here` processes of this machine first load them completely on the host.
    """
    check_device(device)
    _pick_dtype(dtype)
    source, local = _resolve(model)
    config = _read_config(model, source, local=local)
    _check_causal(model, config)
    if getattr(config, "quantization_config", None):
        raise ModelError(quantised(model))
    if embedded_folder(model) is None:
        weights_dtype = _pick_dtype(dtype)
        # On the host, all processes of this machine share the memory.
        sharing = parts_here if parse_device(device).type == "cpu" else 1
        _check_memory(
            *(model, config, device, weights_dtype, num_trained_copies),
            parts=1 if num_trained_copies is None else parts,
            copies=sharing,
        )
        if parts > 1:
            _check_memory(model, config, "cpu", weights_dtype, None, copies=parts_here)


def _check_memory(
    model: str,
    config: Any,
    device: str,
    dtype: torch.dtype,
    num_trained_copies: int | None,
    *,
    parts: int = 1,
    copies: int = 1,
) -> None:
    """Raise ModelError if the weights, trained or not, need more memory than is free.

    Each process holds one of `parts`, and `copies` of them share the device's memory.
    """
    try:
        with torch.device("meta"):  # counts without allocating
            empty = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        num_weights = sum(weight.numel() for weight in empty.parameters())
    except Exception:  # noqa: BLE001 - loading the model reports the error
        return
    needed = num_weights * dtype.itemsize
    if num_trained_copies is not None:
        needed = training_bytes(
            num_weights, bytes_each=dtype.itemsize, num_copies=num_trained_copies
        )
    needed = -(-needed // parts) * copies
    free = free_bytes(device)
    if needed > free:
        where = ""
        if copies > 1:
            where = f" on this machine, for {copies} processes"
        elif parts > 1:
            where = f" on each of {parts} devices"
        raise ModelError(
            f"model {model!r} has {num_weights / 1e6:,.0f} million weights and needs at least "
            f"{format_gib(needed)}{where}, but only {format_gib(free)} are free: a smaller "
            "--model, --lora-rank 16 or --dtype bfloat16 need less"
        )


def wrap_policy(
    model: Any,
    tokenizer: Any,
    *,
    name: str,
    device: torch.device | str = "cpu",
    autocast_dtype: torch.dtype | None = None,
    prompt: str = "auto",
) -> Policy:
    """Return a Policy from a model and a tokenizer in memory. Raises ModelError."""
    device = torch.device(device)
    model = model.to(device).eval()
    config = model.config.get_text_config()
    if len(tokenizer.get_vocab()) <= len(tokenizer.all_special_ids):
        # Without tokenizer files transformers creates an empty one of the model's type.
        raise ModelError(f"cannot use model {name!r}: it has no tokenizer")
    if len(tokenizer) > config.vocab_size:
        raise ModelError(
            f"cannot use model {name!r}: its tokenizer has {len(tokenizer)} tokens, "
            f"the model only {config.vocab_size}"
        )
    prompt_format = _prompt_format(tokenizer, prompt, name)
    eos_id, eos_ids = _end_tokens(model, tokenizer, name, prompt_format)
    names = frozenset(inspect.signature(model.forward).parameters)
    form = _probe(model, name, device)
    positions = getattr(config, "max_position_embeddings", None)
    return Policy(
        model=model,
        tokenizer=tokenizer,
        name=name,
        tokenizer_digest=_tokenizer_digest(tokenizer),
        device=device,
        eos_ids=eos_ids,
        eos_id=eos_id,
        pad_id=eos_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
        prompt_format=prompt_format,
        max_positions=positions if positions and positions > 0 else sys.maxsize,
        logit_form=form,
        forward_names=names,
        autocast_dtype=autocast_dtype,
    )


def _resolve(model: str) -> tuple[str, bool]:
    """Return the folder or hub name to load from, and whether to stay offline."""
    embedded = embedded_folder(model)
    if embedded is not None:
        if not (embedded / "config.json").is_file():
            raise ModelError(f"the embedded model {model!r} is missing from this installation")
        return str(embedded), True
    if (why := refusal_of_model(model)) is not None:
        raise ModelError(why)
    if (folder := expanded(model)).is_dir():
        return str(folder), True
    try:
        if (file := gguf_file(model)) is not None:
            return str(converted_folder(model, file, partial(_check_convertible, model))), True
    except GgufError as error:
        raise ModelError(f"cannot load model {model!r}: {error}") from error
    return model, False


def _read_config(model: str, source: str, *, local: bool) -> Any:
    """Return a model's configuration; read first, since other loaders only warn."""
    try:
        return AutoConfig.from_pretrained(source, local_files_only=local, trust_remote_code=False)
    except Exception as error:  # as in load_policy
        raise _load_error(model, source, local=local, error=error) from error


def _load_error(model: str, source: str, *, local: bool, error: Exception) -> ModelError:
    if "trust_remote_code" in str(error) or _has_custom_code(source):
        return _custom_code_error(model)
    looked = "" if local else "no folder here has that name, and the hub's answer was: "
    return ModelError(f"cannot load model {model!r}: {looked}{first_line(error)}")


def _has_custom_code(source: str) -> bool:
    """Return whether a model has custom code and a type that transformers does not know."""
    try:
        # Files downloaded before the failure are in the cache.
        known, _ = PreTrainedConfig.get_config_dict(source, local_files_only=True)
        return bool(known.get("auto_map")) and known.get("model_type") not in CONFIG_MAPPING
    except Exception:  # noqa: BLE001 - the configuration itself is unreadable
        return False


def _custom_code_error(model: str) -> ModelError:
    return ModelError(
        f"cannot use model {model!r}: it needs custom Python code (auto_map in its "
        "configuration), which shoal does not run; use one whose model_type transformers knows"
    )


def _check_convertible(model: str, config: Any) -> None:
    """Raise ModelError for a file that is not a causal model, or too large for float32."""
    _check_causal(model, config)
    _check_memory(model, config, "cpu", torch.float32, None)


def _check_causal(model: str, config: Any) -> None:
    if type(config) not in AutoModelForCausalLM._model_mapping:
        if getattr(config, "auto_map", None):
            raise _custom_code_error(model)
        raise ModelError(f"cannot use model {model!r}: {config.model_type} is not a causal model")


def parse_device(device: str) -> torch.device:
    """Return the torch device of a setting. Raises ModelError."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"unknown device {device!r}: {first_line(error)}") from error


def _pick_dtype(dtype: str) -> torch.dtype:
    """Return the weights' dtype of a setting. Raises ModelError."""
    found = _DTYPES.get("float32" if dtype == "auto" else dtype)
    if found is None:
        raise ModelError(f"unknown dtype {dtype!r}: use auto, {', '.join(_DTYPES)}")
    return found


def compute_dtype(dtype: str, device: torch.device) -> torch.dtype | None:
    """Return the compute dtype for a setting on a device; None for the weights' own."""
    return autocast_dtype(device) if dtype == "auto" else None


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """Return the compute dtype for float32 weights on a device; None for their own."""
    # Emulated bfloat16, as on a V100 or T4, is slower than float32.
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    return None


def _end_tokens(
    model: Any, tokenizer: Any, name: str, prompt_format: PromptFormat
) -> tuple[int, frozenset[int]]:
    """Return the token that closes an answer, and all end tokens. Raises ModelError."""
    try:
        ids = declared_end_tokens(model, tokenizer)
    except ValueError as error:
        raise ModelError(f"cannot use model {name!r}: {error}") from None
    if not ids:
        raise ModelError(f"cannot use model {name!r}: it has no end-of-sequence token")
    eos_ids, closing = frozenset(ids), None
    if len(eos_ids) > 1 and prompt_format is PromptFormat.CHAT:
        closing = turn_end(tokenizer, eos_ids)
    return ids[0] if closing is None else closing, eos_ids


def _prompt_format(tokenizer: Any, requested: str, name: str) -> PromptFormat:
    """Return the configured prompt format, or the tokenizer's default. Raises ModelError."""
    if ANSWER_TOKEN in tokenizer.get_vocab():
        if requested != "auto":
            raise ModelError(f"model {name!r} has its own prompt format: omit --prompt")
        return PromptFormat.TINY
    if requested == "chat" and not tokenizer.chat_template:
        raise ModelError(
            f"model {name!r} has no chat template: omit --prompt, or use --prompt plain"
        )
    own = PromptFormat.CHAT if tokenizer.chat_template else PromptFormat.PLAIN
    return own if requested == "auto" else PromptFormat(requested)


def _tokenizer_digest(tokenizer: Any) -> Digest:
    by_id = sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0]))
    text = json.dumps(by_id, ensure_ascii=True, separators=(",", ":"))
    return Digest(hashlib.sha256(text.encode()).digest()[:16])


def _probe(model: Any, name: str, device: torch.device) -> LogitForm | None:
    """Check that the model is causal; return how its logits follow from its hidden states.

    Values alone cannot tell: small logits look the same with and without a soft cap.
    """
    last = model.config.get_text_config().vocab_size - 1
    ids = torch.tensor([[0, 1, last, 0], [0, 1, last, 1]], device=device)
    with torch.inference_mode():
        logits = model(input_ids=ids, use_cache=False).logits
        # The rows differ only in the last token, which a causal model cannot see before.
        if not torch.allclose(logits[0, :3], logits[1, :3], rtol=1e-3, atol=1e-4):
            raise ModelError(f"cannot use model {name!r}: it is not causal (it sees later tokens)")
        head = model.get_output_embeddings()
        if head is None or type(head) is not torch.nn.Linear or model.base_model is model:
            return None
        body = model.base_model(input_ids=ids, use_cache=False)
        hidden = getattr(body, "last_hidden_state", None)
        if hidden is None or hidden.shape[-1] != head.in_features:
            return None
        form = form_of(model.config.get_text_config())
        close = torch.allclose(form.apply(head(hidden)), logits, rtol=1e-3, atol=1e-4)
        return form if close else None
