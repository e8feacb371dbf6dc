"""Text that this process did not generate: how much of it is trained on, and by what weight.

Other nodes' text is taken as one's own (SAPO, section 3.2), but for what no verifier read. A vLLM
server that holds this very policy says how likely each of its tokens was; its text is weighed by
own / claimed probability, at most `IMPORTANCE_CAP` (truncated importance sampling, arXiv
2505.24298). An absurd claim counts as absent, and gives 1.
Own log-probabilities here are those at the *start* of the update.
"""

from __future__ import annotations

import math

import torch

MIN_LOGPROB = math.log(0.01)
"""Nats. A token that the policy chooses less than once in a hundred times is not one that it says.
A guess between two costs: higher, and others' reasoning loses words; lower, and one that is planted
is repeated by chance, and then learnt."""


IMPORTANCE_CAP = 2.0
"""Most that a token may weigh by the log-probability that a server gave it: TRL's default."""


def importance_weights(start_n: torch.Tensor, claimed_n: torch.Tensor) -> torch.Tensor:
    """Return the weights of one completion's n tokens, [n] in [0, `IMPORTANCE_CAP`].

    `start_n` are own log-probabilities at the start of the update. No gradient.
    """
    log_weight_n = start_n.detach() - claimed_n
    return log_weight_n.exp().clamp(max=IMPORTANCE_CAP)


def likely_token_mask(start_n: torch.Tensor, unread_n: torch.Tensor) -> torch.Tensor:
    """Return which of n tokens of others are trained on, [n] of 0 and 1.

    What the verifier reads is. What it does not read earned nothing, and may be planted: it is
    trained on only where the policy itself says it now and then. `start_n` are own
    log-probabilities at the start of the update.
    """
    return ((start_n >= MIN_LOGPROB) | ~unread_n).to(start_n.dtype)
