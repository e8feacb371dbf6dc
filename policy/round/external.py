"""SampleExternal (SAPO, Algorithm 1): the groups of others that a round trains on.

    lease ──▶ verify ──▶ usable ──▶ choose J by the strategy ──▶ own reading of their text
                │           └─▶ not chosen: released
                └─▶ spent (kept for evaluation, no signal, a copy): consumed, never drawn again

Each group's rewards are reported to the node, which weighs its publisher by them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from policy.choice.advantage import has_signal
from policy.choice.candidates import OwnRecord, candidate_of
from policy.choice.sampling import ExternalStrategy
from policy.choice.scored import External, PassedOver, ScoredGroup, UnusedGroup
from policy.model.loading import Policy
from policy.model.prompting import encode_completion
from policy.rollouts import Question
from policy.round.config import RoundConfig
from policy.surroundings import Interrupted, Surroundings
from policy.update.off_policy import usable_claims
from shoal_ipc import messages as m
from shoal_ipc.unused import Unused
from shoal_wire.types import GroupId


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verified:
    """A leased group that may be trained on."""

    item: m.SampledGroup
    question: Question
    rewards: tuple[float, ...]

    @property
    def group_id(self) -> GroupId:
        return self.item.published.group_id


@dataclass(slots=True)
class _Drawn:
    """External groups on lease while some of them are being chosen."""

    usable: list[_Verified] = field(default_factory=list)
    spent: list[GroupId] = field(default_factory=list)
    """Of no use in any round to come."""
    count: int = 0
    exhausted: bool = False
    """Whether there was nothing more to look at, or no more allowed, before there was enough."""
    passed_over: Counter[str] = field(default_factory=Counter)
    """Why the spent ones are: fields of `PassedOver`."""
    unused: list[UnusedGroup] = field(default_factory=list)
    """The spent ones."""

    def put_aside(self, item: m.SampledGroup, rewards: Sequence[float], why: Unused) -> None:
        """Note that a group is of no use in any round to come."""
        self.spent.append(item.published.group_id)
        one = UnusedGroup(source=item.published, rewards=tuple(rewards), why=why)
        self.unused.append(one)


class ExternalSampling:
    """Draws from the node's buffer for one policy."""

    def __init__(self, policy: Policy, around: Surroundings, own_record: OwnRecord) -> None:
        """`own_record` is read by strategies, and told of what is trained on."""
        self._policy, self._own_record = policy, own_record
        self._tasks, self._link, self._should_stop = around.tasks, around.link, around.should_stop
        self._wall_ms = around.wall_ms

    def lease_ahead(self, config: RoundConfig) -> None:
        """Lease what `sample` asks for first, before the node is busy with own groups."""
        self._link.lease_ahead(min(2 * config.num_external, config.most_looked_at))

    def any_on_offer(self) -> bool:
        """Return whether the node has a group of others to look at. None stays on lease."""
        leased = self._link.sample(1)
        self._link.end_leases(released=[one.published.group_id for one in leased])
        return bool(leased)

    def sample(self, config: RoundConfig) -> External:
        """Lease and verify others' groups, choose J by the strategy, end the other leases.

        Raises:
            Interrupted: all leases are ended then.
        """
        drawn, strategy = self._draw(config), config.strategy
        ids = [one.group_id for one in drawn.usable]
        candidates = [candidate_of(one.item.published, one.rewards) for one in drawn.usable]
        chosen = strategy.choose(candidates, config.num_external, self._own_record)
        for index in chosen:
            self._own_record.add_trained(candidates[index])
        left = [index for index in range(len(candidates)) if index not in chosen]
        # A copy of what is trained on would only be drawn again.
        spent = [i for i in left if strategy.is_spent(candidates[i], self._own_record)]
        for index in spent:
            drawn.put_aside(drawn.usable[index].item, drawn.usable[index].rewards, Unused.COPY)
        self._link.end_leases(
            consumed=drawn.spent,
            released=[ids[index] for index in left if index not in spent],
        )
        groups = tuple(self._own_reading(drawn.usable[index]) for index in chosen)
        # With every place taken, those that are left are no worse than what was chosen.
        refused = len(left) if len(chosen) < config.num_external else 0
        passed_over = PassedOver(**drawn.passed_over, refused=refused)
        return External(
            groups=groups,
            age_s=self._age_of(groups),
            num_drawn=drawn.count,
            num_usable=len(chosen) + len(left) - len(spent),
            exhausted=drawn.exhausted,
            passed_over=passed_over,
            unused=tuple(drawn.unused),
        )

    def _draw(self, config: RoundConfig) -> _Drawn:
        """Lease and verify until there is enough to choose from, or nothing more to draw."""
        wanted, strategy = config.num_external, config.strategy
        budget = config.most_looked_at
        enough = strategy.enough(wanted) + (config.looks_further and wanted > 0)
        drawn = _Drawn()
        while len(drawn.usable) < enough and drawn.count < budget:
            if self._should_stop():
                self._link.release_ahead()
                usable = [one.group_id for one in drawn.usable]
                self._link.end_leases(consumed=drawn.spent, released=usable)
                raise Interrupted
            leased = self._link.sample(min(2 * wanted, budget - drawn.count))
            if not leased:
                break
            self._verify(leased, drawn, strategy)
        drawn.exhausted = len(drawn.usable) < enough
        return drawn

    def _verify(
        self, leased: Sequence[m.SampledGroup], drawn: _Drawn, strategy: ExternalStrategy
    ) -> None:
        """Score leased groups and sort them into usable and spent; tell the node what they got."""
        drawn.count += len(leased)
        leased = self._put_aside_reserved(leased, drawn)
        groups = [(g.published.group.task, g.published.group.completions) for g in leased]
        all_rewards = self._tasks.verify(groups)
        questions = self._tasks.questions([task for task, _ in groups])
        reports = []
        for item, question, rewards in zip(leased, questions, all_rewards, strict=True):
            published = item.published
            texts = [completion.text for completion in published.group.completions]
            if strategy.teaches(rewards, texts, tagged=question.tagged):
                one = _Verified(item=item, question=question, rewards=tuple(rewards))
                drawn.usable.append(one)
            else:
                why = _why_spent(rewards)
                drawn.put_aside(item, rewards, why)
                drawn.passed_over[why] += 1
            reports.append(
                m.GroupReport(
                    group_id=published.group_id,
                    publisher=published.publisher,
                    rewards=strategy.worth(rewards, texts, tagged=question.tagged),
                )
            )
        if reports:
            self._link.report(reports)

    def _put_aside_reserved(
        self, leased: Sequence[m.SampledGroup], drawn: _Drawn
    ) -> list[m.SampledGroup]:
        """Return what may be trained on. The rest is worth nothing, whatever it would earn."""
        kept, reports = [], []
        tasks = [item.published.group.task for item in leased]
        for item, is_reserved in zip(leased, self._tasks.reserved(tasks), strict=True):
            if not is_reserved:
                kept.append(item)
                continue
            published = item.published
            nothing = (0.0,) * len(published.group.completions)
            drawn.put_aside(item, nothing, Unused.RESERVED)
            reports.append(
                m.GroupReport(
                    group_id=published.group_id, publisher=published.publisher, rewards=nothing
                )
            )
        if reports:
            drawn.passed_over["reserved"] += len(reports)
            self._link.report(reports)
        return kept

    def _age_of(self, groups: Sequence[ScoredGroup]) -> float | None:
        """Return the mean of seconds since the groups were made, by their publishers' clocks."""
        made = [group.source.created_ms for group in groups if group.source is not None]
        return max(0.0, self._wall_ms() - sum(made) / len(made)) / 1000 if made else None

    def _own_reading(self, one: _Verified) -> ScoredGroup:
        """Re-encode others' text as if the own policy had produced it (section 3.2)."""
        source = one.item.published
        completions = source.group.completions
        encoded = [encode_completion(self._policy, c.text, c.finish_reason) for c in completions]
        same_tokenizer = source.policy.tokenizer_digest == self._policy.tokenizer_digest
        return ScoredGroup(
            question=one.question,
            completions=tuple(map(tuple, encoded)),
            rewards=one.rewards,
            external=True,
            source=source,
            claimed=tuple(
                usable_claims(c.logprobs, num_tokens=len(ids), same_tokenizer=same_tokenizer)
                for c, ids in zip(completions, encoded, strict=True)
            ),
        )


def _why_spent(rewards: Sequence[float]) -> Unused:
    """Why a group that teaches nothing does not: a field of `PassedOver`."""
    if has_signal(rewards):
        return Unused.UNREAD
    return Unused.ALL_SAME if any(rewards) else Unused.NO_REWARD
