"""Loads a causal language model and its tokenizer, and says what the trainer must know of them.

Whatever ``AutoModelForCausalLM`` loads will do: a hub name, a folder, a GGUF file, or ``tiny``, the
model that ships with this package. Nothing outside this file guesses about architectures:
two facts that differ between them are *probed* once, on four tokens, when a model is loaded
(is it causal, and are its logits nothing but its last hidden states times the output matrix).
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
from shoal_policy.model.examples import NO_SHOTS, Shots
from shoal_policy.model.gguf import GgufError, converted, gguf_file, lacks_weights
from shoal_policy.model.logit_form import LogitForm, form_of
from shoal_policy.model.memory import free_bytes, gibibytes, training_bytes
from shoal_policy.tiny import embedded_folder
from shoal_settings.early import quantised, refusal_of_model
from shoal_wire.types import Digest

ANSWER_TOKEN = "<ans>"
"""The token that ends a question in the embedded model's format."""

# Its bars would be drawn over the trainer's own output at every checkpoint.
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
class Reader:
    """A model's tokenizer with what prompts need to know of it."""

    tokenizer: Any
    prompt_format: PromptFormat
    eos_ids: frozenset[int]
    """Every token that ends a completion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(Reader):
    """A model with what generation and training need to know of it. The weights change in place."""

    model: Any
    """A ``transformers`` causal LM, always in eval mode: dropout would make the ratio noisy."""
    name: str
    """Name as the user gave it: hub name, folder, or ``tiny``."""
    tokenizer_digest: Digest
    """16 bytes: truncated SHA-256 of the vocabulary, token and id, in the order of ids."""
    device: torch.device
    eos_id: int
    """The one appended to a re-encoded completion that ended by itself."""
    pad_id: int
    max_positions: int
    """Longest sequence, prompt and completion together, in tokens."""
    logit_form: LogitForm | None
    """The form of what the model does to hidden states times its output matrix; None where that is
    unknown."""
    forward_names: frozenset[str]
    """Names of the arguments that the model's ``forward`` takes."""
    autocast_dtype: torch.dtype | None = None
    """Compute in this type while the weights stay float32; None computes in the weights' type."""
    adapter: Any = None
    """peft's view of `model` when LoRA adapters are in it: then only they are trained."""
    base_mark: str = ""
    """Fingerprint of the weights that an adapter was put into, taken while all were at hand."""
    shots: Shots = NO_SHOTS
    """Worked examples that stand before its questions."""
    in_root: bool = False
    """Its weights are dealt out over processes: all are at hand in the model's forward alone."""
    whole: Callable[[], AbstractContextManager[Any]] = nullcontext
    """The context in which all weights are at hand whatever is called: around generation."""
    weights: Callable[[], dict[str, torch.Tensor] | None] = lambda: None
    """Gathers the model's state, or its adapters' alone, on the host; None where the model has it
    whole."""

    @property
    def linear_head(self) -> bool:
        """Logits are exactly hidden states times the output matrix (no scale, no soft cap)."""
        return self.logit_form is not None and self.logit_form.is_plain

    def autocast(self) -> AbstractContextManager[Any]:
        """The context in which every forward pass of this policy runs."""
        if self.autocast_dtype is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast_dtype)


def load_reader(model: str, *, prompt: str = "auto") -> Reader:
    """Load a model's tokenizer and none of its weights. Raises ModelError."""
    source, local = _resolve(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source, local_files_only=local, trust_remote_code=False
        )
    except Exception as error:  # as in load_policy
        raise _unloadable(model, source, local=local, error=error) from error
    ends = frozenset([] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id])
    asked = _prompt_format(tokenizer, prompt, model)
    return Reader(tokenizer=tokenizer, prompt_format=asked, eos_ids=ends)


def load_policy(
    model: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    prompt: str = "auto",
    seed: int = 0,
    name: str | None = None,
) -> Policy:
    """Load a policy by hub name, folder, GGUF file or the name of one that ships.

    `device` is ``auto`` (CUDA when there is one) or a torch device name. `dtype` is the
    weights' type; ``auto`` keeps them in float32, because small learning rates vanish in
    bfloat16, and computes in bfloat16 where the accelerator can. `prompt` is
    ``chat``, ``plain``, or ``auto`` for chat where there is a template. `seed` seeds torch's global
    generator. `name` is what the policy calls itself when that is not `model`, as for a
    checkpoint's folder. Blocks for the download, if any. Raises ModelError.
    """
    torch.manual_seed(seed)
    where, weights_dtype = device_of(device), _pick_dtype(dtype)
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
    except Exception as error:  # a spoilt folder makes the loaders raise anything at all
        raise _unloadable(model, source, local=local, error=error) from error
    if info["missing_keys"]:
        raise ModelError(f"cannot use model {model!r}: it {lacks_weights(info)}")
    autocast = compute_dtype(dtype, where)
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
    except Exception as error:  # what the loaders let pass shows at the first use
        raise ModelError(f"cannot use model {model!r}: {first_line(error)}") from error


def check_device(device: str) -> None:
    """Raise ModelError unless this machine and this torch can compute on a device."""
    where = device_of(device)
    try:
        float(torch.zeros(1, device=where).sum())
    except Exception as error:  # each backend has its own way to say that it is not there
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
    """Raise ModelError for what `load_policy` would refuse without looking at any weight.

    With `num_trained_copies`, which is 0 unless a reference is held too, also for a model whose
    weights cannot all be trained in the memory that is free. Trained weights that are dealt out
    over processes have so many `parts`, each on a device of its own; `parts_here` processes of
    this machine load them whole onto the host before.
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
        # On the host, the processes of this machine share one memory.
        sharing = parts_here if device_of(device).type == "cpu" else 1
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
    """Raise ModelError where the weights, trained or not, need more than there is.

    Each process holds one of so many `parts`, and `copies` of them share the device's memory.
    """
    try:
        with torch.device("meta"):  # counts without a byte of them
            empty = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        num_weights = sum(weight.numel() for weight in empty.parameters())
    except Exception:  # noqa: BLE001 - whatever it is, the model's loading will say it
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
            f"{gibibytes(needed)}{where}, of which {gibibytes(free)} are free: a smaller --model, "
            "--lora-rank 16 or --dtype bfloat16 need less"
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
    """Make a Policy of a model and a tokenizer that are already in memory. Raises ModelError."""
    device = torch.device(device)
    model = model.to(device).eval()
    config = model.config.get_text_config()
    if len(tokenizer.get_vocab()) <= len(tokenizer.all_special_ids):
        # Without tokenizer files the loader makes an empty one of the model's kind.
        raise ModelError(f"cannot use model {name!r}: it has no tokenizer")
    if len(tokenizer) > config.vocab_size:
        raise ModelError(
            f"cannot use model {name!r}: its tokenizer has {len(tokenizer)} tokens, "
            f"the model only {config.vocab_size}"
        )
    eos_id, eos_ids = _end_tokens(model, tokenizer, name)
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
        prompt_format=_prompt_format(tokenizer, prompt, name),
        max_positions=positions if positions and positions > 0 else sys.maxsize,
        logit_form=form,
        forward_names=names,
        autocast_dtype=autocast_dtype,
    )


def _resolve(model: str) -> tuple[str, bool]:
    """The folder or hub name to load from, and whether it must not touch the network."""
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
            return str(converted(model, file, partial(_check_convertible, model))), True
    except GgufError as error:
        raise ModelError(f"cannot load model {model!r}: {error}") from error
    return model, False


def _read_config(model: str, source: str, *, local: bool) -> Any:
    """Return a model's configuration; read first, because other loaders warn where it refuses."""
    try:
        return AutoConfig.from_pretrained(source, local_files_only=local, trust_remote_code=False)
    except Exception as error:  # as in load_policy
        raise _unloadable(model, source, local=local, error=error) from error


def _unloadable(model: str, source: str, *, local: bool, error: Exception) -> ModelError:
    if "trust_remote_code" in str(error) or _is_of_its_own_kind(source):
        return _brings_code(model)
    looked = "" if local else "no folder here has that name, and the hub's answer was: "
    return ModelError(f"cannot load model {model!r}: {looked}{first_line(error)}")


def _is_of_its_own_kind(source: str) -> bool:
    """Return whether a model names code of its own and a kind that transformers does not know."""
    try:
        # What was downloaded before the failure lies in the cache.
        known, _ = PreTrainedConfig.get_config_dict(source, local_files_only=True)
        return bool(known.get("auto_map")) and known.get("model_type") not in CONFIG_MAPPING
    except Exception:  # noqa: BLE001 - a configuration that cannot be read is what failed
        return False


def _brings_code(model: str) -> ModelError:
    return ModelError(
        f"cannot use model {model!r}: it brings Python code of its own (auto_map in its "
        "configuration), which shoal does not run; take one whose model_type transformers knows"
    )


def _check_convertible(model: str, config: Any) -> None:
    """Raise ModelError for a file that is no causal model, or more than memory holds in float32."""
    _check_causal(model, config)
    _check_memory(model, config, "cpu", torch.float32, None)


def _check_causal(model: str, config: Any) -> None:
    if type(config) not in AutoModelForCausalLM._model_mapping:
        if getattr(config, "auto_map", None):
            raise _brings_code(model)
        raise ModelError(f"cannot use model {model!r}: {config.model_type} is no causal model")


def device_of(device: str) -> torch.device:
    """Return the device that a setting names. Raises ModelError."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"unknown device {device!r}: {first_line(error)}") from error


def _pick_dtype(dtype: str) -> torch.dtype:
    """The weights' type."""
    found = _DTYPES.get("float32" if dtype == "auto" else dtype)
    if found is None:
        raise ModelError(f"unknown dtype {dtype!r}: use auto, {', '.join(_DTYPES)}")
    return found


def compute_dtype(dtype: str, device: torch.device) -> torch.dtype | None:
    """Return the type that a setting's weights are computed in on a device; None for their own."""
    return autocast_dtype(device) if dtype == "auto" else None


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """Return the type that float32 weights are computed in on a device; None for their own."""
    # Emulated, as on a V100 or a T4, it is slower than float32.
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    return None


def _end_tokens(model: Any, tokenizer: Any, name: str) -> tuple[int, frozenset[int]]:
    generation = getattr(model, "generation_config", None)
    declared = getattr(generation, "eos_token_id", None)
    others = list(declared) if isinstance(declared, list | tuple) else [declared]
    vocab_size = model.config.get_text_config().vocab_size
    ids: list[int] = []
    for one in (tokenizer.eos_token_id, *others):
        if one is not None and type(one) is not int:
            raise ModelError(f"cannot use model {name!r}: its end token {one!r} is no number")
        # Some name one that they do not have, as -1, to say that nothing ends them.
        if one is not None and 0 <= one < vocab_size:
            ids.append(one)
    if not ids:
        raise ModelError(f"cannot use model {name!r}: it has no end-of-sequence token")
    return ids[0], frozenset(ids)


def _prompt_format(tokenizer: Any, asked: str, name: str) -> PromptFormat:
    """The form that is asked for, or the tokenizer's own; not every tokenizer has every form."""
    if ANSWER_TOKEN in tokenizer.get_vocab():
        if asked != "auto":
            raise ModelError(f"model {name!r} has a prompt of its own: leave --prompt out")
        return PromptFormat.TINY
    if asked == "chat" and not tokenizer.chat_template:
        raise ModelError(f"model {name!r} has no chat template: leave --prompt out, or plain")
    own = PromptFormat.CHAT if tokenizer.chat_template else PromptFormat.PLAIN
    return own if asked == "auto" else PromptFormat(asked)


def _tokenizer_digest(tokenizer: Any) -> Digest:
    by_id = sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0]))
    text = json.dumps(by_id, ensure_ascii=True, separators=(",", ":"))
    return Digest(hashlib.sha256(text.encode()).digest()[:16])


def _probe(model: Any, name: str, device: torch.device) -> LogitForm | None:
    """Check that the model is causal; return how its logits follow from its hidden states.

    The numbers alone do not tell: small logits look the same with a soft cap and without.
    """
    last = model.config.get_text_config().vocab_size - 1
    ids = torch.tensor([[0, 1, last, 0], [0, 1, last, 1]], device=device)
    with torch.inference_mode():
        logits = model(input_ids=ids, use_cache=False).logits
        # The rows differ in their last token only: a causal model cannot tell them apart before.
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
