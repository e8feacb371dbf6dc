"""Where a round's time goes, part by part, in a real trainer beside a real node.

Groups to train on come from another node, which has shared them and ended before anything is
timed. Two models: the embedded one, and a random Qwen2 of 26 M parameters with answers of up to 48
tokens, which is never right: only others' groups carry signal for it, so its update is small. Each
part counts its own time only; together they are the whole time between two rounds. One thread.
CPU time is the trainer's own: parts that wait for the node, the disk or the task worker show in
wall time. Checkpoints come every ten seconds, however short the rounds, so on a slow machine they
weigh more: what one takes stands apart.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM
from transformers.utils.logging import disable_progress_bar

from benchmarks.harness import ROOT, Options, Report, main, note
from shoal_policy.tiny import assets_path
from tests.support.processes import Stage, open_stage

_SKIPPED_ROUNDS = 3
_LIMIT_SECONDS = 600.0
_GROUPS_A_ROUND = 4


def measure(options: Options) -> Report:
    """Profile both models."""
    rounds = {"tiny": 30, "larger": 4} if options.quick else {"tiny": 120, "larger": 20}
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder, open_stage(Path(folder)) as stage:
        larger = _save_larger(Path(folder) / "larger-model")
        models = {"tiny": ("--model", "tiny"), "larger": ("--model", str(larger), *_LONGER)}
        for name, flags in models.items():
            note(f"{name}: another node shares …")
            results[name] = _profile(stage, name, flags, rounds[name])
    return Report(results=results)


_LONGER = ("--max-new-tokens", "48")


def _profile(stage: Stage, name: str, flags: Sequence[str], rounds: int) -> dict[str, Any]:
    total = rounds + _SKIPPED_ROUNDS
    node = stage.node(name, "--no-trainer")
    # Some groups have no signal and are passed over: so twice as many as can be trained on.
    other = stage.node(f"{name}-other", "--rounds", str(2 * total), bootstrap=node.address)
    wanted = 2 * total * _GROUPS_A_ROUND * 9 // 10
    node.wait_status(lambda s: s["groups_received"] >= wanted, "groups to train on", _LIMIT_SECONDS)
    other.close()
    note(f"{name}: {rounds} rounds …")
    command = [sys.executable, "-m", "benchmarks.round_profile_run", str(_SKIPPED_ROUNDS)]
    command += ["--data-dir", str(node.data_dir), "--rounds", str(total), "--seed", "7"]
    done = subprocess.run(
        [*command, "--log", "none", *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=_LIMIT_SECONDS,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    node.close()
    return _shares(json.loads(done.stdout.splitlines()[-1]))


def _shares(found: dict[str, Any]) -> dict[str, Any]:
    rounds, spans = found["rounds"], found["spans"]
    wall = sum(span["seconds"] for span in spans.values())
    cpu = sum(span["cpu_seconds"] for span in spans.values())
    return {
        "rounds": rounds,
        "round_ms": round(1000 * wall / rounds, 2),
        "round_cpu_ms": round(1000 * cpu / rounds, 2),
        "tokens_generated_a_round": round(found["tokens"] / rounds, 1),
        "groups_with_signal_a_round": round(found["with_signal"] / rounds, 2),
        "of_which_others": round(found["external"] / rounds, 2),
        "percent_of_cpu": _percent(spans, "cpu_seconds", cpu),
        "percent_of_wall": _percent(spans, "seconds", wall),
        "one_checkpoint_ms": round(1000 * found["checkpoint_seconds"], 1),
    }


def _percent(spans: dict[str, Any], key: str, whole: float) -> dict[str, float]:
    """Shares of the whole, the largest first; those that round to nothing are left out."""
    shares = {name: round(100 * span[key] / whole, 1) for name, span in spans.items()}
    return {name: shares[name] for name in sorted(shares, key=lambda n: -shares[n]) if shares[name]}


def _save_larger(folder: Path) -> Path:
    disable_progress_bar()
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(assets_path())
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=512,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        intermediate_size=1536,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    sys.exit(main("round_profile", __doc__ or "", measure))
