"""Settings, words of settings and flags that earlier versions took, and what replaced each. Pure.

A row is refused in one line wherever it is given (flag, environment, TOML file, `--set`), and never
ignored: who wrote it learns what to write instead. What is removed gets a row here and a line under
*Removed* in CHANGELOG.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

REMOVED: Final[Mapping[str, str]] = {
    "experiment --swarm": "an experiment plays in memory, by the code that nodes run; "
    "`shoal swarm` starts real nodes and trainers",
    "answer --task-file": "the node has noted which task files it was started with",
    "publish --task-file": "the node has noted which task files it was started with",
    "experiment --in-process": "an experiment always plays so",
    "buffer_groups": "the buffer has a group for each 16 KiB of `buffer_bytes`",
    "publisher_groups": "one publisher has an eighth of the buffer, and its fair share",
    "publisher_versions": "the buffer keeps what is newest by age and by fair shares",
    "buffer_seconds": "a group leaves the buffer after an hour",
    "dht": "`bootstrap` addresses, saved peers, `mdns` and the peers of peers find the swarm",
    "dht_peer": "name a peer of this swarm with `bootstrap`",
    "draws=contribution": "`standing` draws each network alike, then each publisher by its use",
    "relay_bytes": "a relay ends each circuit after 256 MiB, and peers open another",
    "relay_seconds": "a relay ends each circuit after an hour, and peers open another",
    "relay_reservations": "a relay serves a quarter of `max_connections`",
    "prefix_connections": "one network may have a quarter of `max_connections`",
    "strategy=bare": "it is always so: of others' answers, what a verifier does not read is only "
    "learnt where the policy says it itself",
    "strategy=uniform-unfiltered": "uniform is the paper's way, without groups that teach nothing",
    "strategy=top-reward": "positive trains on right answers alone",
    "strategy=diverse": "with positive or balance, places go first to the network that gave least",
    "strategy=fresh": "the buffer keeps each publisher's newest groups",
    "strategy=weak": "balance takes task families in turn",
    "strategy=distinct": "with positive or balance, each publisher and network has a ceiling",
    "strategy=capped": "with positive or balance, each publisher and network has a ceiling",
    "balance": "--local and --external stay; take a lower --external where news comes late",
    "off_policy": "the ratio to the policy before the update is taken token by token, as in GRPO",
    "likelihood_floor": "of others' right answers, what no verifier reads is only learnt where the "
    "policy says it itself",
    "likelihood_floor_mode": "there is no likelihood floor any more",
    "share_logprobs": "nobody weighs by others' log-probabilities, so none are sent",
    "is_cap": "the text of a vLLM server that follows weighs at most twice as much as own text",
    "api_key_env": "a server's key is read from OPENAI_API_KEY",
    "served_dir": "weights for vLLM are in `served` of the data directory, which may be a link",
    "weights_lag": "a vLLM server is given new weights before every round",
    "request_seconds": "a request to a server ends after 120 s and is tried four times",
    "verify_seconds": "a call to the task worker ends after 15 s",
    "judge_every": "the judge is asked every ten rounds",
    "metrics_bytes": "metrics.jsonl is thinned over 64 MiB",
    "tensorboard_bytes": "TensorBoard's files are its own; delete old ones by hand",
    "oversample": "a trainer looks at 8 groups of others for each place of a round, at most",
    "lora_alpha": "an adapter is scaled by twice its rank, over its rank",
    "lora_targets": "every linear layer but the output matrix is adapted",
    "max_grad_norm": "the gradient is clipped to a global norm of 1",
    "log_bytes": "a process keeps 16 MiB of log in its data directory",
    "weight_decay": "weights do not decay: an update is held by --kl-beta and the clipping norm",
    "top_k": "the tail is cut by --top-p",
    "advantage_scale": "advantages are divided by their group's standard deviation, but for "
    "--loss-type dr_grpo",
    "attention": "a model attends as transformers chooses for it",
    "max_completions": "a group of a swarm started here has at most 64 completions",
    "curriculum": "questions follow the swarm's weights; easier or harder ones are --tasks",
}
"""Removed keys, each with the sentence that names its replacement, without a full stop.

A key is one of three: a setting (`dht`), one word of a setting's value (`draws=contribution`), or a
flag of a command that is no setting (`export --folder`)."""


def removed_setting(key: str) -> str | None:
    """Return the line that refuses a setting, by its public name; None if no version had it."""
    return _line(key, REMOVED.get(key))


def removed_word(key: str, value: str) -> str | None:
    """Return the line that refuses a setting's value for a word in it; None if it has no such."""
    for word in re.split(r"[,+]", value):
        if (sentence := REMOVED.get(f"{key}={word}")) is not None:
            return f"has no word {word!r} any more: {sentence}"
    return None


def removed_flag(command: str, flag: str) -> str | None:
    """Return the line that refuses a flag of a command; None if no version had it.

    A setting's flag is known by each spelling, `--no-…` included, and to every command.
    """
    name = flag.removeprefix("--").replace("-", "_")
    for row in (f"{command} {flag}", name, name.removeprefix("no_"), f"no_{name}"):
        if row in REMOVED:
            return _line(flag, REMOVED[row])
    return None


def _line(what: str, sentence: str | None) -> str | None:
    return None if sentence is None else f"{what} was removed: {sentence}"
