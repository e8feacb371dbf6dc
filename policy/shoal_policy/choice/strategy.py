"""Chooses the external groups that a round trains on (SAPO, Algorithm 1, SampleExternal). Pure.

    sampled from the node ─▶ verified ─▶ has signal? ─▶ choose J by order and ceilings ─▶
    completions

A strategy is words joined by ``+``, most important first. Each word is one row of `WORDS`. To add a
word, add a row here, its name in `shoal_settings.strategy` and a line in docs/losses.md, which
compares them; tests compare the three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from shoal_policy.choice.sources import Candidate, SourceQuota
from shoal_settings.strategy import strategy_words

OVERSAMPLE_FACTOR: Final = 4
"""Usable groups to find per slot where a strategy chooses among them."""

Order = Callable[[Candidate, Sequence[Candidate]], float]
"""A candidate's rank given those chosen so far; the lowest is chosen first."""
AdvantageTest = Callable[[float], bool]
"""Returns whether a completion with this advantage is trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyWord:
    """One word of a strategy. It has no effect where a function is None."""

    name: str
    does: str
    """One line, as listed in docs/losses.md."""
    order: Order | None = None
    trains_on: AdvantageTest | None = None


def _family(one: Candidate, chosen: Sequence[Candidate]) -> float:
    return sum(other.family == one.family for other in chosen)


def _is_positive(advantage: float) -> bool:
    return advantage > 0


WORDS: Final = (
    StrategyWord(
        name="uniform",
        does="the paper's experiment: pass over groups without signal, then as drawn",
    ),
    StrategyWord(
        name="positive",
        does="of others' groups, only completions with positive advantage are trained on",
        trains_on=_is_positive,
    ),
    StrategyWord(name="balance", does="task families in turn", order=_family),
)
"""All words. The first is the paper's controlled experiment (SAPO, section 6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalStrategy:
    """The choice of external groups, and of their completions to train on."""

    orders: tuple[Order, ...] = ()
    """Most important first; ties keep the order of sampling, which is random."""
    advantage_tests: tuple[AdvantageTest, ...] = ()
    has_ceilings: bool = False
    """True if sources have ceilings (`shoal_policy.choice.sources`). The paper has none."""

    def num_candidates(self, wanted: int) -> int:
        """Return the number of usable groups after which sampling stops."""
        return wanted * (OVERSAMPLE_FACTOR if self.orders or self.has_ceilings else 1)

    def choose(
        self, candidates: Sequence[Candidate], wanted: int, sources: SourceQuota | None = None
    ) -> list[int]:
        """Return the indices of at most `wanted` candidates, in the order of choice.

        `sources` is what each source gave before this round; it does not change.
        """
        left = list(range(len(candidates)))
        sources = (sources or SourceQuota()).copy()
        full_round = wanted * sum(one.signal for one in candidates) / max(1, len(candidates))
        chosen: list[Candidate] = []
        taken: list[int] = []
        while left and len(taken) < wanted:
            best = min(left, key=lambda i: self._rank(candidates[i], chosen, sources))
            left.remove(best)
            one = candidates[best]
            if self.has_ceilings and sources.is_exceeded(one, full_round):
                continue
            taken.append(best)
            chosen.append(one)
            sources.add(one)
        return taken

    def counts_towards_target(self, one: Candidate, sources: SourceQuota) -> bool:
        """Return whether a usable group counts towards `num_candidates`."""
        return not (self.has_ceilings and sources.is_above_mean(one.network))

    def select_completions(self, advantages: Sequence[float]) -> list[int]:
        """Return the indices of a group's completions to train on."""
        tests = self.advantage_tests
        return [i for i, value in enumerate(advantages) if all(test(value) for test in tests)]

    def _rank(
        self, one: Candidate, chosen: Sequence[Candidate], sources: SourceQuota
    ) -> list[float]:
        ranks = [order(one, chosen) for order in self.orders]
        return [*ranks, sources.rank(one)] if self.has_ceilings else ranks


def parse_strategy(text: str) -> ExternalStrategy:
    """Return the strategy of a name such as ``positive+balance``.

    Raises:
        StrategyError: a word is unknown or repeated.
    """
    by_name = {word.name: word for word in WORDS}
    words = [by_name[name] for name in strategy_words(text)]
    return ExternalStrategy(
        orders=tuple(word.order for word in words if word.order),
        advantage_tests=tuple(word.trains_on for word in words if word.trains_on),
        has_ceilings=words != [WORDS[0]],
    )
