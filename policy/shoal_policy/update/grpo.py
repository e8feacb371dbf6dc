"""One policy-gradient update: GRPO's clipped token loss (arXiv 2402.03300) and its variants.

    groups ─► rows ─► minibatches ─► micro-batches of similar length ─► accumulated backward ─► step

`objective` defines the loss. A token's weight is fixed before rows are packed, so packing cannot
change the loss. There is no KL term and no reference model by default (SAPO, section 4). Rows with
advantage zero have gradient zero: without a KL term they count in the averages and are not
computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from shoal_policy.model.loading import Policy
from shoal_policy.model.memory import checkpointing, halve_budget, is_out_of_memory
from shoal_policy.model.packed import packing
from shoal_policy.model.reference import adapters_disabled, check_reference
from shoal_policy.model.shards import all_finite, free_gathered, full_tensor_of
from shoal_policy.update.head import ExpectedGradient
from shoal_policy.update.logprobs import completion_logprobs
from shoal_policy.update.objective import (
    GrpoConfig,
    TokenLoss,
    TokenTerms,
    token_gradient,
    token_loss,
)
from shoal_policy.update.off_policy import importance_weights, likely_token_mask
from shoal_policy.update.ranks import ProcessGroup
from shoal_policy.update.rows import (
    TrainGroup,
    TrainingRow,
    assign_token_weights,
    batch_tokens,
    make_rows,
    micro_batches,
    pack,
    should_pack,
    split_minibatches,
)
from shoal_policy.update.stats import (
    Nonfinite,
    NonFiniteCause,
    Totals,
    UpdateStats,
    build_stats,
    merge_totals,
)
from shoal_settings.schema import Settings

CPU_TOKENS = 2048
"""Tokens of a forward pass above which a CPU gains nothing from more: its caches are full."""

__all__ = [
    "GrpoConfig",
    "NonFiniteCause",
    "Nonfinite",
    "TrainGroup",
    "UpdateStats",
    "build_optimizer",
    "make_optimizer",
    "pack",
    "update",
]


def make_optimizer(policy: Policy, *, lr: float) -> Any:
    """Return AdamW over the policy's trainable weights, without weight decay.

    Two parameter groups, matrices before vectors, as in every checkpoint.
    """
    trainable = [weight for weight in policy.model.parameters() if weight.requires_grad]
    groups = [[w for w in trainable if w.ndim > 1], [w for w in trainable if w.ndim <= 1]]
    fused = policy.device.type in ("cpu", "cuda") and not policy.is_sharded
    return torch.optim.AdamW(
        [{"params": group} for group in groups if group], lr=lr, weight_decay=0.0, fused=fused
    )


def build_optimizer(settings: Settings, policy: Policy) -> Any:
    """Return the optimiser that settings ask for, in the trainer, every rank and experiments."""
    return make_optimizer(policy, lr=settings.learning_rate)


def update(
    policy: Policy,
    optimizer: Any,
    groups: Sequence[TrainGroup],
    config: GrpoConfig,
    reference: Policy | None = None,
    process_group: ProcessGroup | None = None,
) -> UpdateStats:
    """Change the policy's weights by at most ``config.epochs × config.minibatches`` steps.

    A step is skipped and counted if all its rows have advantage zero, or if its loss or gradient is
    not finite. `reference` is the policy that ``config.kl_beta`` > 0 measures from;
    `process_group` are the ranks that share the work, each with the same groups.
    Deterministic on CPU. Raises ValueError for malformed groups or an unsuitable reference.
    """
    if config.kl_beta and reference is None:
        raise ValueError("kl_beta > 0 needs a reference policy")
    if reference is not None:
        check_reference(policy, reference)
    rows_of_groups, too_long = make_rows(policy, groups, config)
    minibatches = [
        assign_token_weights([row for rows in part for row in rows], config)
        for part in split_minibatches(rows_of_groups, config.minibatches)
    ]
    process_group = process_group or ProcessGroup()
    run = _Update(policy, optimizer, config, reference if config.kl_beta else None, process_group)
    if config.minibatches > 1:
        # The ratio is relative to the policy before the first step, so later steps need their
        # log-probabilities now; those of the first step are computed on the way.
        later = [row for rows in minibatches[1:] for row in process_group.local_rows(rows)]
        run.compute_start_logprobs(later, next((rows[:1] for rows in minibatches if rows), []))
    for _ in range(config.epochs):
        for number, rows in enumerate(minibatches):
            if not rows:
                run.totals.no_signal += 1
            elif not run.step(rows):
                # What made this pass non-finite would do the same to the next.
                minibatches[number] = []
    trained = [row for rows in minibatches for row in rows]
    return build_stats(merge_totals(process_group.all_gather(run.totals)), trained, too_long)


class _Update:
    """The steps of one update with their running totals."""

    def __init__(
        self,
        policy: Policy,
        optimizer: Any,
        config: GrpoConfig,
        reference: Policy | None,
        process_group: ProcessGroup,
    ) -> None:
        self._policy, self._optimizer = policy, optimizer
        self._config, self._reference, self._process_group = config, reference, process_group
        self.totals = Totals(token_budget=config.token_budget)

    def compute_start_logprobs(self, rows: list[TrainingRow], filler: list[TrainingRow]) -> None:
        """Compute own log-probabilities of rows that are trained on after weights have changed.

        `filler` is a row for passes that other ranks need and this one does not.
        """
        for row in rows:
            if (
                row.generation_logprobs is not None
                and row.sampling_logprobs is None
                and not row.external
            ):
                row.start_logprobs = row.generation_logprobs
        missing = [
            row for row in rows if row.start_logprobs is None and self._needs_start_logprobs(row)
        ]
        packed, batches = self._batches(missing)
        num_extra = self._num_extra_passes(batches)
        with torch.no_grad():
            for batch in batches:
                found = self._logprobs(self._policy, batch, packed=packed)
                self._set_start_logprobs(batch, found.logprobs)
            for _ in range(num_extra):
                self._logprobs(self._policy, filler, packed=False)

    def _num_extra_passes(self, batches: list[list[TrainingRow]]) -> int:
        """Return how many passes other ranks make beyond these."""
        return self._process_group.num_passes(len(batches)) - len(batches)

    @staticmethod
    def _needs_start_logprobs(row: TrainingRow) -> bool:
        return row.external or row.sampling_logprobs is not None or row.old_logprobs is None

    def step(self, rows: list[TrainingRow]) -> bool:
        """Take one optimiser step over `rows`; return False, and skip it, if not finite."""
        self._optimizer.zero_grad(set_to_none=True)
        saved = replace(self.totals)
        own_loss = self._backward(self._process_group.local_rows(rows), filler=rows[:1])
        loss_sum = self._process_group.all_reduce(own_loss)
        limit = self._config.max_grad_norm if self._config.max_grad_norm > 0 else math.inf
        norm = math.nan
        if math.isfinite(loss_sum):
            weights = self._policy.model.parameters()
            norm = float(full_tensor_of(torch.nn.utils.clip_grad_norm_(weights, limit)))
        finite = math.isfinite(norm)
        if finite:
            self._optimizer.step()
            self.totals.losses.append(loss_sum)
            self.totals.norms.append(norm)
        self._optimizer.zero_grad(set_to_none=True)
        if not finite:
            # The totals of this step may not be finite either.
            self.totals = replace(saved, token_budget=self.totals.token_budget)
            self.totals.nonfinite.append(self._diagnose(rows))
        return finite

    def _batches(self, rows: list[TrainingRow]) -> tuple[bool, list[list[TrainingRow]]]:
        """Return micro-batches of these rows, and whether to pack them."""
        budget = self.totals.token_budget
        if self._policy.device.type == "cpu":
            budget = min(budget, CPU_TOKENS)
        packed = should_pack(self._policy, rows, budget)
        return packed, micro_batches(rows, budget, packed=packed)

    def _backward(self, rows: list[TrainingRow], filler: list[TrainingRow]) -> float:
        """Accumulate the gradient; on out of memory, start over with smaller micro-batches.

        Re-raises where other ranks would have to start over too.
        """
        while True:
            saved = replace(self.totals)
            packed, batches = self._batches(rows)
            try:
                return self._accumulate(batches, filler, packed=packed)
            except (MemoryError, RuntimeError) as error:
                if self._process_group.is_lockstep or not is_out_of_memory(error):
                    raise
                sizes = [(len(batch), batch_tokens(batch, packed=packed)) for batch in batches]
                budget = halve_budget(saved.token_budget, sizes)
                if budget is None:
                    raise
            # Outside the handler, since the error references the tensors until here.
            # Tokens of a server stay counted: each counts once, when first computed.
            self.totals = replace(
                saved,
                token_budget=budget,
                sampling_tokens=self.totals.sampling_tokens,
                sampling_logp_gap=self.totals.sampling_logp_gap,
            )
            self._optimizer.zero_grad(set_to_none=True)

    def _accumulate(
        self, batches: list[list[TrainingRow]], filler: list[TrainingRow], *, packed: bool
    ) -> float:
        loss_sum = 0.0
        model, keeps = self._policy.model, not self._config.gradient_checkpointing
        if self._reference is not None:
            self._compute_reference_logprobs(self._reference, batches, filler, packed=packed)
        num_extra = self._num_extra_passes(batches)
        # Both also around backward, which recomputes checkpointed layers.
        with nullcontext() if keeps else checkpointing(model):
            with packing(model) if packed else nullcontext():
                for batch in batches:
                    loss = self._loss(batch, packed=packed)
                    loss.backward()
                    loss_sum += float(loss.detach())
                    if not math.isfinite(loss_sum) and not self._process_group.is_lockstep:
                        break
            for _ in range(num_extra):
                found = self._logprobs(self._policy, filler, packed=False)
                (0.0 * found.logprobs.sum()).backward()
        return loss_sum

    def _loss(self, rows: list[TrainingRow], *, packed: bool) -> torch.Tensor:
        """Return this micro-batch's part of the step's loss; add its tokens to the totals."""
        config = self._config
        known = [row.reference_logprobs for row in rows if row.reference_logprobs is not None]
        reference_N = torch.cat(known) if known else None
        expected: ExpectedGradient | None = None
        if not any(self._has_unknown_weight(row) for row in rows):
            before = self._terms(rows, reference_N)

            def expected(logprobs_n: torch.Tensor, part: slice) -> torch.Tensor:
                return token_gradient(logprobs_n, before.of(part), config)

        found = self._logprobs(self._policy, rows, packed=packed, expected=expected)
        self._set_start_logprobs(rows, found.logprobs)
        terms = self._terms(rows, reference_N)
        made = token_loss(found.logprobs, terms, config)
        self._count(terms, made, found.entropy)
        return made.loss

    def _has_unknown_weight(self, row: TrainingRow) -> bool:
        """Return whether this row's weight needs own log-probabilities that are not known yet."""
        weighs = row.external and row.unscored_mask is not None
        return row.start_logprobs is None and (weighs or row.sampling_logprobs is not None)

    def _terms(self, rows: list[TrainingRow], reference_N: torch.Tensor | None) -> TokenTerms:
        device = self._policy.device
        sizes = [len(row.completion_positions) for row in rows]
        sizes_B = torch.tensor(sizes, device=device)
        advantage_N, weight_N = torch.tensor(
            [[row.advantage for row in rows], [row.weight for row in rows]], device=device
        ).repeat_interleave(sizes_B, dim=1, output_size=sum(sizes))
        unknown = torch.full((max(sizes),), math.nan, device=device)
        old = [
            unknown[:size] if row.old_logprobs is None else row.old_logprobs
            for row, size in zip(rows, sizes, strict=True)
        ]
        weighs = any(row.importance is not None for row in rows)
        return TokenTerms(
            old=torch.cat(old),
            advantage=advantage_N,
            weight=weight_N,
            importance=_importance(rows) if weighs else None,
            reference=reference_N,
        )

    def _count(self, terms: TokenTerms, made: TokenLoss, entropy_N: torch.Tensor) -> None:
        config, totals = self._config, self.totals
        ratio_N, advantage_N = made.ratio.detach(), terms.advantage
        low, high = 1 - config.epsilon_low, 1 + config.epsilon_high
        figures = [
            ((ratio_N < low) & (advantage_N < 0)).sum(),
            ((ratio_N > high) & (advantage_N > 0)).sum(),
            ratio_N.max(),
            entropy_N.sum(),
            ratio_N.new_zeros(()) if made.kl is None else made.kl.detach().sum(),
        ]
        # Read together, since each read waits for the device.
        read = torch.stack([figure.double() for figure in figures]).tolist()
        totals.tokens += len(ratio_N)
        totals.low += read[0]
        totals.high += read[1]
        totals.ratio_max = max(totals.ratio_max, read[2])
        totals.entropy += read[3]
        totals.kl += read[4]

    def _logprobs(
        self, policy: Policy, rows: list[TrainingRow], *, packed: bool, expected: Any = None
    ) -> Any:
        return completion_logprobs(
            policy,
            rows,
            temperature=self._config.temperature,
            packed=packed,
            expected=expected,
        )

    def _set_start_logprobs(self, rows: list[TrainingRow], logprobs_N: torch.Tensor) -> None:
        """Set the start log-probabilities, and the weights that follow, of rows without any."""
        parts = logprobs_N.detach().split([len(row.completion_positions) for row in rows])
        new = [
            (row, part) for row, part in zip(rows, parts, strict=True) if row.start_logprobs is None
        ]
        for row, part in new:
            row.start_logprobs = part
            if row.external and row.unscored_mask is not None:
                row.importance = likely_token_mask(part, row.unscored_mask)
        served = [
            (row, part, row.sampling_logprobs)
            for row, part in new
            if row.sampling_logprobs is not None and not row.external
        ]
        if not served:
            return
        gaps = []
        for row, part, claimed in served:
            # Sampled by another version or in another precision: truncated importance sampling.
            row.importance = importance_weights(part, claimed)
            gaps.append((part - claimed).abs().sum())
            self.totals.sampling_tokens += len(part)
        # Read together, since each read waits for the device.
        self.totals.sampling_logp_gap += sum(torch.stack(gaps).tolist())

    def _compute_reference_logprobs(
        self,
        reference: Policy,
        batches: list[list[TrainingRow]],
        filler: list[TrainingRow],
        *,
        packed: bool,
    ) -> None:
        """Compute the reference's log-probabilities of rows that have none yet."""
        missing = [rows for rows in batches if any(row.reference_logprobs is None for row in rows)]
        num_extra = self._num_extra_passes(missing)
        with torch.no_grad(), adapters_disabled(self._policy, reference):
            for rows in missing:
                if (
                    reference.model is not self._policy.model
                ):  # otherwise its attention is set already
                    packed = should_pack(reference, rows, self.totals.token_budget)
                found_N = self._logprobs(reference, rows, packed=packed).logprobs
                parts = found_N.split([len(row.completion_positions) for row in rows])
                for row, part in zip(rows, parts, strict=True):
                    row.reference_logprobs = part
            for _ in range(num_extra):
                self._logprobs(reference, filler, packed=False)
            free_gathered(reference)

    def _diagnose(self, rows: list[TrainingRow]) -> Nonfinite:
        """Find the groups that made a step non-finite, by computing each group alone."""
        numbers = sorted({row.group for row in rows})
        if not all_finite(weight.detach() for weight in self._policy.model.parameters()):
            return Nonfinite(cause=NonFiniteCause.WEIGHTS, groups=tuple(numbers))
        # A separate instance, so that the totals count each token once.
        alone = _Update(
            self._policy, self._optimizer, self._config, self._reference, self._process_group
        )
        bad_groups = []
        for number in numbers:
            of_group = [row for row in rows if row.group == number]
            loss = alone._backward(of_group, filler=of_group[:1])
            gradients = (w.grad for w in self._policy.model.parameters() if w.grad is not None)
            if not (math.isfinite(loss) and all_finite(gradients)):
                bad_groups.append(number)
            self._optimizer.zero_grad(set_to_none=True)
        if bad_groups:
            return Nonfinite(cause=NonFiniteCause.GROUPS, groups=tuple(bad_groups))
        return Nonfinite(cause=NonFiniteCause.TOGETHER, groups=tuple(numbers))


def _importance(rows: list[TrainingRow]) -> torch.Tensor:
    """Return the importance weights of all rows' tokens, [N]; 1 for a row without any."""
    return torch.cat(
        [
            torch.ones_like(row.start_logprobs) if row.importance is None else row.importance
            for row in rows
            if row.start_logprobs is not None
        ]
    )
