"""Every setting of shoal, with its default, its bounds and the commands that read it.

One flat set of keys serves a TOML file, the environment (`SHOAL_` + the key in capitals) and
flags (`--` + the key with dashes). `docs/settings.md` lists them; a test compares the two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from shoal_wire.base58 import is_peer_id_text

Command = Literal["node", "bootstrap", "trainer", "swarm", "debug"]

DEFAULT_LISTEN = "/ip4/0.0.0.0/tcp/0"


def _key(default: Any, commands: str, description: str, **bounds: Any) -> Any:
    return Field(
        default,
        description=description,
        json_schema_extra={"commands": list(commands.split())},
        **bounds,
    )


class Settings(BaseModel):
    """All settings. Frozen; unknown keys are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    data_dir: Path = _key(
        Path(".shoal/node"),
        "node bootstrap trainer swarm debug",
        "Folder for identity, buffer, checkpoints and socket. "
        "Nodes on one machine differ only in it.",
    )
    # Network
    listen: Annotated[tuple[str, ...], Field(min_length=1)] = _key(
        (DEFAULT_LISTEN,),
        "node bootstrap",
        "Multiaddress to listen on; repeatable. Port 0 picks a free port.",
    )
    bootstrap: tuple[str, ...] = _key(
        (), "node bootstrap", "Multiaddress of a bootstrap peer, ending in /p2p/ID; repeatable."
    )
    mdns: bool = _key(True, "node", "Look for peers on the local network by mDNS.")
    dht: bool = _key(
        False,
        "node bootstrap",
        "Take part in a Kademlia DHT of peers of any swarm, which finds this swarm when its "
        "bootstraps are gone.",
    )
    dht_peer: tuple[str, ...] = _key(
        (),
        "node bootstrap",
        "Multiaddress of a peer of any swarm that takes part in the DHT; turns `dht` on; "
        "repeatable.",
    )
    target_peers: int = _key(
        12, "node bootstrap", "Connections that discovery tries to hold.", ge=1, le=1000
    )
    max_connections: int = _key(
        256, "node bootstrap", "Connections beyond which new ones are refused.", ge=2, le=10_000
    )
    prefix_connections: int = _key(
        64,
        "node bootstrap",
        "Inbound connections from one network (IPv4 /24, IPv6 /48); 0 is no limit. "
        "Loopback is free.",
        ge=0,
        le=10_000,
    )
    relay: bool = _key(
        False,
        "node bootstrap",
        "Relay connections for peers that nobody can dial (circuit relay v2), within the limits "
        "below.",
    )
    relay_reservations: int = _key(
        64, "node bootstrap", "Peers that may be reached through this relay.", ge=1, le=4096
    )
    relay_bytes: int = _key(
        1 << 28,
        "node bootstrap",
        "Bytes, both ways together, after which the relay ends a circuit; peers open another.",
        ge=1 << 16,
    )
    relay_seconds: float = _key(
        3600.0,
        "node bootstrap",
        "Age at which the relay ends a circuit.",
        ge=1,
        le=86_400,
    )
    relay_client: Literal["auto", "on", "off"] = _key(
        "auto",
        "node bootstrap",
        "Be reachable through relays among the peers: auto (where peers cannot dial this one), "
        "on or off.",
    )
    swarm_key: str = _key(
        "none",
        "node bootstrap",
        "File with the pre-shared key of a private swarm, as kubo's swarm.key; none is a public "
        "swarm.",
    )
    # Swarm
    swarm_name: str = _key(
        "shoal", "node bootstrap swarm", "Name of the swarm that this peer starts or expects."
    )
    tasks: str = _key(
        "easy",
        "node bootstrap swarm trainer",
        "Task preset of a swarm that this peer starts: easy, easy-paper, paper, or none.",
    )
    task_file: tuple[str, ...] = _key(
        (),
        "node bootstrap swarm trainer",
        "TOML file of a task family of your own, added to the preset's; repeatable.",
    )
    max_age_seconds: int = _key(
        3600,
        "node bootstrap swarm",
        "Age at which a rollout of a swarm started here is stale.",
        ge=1,
        le=2_592_000,
    )
    inline_tasks: bool = _key(
        False,
        "node bootstrap swarm",
        "A swarm started here also takes questions that people write, with their answers.",
    )
    max_completions: int = _key(
        64, "node bootstrap swarm", "Most completions a group may have.", ge=1, le=256
    )
    allow_peers: tuple[str, ...] = _key(
        (),
        "node bootstrap",
        "Peer id that may connect to a swarm started here; repeatable. None admits everybody.",
    )
    shards: int = _key(
        1,
        "node bootstrap swarm",
        "Topics among which a swarm started here spreads its publishers: about one for every "
        "16 nodes it may grow to.",
        ge=1,
        le=4096,
    )
    subscribe_shards: str = _key(
        "auto",
        "node bootstrap swarm",
        "Shards to listen to: auto (as many as the trainer's draws need; a bootstrap peer of a "
        "swarm with several, none) or a number from 0 to 64.",
    )
    # Buffer
    buffer_groups: int = _key(
        4096, "node swarm", "Most external groups in the replay buffer.", ge=1
    )
    buffer_bytes: int = _key(
        64 * 1024 * 1024, "node swarm", "Most bytes of external groups in the buffer.", ge=1024
    )
    publisher_groups: int = _key(
        512, "node swarm", "Most groups of one publisher in the buffer.", ge=1
    )
    buffer_seconds: int = _key(3600, "node swarm", "Age at which a group leaves the buffer.", ge=1)
    draws: Literal["standing", "uniform", "contribution"] = _key(
        "standing",
        "node swarm",
        "How often each publisher's groups are drawn: by their use here so far (standing), all "
        "alike (uniform), or by use and by how much it has contributed (contribution).",
    )
    archive_bytes: int = _key(
        268_435_456,
        "node swarm",
        "Most bytes of batches kept for `shoal export`; 0 keeps none.",
        ge=0,
    )
    # Trainer process
    no_trainer: bool = _key(
        False, "node", "Run no trainer: a relay that keeps a buffer, or an observer."
    )
    stay: bool = _key(
        False, "node", "Keep the node up, sharing and relaying, after the trainer's last round."
    )
    model: str = _key(
        "tiny",
        "node trainer swarm",
        "Causal language model: a Hugging Face hub name, a folder, or the embedded "
        "`tiny` or `tiny-sparse`.",
    )
    device: str = _key("auto", "node trainer swarm", "Torch device: auto, cpu, cuda, mps.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = _key(
        "auto",
        "node trainer swarm",
        "Type of the weights: auto (float32, computing in bfloat16 where the GPU can), float32, "
        "bfloat16 or float16.",
    )
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2", "flex_attention"] = _key(
        "auto",
        "node trainer swarm",
        "Attention implementation: auto (the model's own choice), eager, sdpa, "
        "flash_attention_2 or flex_attention.",
    )
    lora_rank: int = _key(
        0,
        "node trainer swarm",
        "Train LoRA adapters of this rank and freeze the model; 0 trains all weights.",
        ge=0,
        le=1024,
    )
    lora_alpha: float = _key(
        0.0, "node trainer swarm", "Scale of LoRA's adapters; 0 is twice the rank.", ge=0, le=65_536
    )
    lora_targets: str = _key(
        "auto",
        "node trainer swarm",
        "Layers that LoRA adapts, names with commas between them; auto is every linear layer "
        "but the output.",
    )
    generator: Literal["self", "openai"] = _key(
        "self",
        "node trainer swarm",
        "Who answers the questions: self (the model in training) or openai (a server that speaks "
        "OpenAI's protocol, at `base_url`).",
    )
    base_url: str = _key(
        "http://127.0.0.1:8000/v1",
        "node trainer swarm",
        "Address of the server that answers, up to and with /v1.",
    )
    api_key_env: str = _key(
        "OPENAI_API_KEY",
        "node trainer swarm",
        "Environment variable that holds the server's API key; unset sends none.",
    )
    remote_model: str = _key(
        "auto", "node trainer swarm", "The server's name of its model; auto is `model`."
    )
    request_seconds: float = _key(
        120.0, "node trainer swarm", "Deadline of one request to the server.", gt=0, le=3600
    )
    concurrency: int = _key(
        8, "node trainer swarm", "Requests to the server at the same time.", ge=1, le=256
    )
    no_train: bool = _key(
        False,
        "node trainer swarm",
        "Answer and share, never train: a generate-only node. Needs another `generator` than self.",
    )
    threads: int = _key(
        1, "node trainer swarm", "CPU threads of the trainer; 0 leaves it to torch.", ge=0, le=1024
    )
    local: int = _key(
        4,
        "node trainer swarm",
        "I: questions a round that this node answers, shares and trains on.",
        ge=0,
        le=4096,
    )
    questions: int = _key(
        0,
        "node trainer swarm",
        "Questions a round that this node answers and shares; 0 is as many as `local`. With more, "
        "it trains on own groups whose rewards differ, at most `local`.",
        ge=0,
        le=4096,
    )
    external: int = _key(
        4, "node trainer swarm", "J: groups of other nodes a round to train on.", ge=0, le=4096
    )
    balance: Literal["fixed", "adaptive"] = _key(
        "fixed",
        "node trainer swarm",
        "Whether `local` and `external` stay (fixed) or move, their sum staying, by what the node "
        "sees (adaptive).",
    )
    strategy: str = _key(
        "uniform",
        "node trainer swarm",
        "How groups of other nodes are chosen: uniform, uniform-unfiltered or top-reward, with "
        "positive, balance, diverse, fresh, weak, distinct, capped and bare joined to it by +.",
    )
    completions: int = _key(8, "node trainer swarm", "L: completions a question.", ge=2, le=256)
    rounds: int = _key(
        0, "node trainer swarm", "Rounds in all, then a clean exit; 0 goes on for ever.", ge=0
    )
    seed: int = _key(
        0,
        "node trainer swarm",
        "Seed of tasks and sampling; 0 derives one from the node's identity.",
        ge=0,
        lt=1 << 31,
    )
    learning_rate: float = _key(4e-4, "node trainer swarm", "AdamW's learning rate.", gt=0, le=1)
    weight_decay: float = _key(0.0, "node trainer swarm", "AdamW's weight decay.", ge=0, le=1)
    temperature: float = _key(1.0, "node trainer swarm", "Sampling temperature.", gt=0, le=100)
    top_p: float = _key(1.0, "node trainer swarm", "Nucleus sampling mass.", gt=0, le=1)
    top_k: int = _key(0, "node trainer swarm", "Sample among the k likeliest; 0 is all.", ge=0)
    max_new_tokens: int = _key(
        12, "node trainer swarm", "Most tokens a completion has.", ge=1, le=1_000_000
    )
    epsilon_low: float = _key(0.2, "node trainer swarm", "Lower clip bound of GRPO.", ge=0, le=1)
    epsilon_high: float = _key(
        0.28, "node trainer swarm", "Upper clip bound of GRPO.", ge=0, le=100
    )
    max_grad_norm: float = _key(
        1.0, "node trainer swarm", "Gradient clipping by global norm.", gt=0
    )
    loss_type: Literal["grpo", "dr_grpo", "dapo"] = _key(
        "grpo",
        "node trainer swarm",
        "How token losses are averaged: grpo (by completion), dr_grpo (by token limit) or dapo "
        "(by token).",
    )
    advantage_scale: Literal["group", "none"] = _key(
        "group",
        "node trainer swarm",
        "What an advantage is divided by: group (the group's standard deviation) or none.",
    )
    kl_beta: float = _key(
        0.0,
        "node trainer swarm",
        "Weight of a KL term to the policy that training started from; above 0 a second copy of "
        "the model is held.",
        ge=0,
        le=1000,
    )
    epochs: int = _key(
        1,
        "node trainer swarm",
        "Passes over a round's groups; clipping acts from the second on.",
        ge=1,
        le=1000,
    )
    minibatches: int = _key(
        1, "node trainer swarm", "Optimiser steps a pass over a round's groups.", ge=1, le=1000
    )
    off_policy: Literal["paper", "truncated", "sequence"] = _key(
        "paper",
        "node trainer swarm",
        "Treatment of external text: paper (as if one's own), truncated (tokens weighed by what "
        "the generator claims) or sequence (one ratio and weight a completion).",
    )
    is_cap: float = _key(
        2.0,
        "node trainer swarm",
        "Most that external text may weigh by its generator's claims.",
        ge=1,
        le=1000,
    )
    likelihood_floor: float = _key(
        0.0,
        "node trainer swarm",
        "Mean own log-probability a token below which an external completion is absurd; "
        "0 is no floor.",
        ge=-1000,
        le=0,
    )
    likelihood_floor_mode: Literal["drop", "downweight"] = _key(
        "drop",
        "node trainer swarm",
        "What happens to an external completion below the floor: drop or downweight.",
    )
    share_logprobs: bool = _key(
        False,
        "node trainer swarm",
        "Share the log-probability of each own token too: two bytes each, for peers that weigh "
        "by them.",
    )
    token_budget: int = _key(
        8192, "node trainer swarm", "Tokens a micro-batch may hold, padding included.", ge=64
    )
    gradient_checkpointing: bool = _key(
        False,
        "node trainer swarm",
        "Compute each layer again in the backward pass instead of keeping it: slower, less memory.",
    )
    oversample: int = _key(
        8,
        "node trainer swarm",
        "External groups drawn for each one wanted, at most, while looking for signal.",
        ge=1,
        le=1000,
    )
    round_seconds: float = _key(
        0.0,
        "node trainer swarm",
        "Least seconds a round takes; a faster trainer waits. 0 is no wait.",
        ge=0,
        le=86_400,
    )
    resume: bool = _key(
        True,
        "node trainer swarm",
        "Continue from the newest good checkpoint, if there is one; off: what an earlier run left "
        "moves to earlier-1, earlier-2 … in the data directory.",
    )
    checkpoint_seconds: float = _key(
        10.0, "node trainer swarm", "Seconds between checkpoints.", ge=0, le=86_400
    )
    verify_seconds: float = _key(
        15.0, "node trainer swarm", "Deadline of one call to the task worker.", gt=0, le=3600
    )
    eval_every: int = _key(
        -1,
        "node trainer swarm",
        "Rounds between held-out evaluations; 0 never, "
        "-1 every 25 for an embedded model and never for another.",
        ge=-1,
    )
    eval_per_family: int = _key(
        8, "node trainer swarm", "Held-out questions of each task family.", ge=1, le=1 << 16
    )
    judge: str = _key(
        "none",
        "node trainer swarm",
        "Multiaddress of a judge, ending in /p2p/ID, which scores one answer every `judge_every` "
        "rounds; none asks nobody.",
    )
    judge_every: int = _key(
        10, "node trainer swarm", "Rounds between questions of the judge.", ge=1
    )
    alone: bool = _key(
        False, "trainer", "Train with no node: tasks of the preset, nothing shared or sampled."
    )
    # Swarm command
    nodes: int = _key(4, "swarm", "Nodes to start.", ge=1, le=64)
    # Output
    json_output: bool = _key(
        False, "node bootstrap trainer swarm debug", "Print JSON for programs, one object a line."
    )
    log: str = _key(
        "auto",
        "node trainer swarm",
        "Where metrics go beside metrics.jsonl, with commas: tensorboard, wandb, trackio, none; "
        "auto is tensorboard where it is installed.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = _key(
        "info", "node bootstrap trainer swarm", "Least severe log line shown."
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `rounds = true`, which would count as 1."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and annotation in (int, float):
            raise ValueError("must be a number")
        return value

    @field_validator("listen", "bootstrap", "dht_peer", "task_file", "allow_peers", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """Accept one string with commas, as an environment variable gives it."""
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("listen", "bootstrap", "dht_peer")
    @classmethod
    def _multiaddress(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for address in value:
            if not address.startswith("/") or any(c.isspace() or c == "," for c in address):
                raise ValueError(f"{address!r} is not a multiaddress like /ip4/127.0.0.1/tcp/4001")
        return value

    @field_validator("bootstrap", "dht_peer")
    @classmethod
    def _names_a_peer(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for address in value:
            if "/p2p/" not in address:
                raise ValueError(
                    f"{address!r} does not end in /p2p/ID; copy the line that the peer printed"
                )
        return value

    @field_validator("judge")
    @classmethod
    def _a_judge(cls, value: str) -> str:
        strange = any(c.isspace() or c == "," for c in value)
        if value != "none" and (not value.startswith("/") or "/p2p/" not in value or strange):
            raise ValueError(f"{value!r} is not the address that a judge printed, nor none")
        return value

    @field_validator("allow_peers")
    @classmethod
    def _peer_ids(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for peer in value:
            if not is_peer_id_text(peer):
                raise ValueError(f"{peer!r} is not a peer id; `shoal debug id` shows a node's own")
        return value

    @field_validator("log")
    @classmethod
    def _known_logs(cls, value: str) -> str:
        for name in value.split(","):
            if name not in LOGS:
                raise ValueError(f"must be some of {', '.join(LOGS)}")
        return value

    @field_validator("strategy")
    @classmethod
    def _known_strategy(cls, value: str) -> str:
        words = value.split("+")
        if any(word not in STRATEGY_WORDS for word in words):
            raise ValueError(f"must be some of {', '.join(STRATEGY_WORDS)}, joined by +")
        if len(set(words)) < len(words) or len(set(words) & set(STRATEGY_WORDS[:3])) > 1:
            raise ValueError("names a thing twice, or two of the first three")
        return value

    @field_validator("subscribe_shards", mode="before")
    @classmethod
    def _auto_or_number(cls, value: Any) -> Any:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        number = isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 2
        if text != "auto" and not (number and int(text) <= MAX_SUBSCRIBED_SHARDS):
            raise ValueError(f"must be auto or a number from 0 to {MAX_SUBSCRIBED_SHARDS}")
        return text

    @field_validator("tasks")
    @classmethod
    def _known_preset(cls, value: str) -> str:
        if value not in TASK_PRESETS:
            raise ValueError(f"must be one of {', '.join(TASK_PRESETS)}")
        return value


LOGS = ("auto", "none", "tensorboard", "wandb", "trackio")
STRATEGY_WORDS = (
    *("uniform", "uniform-unfiltered", "top-reward"),
    *("positive", "balance", "diverse", "fresh", "weak"),
    *("distinct", "capped", "bare"),
)
MAX_SUBSCRIBED_SHARDS = 64
"""What peers accept as one peer's subscriptions."""
TASK_PRESETS = ("easy", "easy-paper", "paper", "none")

FLAG_NAMES = {"json_output": "json"}
"""Keys whose flag (and TOML key, and variable) is not their own name."""


def public_name(field: str) -> str:
    """Return the key by which people know a field: TOML key and, in capitals, the variable."""
    return FLAG_NAMES.get(field, field)


def fields_of(command: Command) -> tuple[str, ...]:
    """Return the settings that `command` reads, in the schema's order."""
    return tuple(
        name
        for name, info in Settings.model_fields.items()
        if isinstance(info.json_schema_extra, dict)
        and command in info.json_schema_extra["commands"]  # type: ignore[operator]
    )
