"""Off-policy corrections for tokens that this process did not sample.

External completions are trained on as if the own policy had sampled them (SAPO, section 3.2),
except tokens that no verifier scored: these are masked unless the policy finds them likely.
A vLLM server that holds this policy reports the log-probability of each token that it sampled.
Its tokens are weighted by exp(own − server log-probability), at most `IMPORTANCE_CAP` (truncated
importance sampling, arXiv 2505.24298). An implausible report counts as missing: the weight is 1.
Own log-probabilities here are those at the *start* of the update.
"""

from __future__ import annotations

import math

import torch

MIN_LOGPROB = math.log(0.01)
"""Nats. Unscored tokens below 1 % probability are not trained on. A guess: a higher bound drops
words of other nodes' reasoning, a lower one lets a planted token be sampled by chance and then
trained on."""


IMPORTANCE_CAP = 2.0
"""Upper limit of an importance weight: TRL's default."""


def importance_weights(start_n: torch.Tensor, claimed_n: torch.Tensor) -> torch.Tensor:
    """Return the importance weights of one completion's n tokens, [n] in [0, `IMPORTANCE_CAP`].

    `start_n` are own log-probabilities at the start of the update, `claimed_n` the server's. The
    result carries no gradient.
    """
    log_weight_n = start_n.detach() - claimed_n
    return log_weight_n.exp().clamp(max=IMPORTANCE_CAP)


def likely_token_mask(start_n: torch.Tensor, unread_n: torch.Tensor) -> torch.Tensor:
    """Return a mask of the n tokens of an external completion to train on: [n], 0 or 1.

    Tokens that the verifier scores are kept. An unscored token earned nothing and may be planted,
    so it is kept only above `MIN_LOGPROB`. `start_n` are own log-probabilities at the start of the
    update.
    """
    return ((start_n >= MIN_LOGPROB) | ~unread_n).to(start_n.dtype)
