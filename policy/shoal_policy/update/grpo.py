"""One policy-gradient update: GRPO's clipped token loss (arXiv 2402.03300) and its variants.

    groups ─► rows ─► minibatches ─► micro-batches of similar length ─► backward, added up ─► step

`objective` has the loss itself. What a token weighs in it is fixed before rows are packed,
so packing cannot change the loss. There is no KL term and no reference model unless asked for
(SAPO, section 4). Rows with advantage zero have gradient zero: without a KL term they count in the
averages and are never computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from shoal_policy.model.loading import Policy
from shoal_policy.model.memory import checkpointing, halved_budget, is_out_of_memory
from shoal_policy.model.packed import packing
from shoal_policy.model.reference import base_alone, check_reference
from shoal_policy.model.sharding import all_finite, release, whole_tensor
from shoal_policy.update.head import Expected
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
    batch_tokens,
    make_rows,
    micro_batches,
    pack,
    packing_pays,
    split_minibatches,
    weighted,
)
from shoal_policy.update.stats import (
    Nonfinite,
    NonFiniteCause,
    Totals,
    UpdateStats,
    merged,
    summed_up,
)
from shoal_settings.schema import Settings

CPU_TOKENS = 2048
"""Tokens in one forward pass from which on a CPU gains nothing by more: its caches are full."""

__all__ = [
    "GrpoConfig",
    "NonFiniteCause",
    "Nonfinite",
    "TrainGroup",
    "UpdateStats",
    "make_optimizer",
    "optimizer_of",
    "pack",
    "update",
]


def make_optimizer(policy: Policy, *, lr: float) -> Any:
    """AdamW over the policy's trainable weights, without decay.

    Matrices stand before vectors, in two groups, as in every checkpoint so far.
    """
    trainable = [weight for weight in policy.model.parameters() if weight.requires_grad]
    groups = [[w for w in trainable if w.ndim > 1], [w for w in trainable if w.ndim <= 1]]
    fused = policy.device.type in ("cpu", "cuda") and not policy.in_root
    return torch.optim.AdamW(
        [{"params": group} for group in groups if group], lr=lr, weight_decay=0.0, fused=fused
    )


def optimizer_of(settings: Settings, policy: Policy) -> Any:
    """Return the optimiser that settings ask for: every trainer's, rank's and experiment's."""
    return make_optimizer(policy, lr=settings.learning_rate)


def update(
    policy: Policy,
    optimizer: Any,
    groups: Sequence[TrainGroup],
    config: GrpoConfig,
    reference: Policy | None = None,
    team: ProcessGroup | None = None,
) -> UpdateStats:
    """Change the policy's weights by ``config.epochs × config.minibatches`` steps at most.

    A step whose rows all have advantage zero, or whose loss or gradient is not finite, is
    not taken and is counted. `reference` is what ``config.kl_beta`` > 0 measures from;
    `team` are the processes that share the work, each with the same groups.
    Deterministic on CPU. Raises ValueError for malformed groups or a reference that is amiss.
    """
    if config.kl_beta and reference is None:
        raise ValueError("kl_beta > 0 needs a reference policy")
    if reference is not None:
        check_reference(policy, reference)
    rows_of_groups, too_long = make_rows(policy, groups, config)
    minibatches = [
        weighted([row for rows in part for row in rows], config)
        for part in split_minibatches(rows_of_groups, config.minibatches)
    ]
    team = team or ProcessGroup()
    run = _Update(policy, optimizer, config, reference if config.kl_beta else None, team)
    if config.minibatches > 1:
        # The ratio is taken against the policy before the first step, so what later steps
        # need of it must be computed now; the first step's rows get theirs on the way.
        later = [row for rows in minibatches[1:] for row in team.share(rows)]
        run.fill_start(later, next((rows[:1] for rows in minibatches if rows), []))
    for _ in range(config.epochs):
        for number, rows in enumerate(minibatches):
            if not rows:
                run.totals.no_signal += 1
            elif not run.step(rows):
                # What spoilt this pass would spoil the next.
                minibatches[number] = []
    trained = [row for rows in minibatches for row in rows]
    return summed_up(merged(team.collect(run.totals)), trained, too_long)


class _Update:
    """The steps of one update, and what they add up to."""

    def __init__(
        self,
        policy: Policy,
        optimizer: Any,
        config: GrpoConfig,
        reference: Policy | None,
        team: ProcessGroup,
    ) -> None:
        self._policy, self._optimizer = policy, optimizer
        self._config, self._reference, self._team = config, reference, team
        self.totals = Totals(token_budget=config.token_budget)

    def fill_start(self, rows: list[TrainingRow], spare: list[TrainingRow]) -> None:
        """Compute own log-probabilities of rows whose turn comes after weights have changed.

        `spare` is a row for passes that others need and this process does not.
        """
        for row in rows:
            if row.known is not None and row.claimed is None and not row.external:
                row.start = row.known
        missing = [row for row in rows if row.start is None and self._needs_start(row)]
        packed, batches = self._batches(missing)
        others = self._passes_of_others(batches)
        with torch.no_grad():
            for batch in batches:
                found = self._logprobs(self._policy, batch, packed=packed)
                self._keep_start(batch, found.logprobs)
            for _ in range(others):
                self._logprobs(self._policy, spare, packed=False)

    def _passes_of_others(self, batches: list[list[TrainingRow]]) -> int:
        """Return how many more passes than these another process makes, asked before the first."""
        return self._team.passes(len(batches)) - len(batches)

    @staticmethod
    def _needs_start(row: TrainingRow) -> bool:
        return row.external or row.claimed is not None or row.old is None

    def step(self, rows: list[TrainingRow]) -> bool:
        """One optimiser step over `rows`; False, and no step, when a number is not finite."""
        self._optimizer.zero_grad(set_to_none=True)
        saved = replace(self.totals)
        own_loss = self._backward(self._team.share(rows), spare=rows[:1])
        loss_sum = self._team.add_up(own_loss)
        limit = self._config.max_grad_norm if self._config.max_grad_norm > 0 else math.inf
        norm = math.nan
        if math.isfinite(loss_sum):
            weights = self._policy.model.parameters()
            norm = float(whole_tensor(torch.nn.utils.clip_grad_norm_(weights, limit)))
        finite = math.isfinite(norm)
        if finite:
            self._optimizer.step()
            self.totals.losses.append(loss_sum)
            self.totals.norms.append(norm)
        self._optimizer.zero_grad(set_to_none=True)
        if not finite:
            # What was summed up so far of this step may not be finite either.
            self.totals = replace(saved, token_budget=self.totals.token_budget)
            self.totals.nonfinite.append(self._diagnose(rows))
        return finite

    def _batches(self, rows: list[TrainingRow]) -> tuple[bool, list[list[TrainingRow]]]:
        """Micro-batches of these rows, and whether they are to be packed."""
        budget = self.totals.token_budget
        if self._policy.device.type == "cpu":
            budget = min(budget, CPU_TOKENS)
        packed = packing_pays(self._policy, rows, budget)
        return packed, micro_batches(rows, budget, packed=packed)

    def _backward(self, rows: list[TrainingRow], spare: list[TrainingRow]) -> float:
        """Add up the gradient; start over with smaller micro-batches when memory runs out.

        Not where others would have to start over with this process.
        """
        while True:
            saved = replace(self.totals)
            packed, batches = self._batches(rows)
            try:
                return self._accumulate(batches, spare, packed=packed)
            except (MemoryError, RuntimeError) as error:
                if self._team.in_step or not is_out_of_memory(error):
                    raise
                sizes = [(len(batch), batch_tokens(batch, packed=packed)) for batch in batches]
                budget = halved_budget(saved.token_budget, sizes)
                if budget is None:
                    raise
            # Outside the handler: until here the error holds on to what was computed.
            # A server's rows stay counted: each is once, when it is first computed.
            self.totals = replace(
                saved,
                token_budget=budget,
                served_tokens=self.totals.served_tokens,
                served_gap=self.totals.served_gap,
            )
            self._optimizer.zero_grad(set_to_none=True)

    def _accumulate(
        self, batches: list[list[TrainingRow]], spare: list[TrainingRow], *, packed: bool
    ) -> float:
        loss_sum = 0.0
        model, keeps = self._policy.model, not self._config.gradient_checkpointing
        if self._reference is not None:
            self._fill_reference(self._reference, batches, spare, packed=packed)
        others = self._passes_of_others(batches)
        # Both around backward, too: checkpointed layers are computed again there.
        with nullcontext() if keeps else checkpointing(model):
            with packing(model) if packed else nullcontext():
                for batch in batches:
                    loss = self._loss(batch, packed=packed)
                    loss.backward()
                    loss_sum += float(loss.detach())
                    if not math.isfinite(loss_sum) and not self._team.in_step:
                        break
            for _ in range(others):
                found = self._logprobs(self._policy, spare, packed=False)
                (0.0 * found.logprobs.sum()).backward()
        return loss_sum

    def _loss(self, rows: list[TrainingRow], *, packed: bool) -> torch.Tensor:
        """This micro-batch's share of the step's loss; adds its tokens to the totals."""
        config = self._config
        known = [row.reference for row in rows if row.reference is not None]
        reference_N = torch.cat(known) if known else None
        expected: Expected | None = None
        if not any(self._is_weighed(row) for row in rows):
            before = self._terms(rows, reference_N)

            def expected(logprobs_n: torch.Tensor, part: slice) -> torch.Tensor:
                return token_gradient(logprobs_n, before.of(part), config)

        found = self._logprobs(self._policy, rows, packed=packed, expected=expected)
        self._keep_start(rows, found.logprobs)
        terms = self._terms(rows, reference_N)
        made = token_loss(found.logprobs, terms, config)
        self._count(terms, made, found.entropy)
        return made.loss

    def _is_weighed(self, row: TrainingRow) -> bool:
        """Return whether this row's weight needs its log-probabilities, and is not known yet."""
        weighs = row.external and row.unread is not None
        return row.start is None and (weighs or row.claimed is not None)

    def _terms(self, rows: list[TrainingRow], reference_N: torch.Tensor | None) -> TokenTerms:
        device = self._policy.device
        sizes = [len(row.said) for row in rows]
        sizes_B = torch.tensor(sizes, device=device)
        advantage_N, weight_N = torch.tensor(
            [[row.advantage for row in rows], [row.weight for row in rows]], device=device
        ).repeat_interleave(sizes_B, dim=1, output_size=sum(sizes))
        unknown = torch.full((max(sizes),), math.nan, device=device)
        old = [
            unknown[:size] if row.old is None else row.old
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
        # Read at once: each reading waits for the device.
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

    def _keep_start(self, rows: list[TrainingRow], logprobs_N: torch.Tensor) -> None:
        """Note own log-probabilities at the start, of rows that have none, and what follows."""
        parts = logprobs_N.detach().split([len(row.said) for row in rows])
        new = [(row, part) for row, part in zip(rows, parts, strict=True) if row.start is None]
        for row, part in new:
            row.start = part
            if row.external and row.unread is not None:
                row.importance = likely_token_mask(part, row.unread)
        served = [
            (row, part, row.claimed)
            for row, part in new
            if row.claimed is not None and not row.external
        ]
        if not served:
            return
        gaps = []
        for row, part, claimed in served:
            # Another version's, or another arithmetic's: truncated importance sampling.
            row.importance = importance_weights(part, claimed)
            gaps.append((part - claimed).abs().sum())
            self.totals.served_tokens += len(part)
        # Read at once: each reading waits for the device.
        self.totals.served_gap += sum(torch.stack(gaps).tolist())

    def _fill_reference(
        self,
        reference: Policy,
        batches: list[list[TrainingRow]],
        spare: list[TrainingRow],
        *,
        packed: bool,
    ) -> None:
        """Compute the reference's log-probabilities of rows that have none yet."""
        missing = [rows for rows in batches if any(row.reference is None for row in rows)]
        others = self._passes_of_others(missing)
        with torch.no_grad(), base_alone(self._policy, reference):
            for rows in missing:
                if reference.model is not self._policy.model:  # else its attention is set already
                    packed = packing_pays(reference, rows, self.totals.token_budget)
                found_N = self._logprobs(reference, rows, packed=packed).logprobs
                parts = found_N.split([len(row.said) for row in rows])
                for row, part in zip(rows, parts, strict=True):
                    row.reference = part
            for _ in range(others):
                self._logprobs(reference, spare, packed=False)
            release(reference)

    def _diagnose(self, rows: list[TrainingRow]) -> Nonfinite:
        """Find who spoilt a step, by computing each of its groups alone."""
        numbers = sorted({row.group for row in rows})
        if not all_finite(weight.detach() for weight in self._policy.model.parameters()):
            return Nonfinite(blame=NonFiniteCause.WEIGHTS, groups=tuple(numbers))
        # A copy of its own, so that the totals keep counting each token once.
        alone = _Update(self._policy, self._optimizer, self._config, self._reference, self._team)
        guilty = []
        for number in numbers:
            of_group = [row for row in rows if row.group == number]
            loss = alone._backward(of_group, spare=of_group[:1])
            gradients = (w.grad for w in self._policy.model.parameters() if w.grad is not None)
            if not (math.isfinite(loss) and all_finite(gradients)):
                guilty.append(number)
            self._optimizer.zero_grad(set_to_none=True)
        if guilty:
            return Nonfinite(blame=NonFiniteCause.GROUPS, groups=tuple(guilty))
        return Nonfinite(blame=NonFiniteCause.TOGETHER, groups=tuple(numbers))


def _importance(rows: list[TrainingRow]) -> torch.Tensor:
    """Importance weights of all rows' tokens, [N]; 1 where a row has none."""
    return torch.cat(
        [
            torch.ones_like(row.start) if row.importance is None else row.importance
            for row in rows
            if row.start is not None
        ]
    )
