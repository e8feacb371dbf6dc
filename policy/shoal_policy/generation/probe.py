"""Checks that a server follows: its log-probabilities of a short text beside the policy's own.

    weights given ─▶ the server continues PROBE_TEXT ─▶ mean |its log-probability − the policy's|
                                                             └ over `bound`: it does not follow

A server can agree to take weights and still answer with others: it keeps a copy of a matrix in
another layout, it takes a part of them, or it holds another model. Its status does not tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.replies import usable_claims
from shoal_policy.model.loading import Policy
from shoal_policy.model.packed import TokenRow
from shoal_policy.model.prompting import encode_text
from shoal_policy.rollouts import Answer
from shoal_policy.update.logprobs import completion_logprobs

PROBE_TEXT = "one, two, three, four, five, six, seven, eight, nine, ten. red, green, blue."
ANSWERS, _TOKENS = 8, 8
"""Continuations that the server samples, and the tokens of each. Sampling takes the path that
answers to questions take, the server's prefix cache included."""

MOST_DIFFERENCE = 0.2
"""Mean difference, in nats a token at temperature 1, above which a server does not follow.

Honest differences, measured: with vLLM 1e-6 where both compute in float32, 0.03 to 0.04 where it
computes in bfloat16 (SmolLM2), and up to 0.08 with random weights that give far larger logits. In
torch, bfloat16 beside float32, 0.02 to 0.05 (SmolLM2, 24 times 64 tokens, temperatures 0.6 and 1).
The bound is four times what the real model gave, because the trainer does not know in which type
its server computes. A smaller fault passes until later updates make it larger. Meanwhile the update
corrects for it: the server's numbers are true of the weights that it has, and weigh its answers."""


def bound(temperature: float) -> float:
    """Return the mean difference allowed at a temperature: logits are divided by it, errors too."""
    return MOST_DIFFERENCE / min(1.0, temperature or 1.0)


def probing(asking: GenerationRequest) -> tuple[GenerationRequest, list[int]]:
    """Return what is asked of the server to compare it, and the prompt in token ids.

    Nothing is cut off the distribution, so that its log-probabilities are the policy's own. The
    temperature is the round's: a server that leaves it out of its numbers is noticed, too.
    """
    policy = asking.policy
    room = max(1, policy.max_positions - _TOKENS)
    sampling = replace(
        asking.sampling,
        temperature=asking.sampling.temperature or 1.0,
        top_p=1.0,
        top_k=0,
        max_new_tokens=_TOKENS,
    )
    asked = replace(asking, num_completions=ANSWERS, sampling=sampling)
    return asked, encode_text(policy, PROBE_TEXT)[:room]


def difference(
    policy: Policy, prompt: Sequence[int], answers: Sequence[Answer], temperature: float
) -> float | None:
    """Return the mean |server − policy| a token, in nats; None where they cannot be compared.

    So it is where an answer comes without a log-probability for each token, or with one that no
    sampled token has, and where the policy's own numbers are not finite.
    """
    said: list[float] = []
    for one in answers:
        claims = usable_claims(one.logprobs, len(one.ids))
        if claims is None:
            return None
        said.extend(claims)
    rows = [TokenRow(prompt_ids=prompt, completion_ids=one.ids) for one in answers]
    with torch.no_grad(), policy.whole():
        own_N = completion_logprobs(policy, rows, temperature=temperature).logprobs.cpu()
    found = float((torch.tensor(said) - own_N).abs().mean())
    return found if math.isfinite(found) else None
