"""Settings of the trainer: the model, a round, the update, what is kept and shown."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import ValidationInfo, field_validator

from shoal_base.ranges import Range
from shoal_settings.key import auto_or_number, checked, key, of_trainers
from shoal_settings.node_settings import NodeSettings, addresses_of_peers
from shoal_settings.strategy import describe_words, strategy_words

MAX_SHOTS: Final = 64  # examples that fit a prompt of some thousand tokens; a guess
OVERSAMPLE: Final = 8
"""External groups that a trainer looks at, at most, for each of a round's I + J places. A guess."""
API_KEY_VARIABLE: Final = "OPENAI_API_KEY"
"""Environment variable that holds the API key of `base_url`; unset sends none."""


DEVICES: Final = ("auto", "cpu", "cuda", "mps", "xpu", "meta")
"""Torch's devices that `device` may name. `meta` holds no numbers and is refused by the trainer."""


def device_named(value: str) -> str:
    """Return a device's name as it is. Raises ValueError if it is none of torch's."""
    name, colon, number = value.partition(":")
    numbered = not colon or (name != "auto" and number.isascii() and number.isdigit())
    if name not in DEVICES or not numbered:
        raise ValueError("must be auto, cpu, cuda (or one card: cuda:0), mps or xpu")
    return value


def _of_a_server(value: str) -> None:
    try:
        parts = urlsplit(value)
        is_right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets without an end, a port that is no number
        is_right = False
    if not is_right or re.search(r"\s", parts.netloc):
        raise ValueError("must begin with http:// or https:// and a host")


def _a_judge(value: str) -> None:
    if value != "none":
        addresses_of_peers((value,))


class TrainerSettings(NodeSettings):
    """Settings that the trainer process reads in addition to its node's."""

    role: Literal["train", "generate", "observe"] = of_trainers(
        "train",
        "What the node does: train (generate, share and train), generate (generate and share, with "
        "`--generator openai`, and without torch) or observe (run no trainer: store and forward "
        "groups, and serve a trainer that is started by hand).",
        instead={
            "trainer": "What it does: train, or generate (generate and share, with `--generator "
            "openai`, and without torch); observe is for a node without a trainer.",
            "swarm": "What each node does: train, or generate (generate and share, with "
            "`--generator openai`, and without torch); observe is for a node without a trainer.",
        },
    )
    keep_running: bool = key(
        False, "node", "Keep the node up, sharing and relaying, after the trainer's last round."
    )
    model: str = of_trainers(
        "tiny",
        "Causal language model: a Hugging Face hub name, a folder, a GGUF file, `smollm2` (from "
        "the extra of that name), or the embedded `tiny`, `tiny-sparse` or `tiny-games` (the "
        "default with `--tasks games-1`).",
    )
    shots: Annotated[str, auto_or_number(MAX_SHOTS)] = of_trainers(
        "auto",
        "Worked examples before each question: a number, or auto (tried at the start, for each "
        "task family, whether they give signal; none for an embedded model).",
    )
    prompt: Literal["auto", "chat", "plain"] = of_trainers(
        "auto",
        "How a model is asked: chat (through its chat template), plain (question, line break, "
        "`Answer:`; also for a base model with a template) or auto (chat if it has a template).",
    )
    device: Annotated[str, checked(device_named)] = of_trainers(
        "auto", "Torch device: auto, cpu, cuda, mps."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = of_trainers(
        "auto",
        "Type of the weights: auto (float32, computing in bfloat16 where the GPU can), float32, "
        "bfloat16 or float16 (to export, not to train).",
    )
    lora_rank: Annotated[int, Range("", 0, 1024)] = of_trainers(
        0,
        "Train LoRA adapters of this rank and freeze the model; 0 trains all weights.",
    )
    generator: Literal["self", "vllm", "openai"] = of_trainers(
        "self",
        "Who answers the questions: self (the model in training), vllm (a vLLM server at "
        "`base_url`, which is given the weights as they change) or openai (a server that speaks "
        "OpenAI's protocol, with weights of its own).",
    )
    base_url: Annotated[str, checked(_of_a_server)] = of_trainers(
        "http://127.0.0.1:8000/v1",
        "Address of the server that answers; /v1 at its end may be missing.",
    )
    remote_model: str = of_trainers("auto", "The server's name of its model; auto is `model`.")
    concurrency: Annotated[int, Range("requests", 1, 256)] = of_trainers(
        8, "Requests to the server at the same time."
    )
    threads: Annotated[int, Range("threads", 0, 1024)] = of_trainers(
        1, "CPU threads of the trainer; 0 leaves it to torch."
    )
    local: Annotated[int, Range("questions", 0, 4096)] = of_trainers(
        4, "I: questions a round that a node answers, shares and trains on."
    )
    questions: Annotated[int, Range("questions", 0, 4096)] = of_trainers(
        0,
        "Questions a round that a node answers and shares; 0 is as many as `local`. With more, "
        "it trains on own groups whose rewards differ, at most `local`.",
    )
    external: Annotated[int, Range("groups", 0, 4096)] = of_trainers(
        8,
        "J: most groups of other nodes in a round; they cost an update, but no answers.",
    )
    strategy: Annotated[str, checked(strategy_words)] = of_trainers(
        "positive+balance", f"How groups of other nodes are chosen: {describe_words()}"
    )
    completions: Annotated[int, Range("completions", 2, 256)] = of_trainers(
        8, "L: completions a question."
    )
    rounds: Annotated[int, Range("rounds", 0, 10**9)] = of_trainers(
        0, "Rounds in all, then a clean exit; 0 never ends."
    )
    seed: Annotated[int, Range("", 0, (1 << 31) - 1)] = of_trainers(
        0,
        "Seed of tasks and sampling; 0 derives one from the node's identity.",
        instead={
            "swarm": "Seed of tasks and sampling, to which each node adds its number; 0 derives "
            "each node's from its identity."
        },
    )
    learning_rate: Annotated[float, Range("", 0, 1, is_open=True)] = of_trainers(
        4e-4,
        "AdamW's learning rate. If it is not set, a model over 80 MB gets 1e-5 and its adapters "
        "1e-4.",
    )
    temperature: Annotated[float, Range("", 0, 100, is_open=True)] = of_trainers(
        1.0, "Sampling temperature."
    )
    top_p: Annotated[float, Range("", 0, 1, is_open=True)] = of_trainers(
        1.0, "Nucleus sampling mass."
    )
    max_new_tokens: Annotated[int, Range("tokens", 1, 1_000_000)] = of_trainers(
        12, "Most tokens a completion has."
    )
    epsilon_low: Annotated[float, Range("", 0, 1)] = of_trainers(0.2, "Lower clip bound of GRPO.")
    epsilon_high: Annotated[float, Range("", 0, 100)] = of_trainers(
        0.28, "Upper clip bound of GRPO."
    )
    loss_type: Literal["grpo", "dr_grpo", "dapo"] = of_trainers(
        "grpo",
        "How token losses are averaged: grpo (by completion), dr_grpo (by token limit, advantages "
        "not scaled) or dapo (by token).",
    )
    kl_beta: Annotated[float, Range("", 0, 1000)] = of_trainers(
        0.0,
        "Weight of a KL term to the policy that training started from; above 0 a second copy of "
        "the model is held.",
    )
    epochs: Annotated[int, Range("passes", 1, 1000)] = of_trainers(
        1, "Passes over a round's groups; clipping acts from the second on."
    )
    minibatches: Annotated[int, Range("steps", 1, 1000)] = of_trainers(
        2, "Optimiser steps in each pass over a round's groups."
    )
    token_budget: Annotated[int, Range("tokens", 64, 1 << 30)] = of_trainers(
        8192, "Tokens a micro-batch may hold, padding included."
    )
    gradient_checkpointing: bool = of_trainers(
        False,
        "Compute each layer again in the backward pass instead of keeping it: slower, less memory.",
    )
    round_seconds: Annotated[float, Range("s", 0, 86_400)] = of_trainers(
        0.0,
        "Shortest time of a round, in seconds: a faster trainer waits. 0 is no wait.",
    )
    resume: bool = of_trainers(
        True,
        "Continue from the newest good checkpoint, if there is one; off: what an earlier run left "
        "moves to earlier-1, earlier-2 … in the data directory.",
    )
    checkpoint_seconds: Annotated[float, Range("s", 0, 86_400)] = of_trainers(
        10.0,
        "Seconds between checkpoints, at least 20 times as many as the last one took; 0 writes one "
        "after every round.",
    )
    eval_every: Annotated[int, Range("rounds", -1, 10**9)] = of_trainers(
        -1,
        "Rounds between held-out evaluations; 0 never, "
        "-1 every 25 for an embedded model, every 50 for a large one, never for another.",
    )
    eval_per_family: Annotated[int, Range("questions", 1, 1 << 16)] = of_trainers(
        8, "Held-out questions of each task family."
    )
    judge: Annotated[str, checked(_a_judge)] = of_trainers(
        "none",
        "Multiaddress of a judge, ending in /p2p/ID, which scores one answer every ten "
        "rounds; none uses no judge.",
    )
    alone: bool = key(
        False, "trainer", "Train with no node: tasks of the preset, nothing shared or sampled."
    )

    @field_validator("external")
    @classmethod
    def _rounds_have_something(cls, value: int, info: ValidationInfo) -> int:
        """Refuse rounds that are empty; `local` and `questions` are checked before."""
        own = info.data.get("local", 1)
        if info.data.get("role") == "generate":
            own = own or info.data.get("questions", 1)
        if not value and not own:
            raise ValueError("local and external are both 0, so that a round would be empty")
        return value
