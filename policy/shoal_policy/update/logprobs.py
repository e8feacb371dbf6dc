"""Log-probabilities of policy tokens, without materialising the logits of a whole batch.

Rows are packed (`packed`) or padded. Padding is on the *right*: in a causal model nothing to the
left sees it, so no attention mask is needed and positions count from zero. The first completion
token is predicted from the prompt's last token. The output matrix is applied only at positions that
predict policy tokens, in tiles (`head`). Tokens of an environment in between are read and never
predicted.

Shapes: B rows, T padded tokens, N policy tokens of all rows one after another, H hidden size,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from shoal_policy.model.loading import Policy
from shoal_policy.model.logit_form import PLAIN
from shoal_policy.model.packed import TokenRow, pack_rows, packed_hidden, packing
from shoal_policy.model.shards import run_with_all_weights
from shoal_policy.update.head import ExpectedGradient, head_logprobs


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities and entropies of N tokens, float32, in nats."""

    logprobs: torch.Tensor
    """[N], carries the gradient."""
    entropy: torch.Tensor
    """[N], of the distribution that each token was sampled from; carries no gradient."""


def completion_logprobs(
    policy: Policy,
    rows: Sequence[TokenRow],
    *,
    temperature: float = 1.0,
    expected: ExpectedGradient | None = None,
    packed: bool = False,
) -> TokenLogprobs:
    """Return the log-probability of every policy token, in nats, rows one after another.

    `temperature` divides the logits, as in sampling. Differentiable unless gradients are off.
    `expected` predicts the gradient (`head`): it saves time and never changes the result. `packed`
    needs a model that supports it (`packed.can_pack`) with a known form of logits; with gradient
    checkpointing the backward pass must also run within `packed.packing`.
    """
    made = run_with_all_weights(
        policy, lambda: _completion_logprobs(policy, rows, temperature, expected, packed=packed)
    )
    return TokenLogprobs(*made)


def _completion_logprobs(
    policy: Policy,
    rows: Sequence[TokenRow],
    temperature: float,
    expected: ExpectedGradient | None,
    *,
    packed: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    targets_N = torch.tensor(
        [row.completion_ids[place] for row in rows for place in row.completion_positions],
        device=policy.device,
    )
    with policy.autocast():
        if packed:
            with packing(policy.model):
                hidden_NH = packed_hidden(policy.model, pack_rows(rows, policy.device))
        else:
            ids_BT, indices_N = _pad(policy, rows)
            if policy.logit_form is None:
                return _from_logits(policy, ids_BT, indices_N, targets_N, temperature)
            body = policy.model.base_model(input_ids=ids_BT, use_cache=False)
            hidden_NH = body.last_hidden_state.flatten(0, 1).index_select(0, indices_N)
    if policy.autocast_dtype is not None:
        hidden_NH = hidden_NH.to(policy.autocast_dtype)
    head = policy.model.get_output_embeddings()
    logprobs_N, entropy_N = head_logprobs(
        *(hidden_NH, head.weight, head.bias, targets_N, temperature, expected),
        form=policy.logit_form or PLAIN,
    )
    return logprobs_N, entropy_N


def _pad(policy: Policy, rows: Sequence[TokenRow]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return input ids [B, T], and the flat index at which each of N tokens is predicted."""
    width = max(len(row.prompt_ids) + len(row.completion_ids) for row in rows) - 1
    inputs: list[list[int]] = []
    indices: list[int] = []
    for number, row in enumerate(rows):
        ids = [*row.prompt_ids, *row.completion_ids]
        # Any token can pad. Not the pad token: some models warn about one without a mask.
        inputs.append(ids[:-1] + ids[:1] * (width - len(ids) + 1))
        first = number * width + len(row.prompt_ids) - 1
        indices.extend(first + place for place in row.completion_positions)
    return (
        torch.tensor(inputs, device=policy.device),
        torch.tensor(indices, device=policy.device),
    )


def _from_logits(
    policy: Policy,
    ids_BT: torch.Tensor,
    indices_N: torch.Tensor,
    targets_N: torch.Tensor,
    temperature: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the same for models whose logits are more than a matrix product."""
    # Sharded, this already runs inside the model's forward pass, so its hooks are skipped.
    call = policy.model.forward if policy.is_sharded else policy.model
    logits_BTV = call(input_ids=ids_BT, use_cache=False).logits
    logits_NV = logits_BTV.flatten(0, 1).index_select(0, indices_N).float() / temperature
    all_NV = logits_NV.log_softmax(-1)
    entropy_N = -(all_NV.detach().exp() * all_NV.detach()).sum(-1)
    return all_NV.gather(-1, targets_N[:, None])[:, 0], entropy_N
