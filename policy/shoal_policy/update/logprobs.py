"""Log-probabilities of what the policy said, without ever holding logits of a whole batch.

Rows are packed (`packed`) or padded. Padded on the *right*: in a causal model nothing to
the left sees the padding, so no attention mask is needed and positions count from zero. The first
completion token is predicted from the prompt's last token. The output matrix is applied at the
positions that predict what the policy said only, in tiles (`head`): what an environment said in
between is read and never predicted.

Shapes: B rows, T padded tokens, N tokens that the policy said of all rows one after another, H
hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from shoal_policy.model.loading import Policy
from shoal_policy.model.logit_form import PLAIN
from shoal_policy.model.packed import TokenRow, pack_rows, packed_hidden, packing
from shoal_policy.model.sharding import within_root
from shoal_policy.update.head import Expected, head_logprobs


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities and entropies of N tokens, float32, in nats."""

    logprobs: torch.Tensor
    """[N], carries the gradient."""
    entropy: torch.Tensor
    """[N], of the distribution each token was chosen from; carries none."""


def completion_logprobs(
    policy: Policy,
    rows: Sequence[TokenRow],
    *,
    temperature: float = 1.0,
    expected: Expected | None = None,
    packed: bool = False,
) -> TokenLogprobs:
    """Log-probability of every token that the policy said, in nats, rows one after another.

    `temperature` divides the logits, so that the numbers belong to the distribution that
    samples are drawn from. Differentiable unless gradients are off. `expected` foretells the
    gradient (`head`): it saves time and never changes the result. `packed` needs a model
    that can (`packed.can_pack`) with a known form of logits; gradient checkpointing needs the
    backward pass within `packed.packing`, too.
    """
    made = within_root(
        policy, lambda: _completion_logprobs(policy, rows, temperature, expected, packed=packed)
    )
    return TokenLogprobs(*made)


def _completion_logprobs(
    policy: Policy,
    rows: Sequence[TokenRow],
    temperature: float,
    expected: Expected | None,
    *,
    packed: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    targets_N = torch.tensor(
        [row.completion_ids[place] for row in rows for place in row.said], device=policy.device
    )
    with policy.autocast():
        if packed:
            with packing(policy.model):
                hidden_NH = packed_hidden(policy.model, pack_rows(rows, policy.device))
        else:
            ids_BT, places_N = _padded(policy, rows)
            if policy.logit_form is None:
                return _from_logits(policy, ids_BT, places_N, targets_N, temperature)
            body = policy.model.base_model(input_ids=ids_BT, use_cache=False)
            hidden_NH = body.last_hidden_state.flatten(0, 1).index_select(0, places_N)
    if policy.autocast_dtype is not None:
        hidden_NH = hidden_NH.to(policy.autocast_dtype)
    head = policy.model.get_output_embeddings()
    logprobs_N, entropy_N = head_logprobs(
        *(hidden_NH, head.weight, head.bias, targets_N, temperature, expected),
        form=policy.logit_form or PLAIN,
    )
    return logprobs_N, entropy_N


def _padded(policy: Policy, rows: Sequence[TokenRow]) -> tuple[torch.Tensor, torch.Tensor]:
    """Input ids [B, T], and where in them, flattened, each of N tokens is predicted."""
    width = max(len(row.prompt_ids) + len(row.completion_ids) for row in rows) - 1
    inputs: list[list[int]] = []
    places: list[int] = []
    for number, row in enumerate(rows):
        ids = [*row.prompt_ids, *row.completion_ids]
        # Any token fills up. Not the pad token: some models warn of one without a mask.
        inputs.append(ids[:-1] + ids[:1] * (width - len(ids) + 1))
        first = number * width + len(row.prompt_ids) - 1
        places.extend(first + place for place in row.said)
    return (
        torch.tensor(inputs, device=policy.device),
        torch.tensor(places, device=policy.device),
    )


def _from_logits(
    policy: Policy,
    ids_BT: torch.Tensor,
    places_N: torch.Tensor,
    targets_N: torch.Tensor,
    temperature: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same for models that do more to their logits than a matrix product."""
    # Not called as a whole: this is within its forward where its weights are dealt out.
    call = policy.model.forward if policy.in_root else policy.model
    logits_BTV = call(input_ids=ids_BT, use_cache=False).logits
    logits_NV = logits_BTV.flatten(0, 1).index_select(0, places_N).float() / temperature
    all_NV = logits_NV.log_softmax(-1)
    entropy_N = -(all_NV.detach().exp() * all_NV.detach()).sum(-1)
    return all_NV.gather(-1, targets_N[:, None])[:, 0], entropy_N
