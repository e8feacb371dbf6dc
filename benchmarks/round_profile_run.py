"""A trainer whose parts are timed: `python -m benchmarks.round_profile_run SKIP FLAGS…`.

The real `shoal trainer` with those flags, in this process; the first SKIP rounds do not count.
Prints one JSON object as its last line.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from benchmarks.spans import Spans
from shoal_policy import sapo
from shoal_policy.__main__ import main
from shoal_policy.generation import decoding
from shoal_policy.generation import local as generation
from shoal_policy.node.link import NodeLink
from shoal_policy.round.external import ExternalSampling
from shoal_policy.tasks import TaskSource
from shoal_policy.trainer import Trainer
from shoal_policy.update import grpo

_NODE = ("share", "lease_ahead", "sample", "end_leases", "report", "tell_status", "flush")


def watch(spans: Spans) -> None:
    """Name the parts of a round. An attribute that is gone ends the run with its name."""
    spans.watch("draw tasks", TaskSource, "draw")
    for decoder in (decoding.CacheDecoder, decoding.SmallDecoder):
        spans.watch("generate: prompts", decoder, "prefill")
        spans.watch("generate: tokens", decoder, "step")
    spans.watch("generate: drop ended rows", decoding.CacheDecoder, "keep")
    spans.watch("generate: drop ended rows", decoding.SmallDecoder, "keep")
    spans.watch("generate: choose tokens", generation, "sample_tokens")
    spans.watch("generate: text of samples", generation._Loop, "samples")
    spans.watch("generate: the loop around", sapo.Rounds, "_generate")
    spans.watch("share: make batches", sapo.Rounds, "_share")
    for method in _NODE:
        spans.watch("node: requests and answers", NodeLink, method)
    spans.watch("verify own", TaskSource, "verify_own")
    spans.watch("verify others'", TaskSource, "verify")
    spans.watch("verify others'", TaskSource, "questions")
    spans.watch("re-encode others'", ExternalSampling, "_own_reading")
    spans.watch("sample others': the rest", ExternalSampling, "sample")
    spans.watch("update: forward and loss", grpo._Update, "_loss")
    spans.watch("update: backward", torch.Tensor, "backward")
    spans.watch("update: optimiser", torch.optim.AdamW, "step")
    spans.watch("update: clip gradients", torch.nn.utils, "clip_grad_norm_")
    spans.watch("update: the rest", grpo._Update, "step")
    spans.watch("metrics and status", Trainer, "_finish_round")
    spans.watch("checkpoint", Trainer, "checkpoint")


def run(skip: int, flags: list[str]) -> int:
    """Play, and print what was found."""
    spans = Spans()
    watch(spans)
    finish = Trainer._finish_round
    found: dict[str, Any] = dict.fromkeys(("rounds", "with_signal", "external", "tokens"), 0)

    def counting(trainer: Trainer, outcome: sapo.Outcome) -> None:
        finish(trainer, outcome)
        record = outcome.record
        if record.round == skip:
            spans.start()
        elif record.round > skip:
            found["rounds"] += 1
            found["with_signal"] += record.groups_with_signal
            found["external"] += record.groups_external
            found["tokens"] += record.tokens_generated
            found["spans"] = spans.stop()

    Trainer._finish_round = counting  # type: ignore[method-assign,assignment]
    code = main(flags)
    found["checkpoint_seconds"] = spans.seconds["checkpoint"] / max(1, spans.calls["checkpoint"])
    print(json.dumps(found))
    return code


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(run(int(sys.argv[1]), sys.argv[2:]))
