"""Verifies that a server uses the policy's weights, by comparing log-probabilities of a short text.

    weights sent ─▶ the server continues PROBE_TEXT ─▶ mean |its log-probability − the policy's|
                                                             └ over `max_difference`: refused

A server can accept weights and still answer with others: it may keep a copy of a matrix in another
layout, load only a part, or serve another model. Its status code does not show that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.replies import usable_logprobs
from shoal_policy.model.loading import Policy
from shoal_policy.model.packed import TokenRow
from shoal_policy.model.prompting import encode_text
from shoal_policy.rollouts import Answer
from shoal_policy.update.logprobs import completion_logprobs

PROBE_TEXT = "one, two, three, four, five, six, seven, eight, nine, ten. red, green, blue."
ANSWERS, _TOKENS = 8, 8
"""Continuations that the server samples, and the tokens of each. Sampling uses the same path as
real requests, including the server's prefix cache."""

MAX_DIFFERENCE = 0.2
"""Mean difference, in nats per token at temperature 1, above which the weights are not the
policy's.

Measured differences of honest servers: with vLLM 1e-6 where both compute in float32, 0.03 to 0.04
where it computes in bfloat16 (SmolLM2), and up to 0.08 with random weights, which give far larger
logits. In torch, bfloat16 compared with float32: 0.02 to 0.05 (SmolLM2, 24 times 64 tokens,
temperatures 0.6 and 1). The limit is four times the real model's value, because the trainer does
not know the server's dtype. A smaller fault passes until later updates enlarge it. Until then the
update corrects for it: the server's numbers are correct for its own weights, and give importance
weights."""


def max_difference(temperature: float) -> float:
    """Return the allowed mean difference at a temperature, which also divides errors of logits."""
    return MAX_DIFFERENCE / min(1.0, temperature or 1.0)


def build_probe(request: GenerationRequest) -> tuple[GenerationRequest, list[int]]:
    """Return the probe request to the server, and its prompt as token ids.

    Nothing is cut off the distribution, so its log-probabilities should equal the policy's. It uses
    the round's temperature, so that a server that does not apply it is detected too.
    """
    policy = request.policy
    max_tokens = max(1, policy.max_positions - _TOKENS)
    sampling = replace(
        request.sampling,
        temperature=request.sampling.temperature or 1.0,
        top_p=1.0,
        top_k=0,
        max_new_tokens=_TOKENS,
    )
    probe = replace(request, num_completions=ANSWERS, sampling=sampling)
    return probe, encode_text(policy, PROBE_TEXT)[:max_tokens]


def logprob_difference(
    policy: Policy, prompt: Sequence[int], answers: Sequence[Answer], temperature: float
) -> float | None:
    """Return the mean |server − policy| per token, in nats; None if they cannot be compared.

    They cannot if an answer lacks a log-probability for a token, has an implausible one, or if the
    policy's own numbers are not finite.
    """
    server_logprobs: list[float] = []
    for one in answers:
        claims = usable_logprobs(one.logprobs, len(one.ids))
        if claims is None:
            return None
        server_logprobs.extend(claims)
    rows = [TokenRow(prompt_ids=prompt, completion_ids=one.ids) for one in answers]
    with torch.no_grad(), policy.gather():
        own_N = completion_logprobs(policy, rows, temperature=temperature).logprobs.cpu()
    found = float((torch.tensor(server_logprobs) - own_N).abs().mean())
    return found if math.isfinite(found) else None
