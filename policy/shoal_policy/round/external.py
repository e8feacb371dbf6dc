"""SampleExternal (SAPO, Algorithm 1): the groups of others that a round trains on.

    lease ──▶ verify ──▶ usable ──▶ choose J by the strategy ──▶ own reading of their text
                │           └─▶ not chosen: released              └─▶ unreadable: choose again
                ├─▶ spent (kept for evaluation, no signal): consumed, never drawn again
                └─▶ waiting for this node's own server or judge: released

Each group's rewards are reported to the node, which weighs its publisher by them. What is released
may be drawn again in another round: its question and rewards are remembered, and not made twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from shoal_base.bounded import MANY, BoundedDict
from shoal_ipc import messages as m
from shoal_ipc.skip_reason import SkipReason
from shoal_policy.choice.advantage import completion_share, group_advantages, has_signal
from shoal_policy.choice.scored import ExternalSample, ScoredGroup, UnusedGroup
from shoal_policy.choice.sources import Candidate, Sources
from shoal_policy.model.loading import Policy
from shoal_policy.model.retokenized import Retokenized, game_reading, retokenize
from shoal_policy.rollouts import Question
from shoal_policy.round.config import RoundConfig
from shoal_policy.tasks import MissingReward
from shoal_policy.trainer_context import Interrupted, TrainerContext
from shoal_tasks.read_parts import read_games
from shoal_tasks.turns import join_messages, split_messages
from shoal_tasks.types import PlayRequest, Split
from shoal_wire.types import Completion, GroupId


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verified:
    """A leased group that may be trained on."""

    item: m.SampledGroup
    question: Question
    rewards: tuple[float, ...]
    candidate: Candidate

    @property
    def group_id(self) -> GroupId:
        return self.item.published.group_id


@dataclass(frozen=True, slots=True)
class _Known:
    """The verification result of a group that was returned to the buffer."""

    question: Question
    rewards: tuple[float, ...]
    signal: float
    """Sum of |advantage| over what would be trained on."""


@dataclass(slots=True)
class _Drawn:
    """The leased external groups from which a round chooses."""

    usable: list[_Verified] = field(default_factory=list)
    num_counted: int = 0
    """Usable groups that count towards what is looked for."""
    spent: list[GroupId] = field(default_factory=list)
    """Groups of no use in any round to come."""
    count: int = 0
    passed_over: Counter[SkipReason] = field(default_factory=Counter)
    """Groups that are not usable, by reason."""
    unused: list[UnusedGroup] = field(default_factory=list)
    """The spent ones."""
    waiting: list[GroupId] = field(default_factory=list)
    """Groups that this node's own server or judge may judge in another round."""

    @property
    def left(self) -> list[GroupId]:
        """The groups that go back to the buffer, if none of them is chosen."""
        return [*(one.group_id for one in self.usable), *self.waiting]

    def put_aside(self, item: m.SampledGroup, rewards: Sequence[float], why: SkipReason) -> None:
        """Note that a group is of no use in any round to come."""
        self.passed_over[why] += 1
        self.spent.append(item.published.group_id)
        one = UnusedGroup(source=item.published, rewards=tuple(rewards), why=why)
        self.unused.append(one)


_SHORT_CHARS: Final = 64
"""Texts of at most so many characters are read once: short answers are often those of another
question, too. Three MB at most."""


class ExternalSampling:
    """Draws from the node's buffer for one policy."""

    def __init__(self, policy: Policy, around: TrainerContext) -> None:
        self._policy, self._sources = policy, Sources()
        self._known: BoundedDict[GroupId, _Known] = BoundedDict()
        self._texts: BoundedDict[tuple[object, ...], Retokenized | None] = BoundedDict(MANY)
        self._tasks, self._link, self._should_stop = around.tasks, around.link, around.should_stop

    def lease_ahead(self, config: RoundConfig) -> None:
        """Lease what `sample` asks for first, before the node is busy with own groups."""
        self._link.lease_ahead(min(2 * config.num_external, config.most_looked_at))

    def sample(self, config: RoundConfig) -> ExternalSample:
        """Lease and verify others' groups, choose J by the strategy, end the other leases.

        Raises:
            Interrupted: all leases are ended then.
        """
        self._sources = self._sources.next_round()
        drawn = self._draw(config)
        groups, chosen = self._choose(drawn, config)
        for one in chosen:
            self._sources.add(one.candidate)
        taken = {one.group_id for one in chosen}
        left = [one for one in drawn.usable if one.group_id not in taken]
        self._report([one for one in drawn.usable if one.group_id not in self._known])
        for one in left:
            self._remember(one)
        released = [group_id for group_id in drawn.left if group_id not in taken]
        self._link.end_leases(consumed=drawn.spent, released=released)
        # With every place taken, those that are left are no worse than what was chosen.
        refused = len(left) if len(chosen) < config.num_external else 0
        drawn.passed_over[SkipReason.OVER_QUOTA] = refused
        return ExternalSample(
            groups=groups,
            num_drawn=drawn.count,
            passed_over=drawn.passed_over,
            unused=tuple(drawn.unused),
        )

    def _choose(
        self, drawn: _Drawn, config: RoundConfig
    ) -> tuple[tuple[ScoredGroup, ...], list[_Verified]]:
        """Choose J groups that can be read as own text; put aside those that cannot."""
        read: dict[GroupId, ScoredGroup | None] = {}
        while True:
            candidates = [one.candidate for one in drawn.usable]
            indices = config.strategy.choose(candidates, config.num_external, self._sources)
            chosen = [drawn.usable[index] for index in indices]
            for one in chosen:
                if one.group_id not in read:
                    read[one.group_id] = self._own_reading(one, config)
            groups = [group for one in chosen if (group := read[one.group_id]) is not None]
            if len(groups) == len(chosen):
                return tuple(groups), chosen
            for one in chosen:
                if read[one.group_id] is None:
                    self._put_aside_unreadable(one, drawn)

    def _put_aside_unreadable(self, one: _Verified, drawn: _Drawn) -> None:
        """Note that what is right in a group cannot be read as own text: it is worth nothing."""
        drawn.usable.remove(one)
        drawn.put_aside(one.item, one.rewards, SkipReason.UNTOKENIZABLE)
        self._report([replace(one, rewards=(0.0,) * len(one.rewards))])

    def _draw(self, config: RoundConfig) -> _Drawn:
        """Lease and verify until there is enough to choose from, or nothing more to draw."""
        wanted, strategy = config.num_external, config.strategy
        budget = config.most_looked_at
        enough = strategy.enough(wanted)
        drawn = _Drawn()
        while drawn.num_counted < enough and drawn.count < budget:
            if self._should_stop():
                self._link.release_ahead()
                self._link.end_leases(consumed=drawn.spent, released=drawn.left)
                raise Interrupted
            leased = self._link.sample(min(2 * wanted, budget - drawn.count))
            if not leased:
                break
            self._verify(leased, drawn, config)
        return drawn

    def _remember(self, one: _Verified) -> None:
        # What may be asked in a peer's own words changes with what this node evaluates itself on.
        if one.item.published.group.task.inline is None:
            self._known[one.group_id] = _Known(one.question, one.rewards, one.candidate.signal)

    def _verify(self, leased: Sequence[m.SampledGroup], drawn: _Drawn, config: RoundConfig) -> None:
        """Score leased groups and sort them into usable and spent."""
        drawn.count += len(leased)
        known = self._judged(leased, drawn, config)
        spent = []
        for item in leased:
            if (judged := known.get(item.published.group_id)) is None:
                continue
            question, rewards = judged.question, judged.rewards
            candidate = _candidate(item, judged.signal)
            one = _Verified(item=item, question=question, rewards=rewards, candidate=candidate)
            if has_signal(rewards):
                drawn.usable.append(one)
                drawn.num_counted += config.strategy.counts(candidate, self._sources)
            else:
                why = SkipReason.ALL_SAME if any(rewards) else SkipReason.NO_REWARD
                drawn.put_aside(item, rewards, why)
                spent.append(one)
        self._report(spent)

    def _report(self, verified: Sequence[_Verified]) -> None:
        """Tell the node what groups earned here: it weighs their publishers by it."""
        reports = [
            m.GroupReport(
                group_id=one.group_id,
                publisher=one.item.published.publisher,
                rewards=one.rewards,
            )
            for one in verified
        ]
        if reports:
            self._link.report(reports)

    def _judged(
        self, leased: Sequence[m.SampledGroup], drawn: _Drawn, config: RoundConfig
    ) -> Mapping[GroupId, _Known]:
        """Return what verification says of each group that may be trained on; once a group."""
        found = {
            group_id: known
            for item in leased
            if (known := self._known.get(group_id := item.published.group_id)) is not None
        }
        new = [item for item in leased if item.published.group_id not in found]
        asked = self._put_aside_reserved(new, drawn)
        groups = [(g.published.group.task, g.published.group.completions) for g, _ in asked]
        rewards = self._tasks.verify(groups)
        for (item, question), scores in zip(asked, rewards, strict=True):
            if isinstance(scores, MissingReward):
                self._leave_unjudged(item, scores, drawn)
                continue
            earned = tuple(scores)
            known = _Known(question, earned, signal_of(earned, config))
            found[item.published.group_id] = known
        return found

    def _leave_unjudged(self, item: m.SampledGroup, why: MissingReward, drawn: _Drawn) -> None:
        """Note that this node's own server or judge gave a group nothing.

        Its publisher is not weighed by it: the fault may be this node's own.
        """
        if why is MissingReward.WAITS:
            drawn.passed_over[SkipReason.UNSCORED] += 1
            drawn.waiting.append(item.published.group_id)
        else:
            drawn.put_aside(item, (), SkipReason.UNSCORED)

    def _put_aside_reserved(
        self, leased: Sequence[m.SampledGroup], drawn: _Drawn
    ) -> list[tuple[m.SampledGroup, Question]]:
        """Return what may be trained on, with its question.

        The rest is worth nothing, whatever it would earn.
        """
        kept, reports = [], []
        tasks = [item.published.group.task for item in leased]
        for item, question in zip(leased, self._tasks.for_training(tasks), strict=True):
            if isinstance(question, Question):
                kept.append((item, question))
                continue
            if question is Split.UNAVAILABLE:
                self._leave_unjudged(item, MissingReward.WAITS, drawn)
                continue
            published = item.published
            nothing = (0.0,) * len(published.group.completions)
            drawn.put_aside(item, nothing, SkipReason.HELD_OUT)
            reports.append(
                m.GroupReport(
                    group_id=published.group_id, publisher=published.publisher, rewards=nothing
                )
            )
        if reports:
            self._link.report(reports)
        return kept

    def _own_reading(self, one: _Verified, config: RoundConfig) -> ScoredGroup | None:
        """Re-encode others' text as if the own policy had produced it (section 3.2).

        Only completions that can be read whole and exactly are of the group: what is rewarded is
        what is trained on. None where what is left has no signal.
        """
        source = one.item.published
        found = self._readings(one, config.sampling.max_new_tokens + 1)
        read = [(index, reading) for index, reading in enumerate(found) if reading is not None]
        rewards = tuple(one.rewards[index] for index, _ in read)
        if not has_signal(rewards):
            return None
        return ScoredGroup(
            question=one.question,
            completions=tuple(reading.ids for _, reading in read),
            rewards=rewards,
            external=True,
            source=source,
            unread=tuple(reading.unread for _, reading in read),
            said=tuple(reading.said for _, reading in read) if one.question.max_turns else None,
        )

    def _readings(self, one: _Verified, room: int) -> list[Retokenized | None]:
        """Read each completion of a group; games with what the environment answers here."""
        policy, question = self._policy, one.question
        completions = one.item.published.group.completions
        if not question.max_turns:
            return [self._read(each, question, room) for each in completions]
        requests = [
            PlayRequest(task=question.coordinates, messages=split_messages(each.text))
            for each in completions
        ]
        games = read_games(self._tasks.play, requests)
        return [
            game_reading(
                policy,
                replace(each, text=join_messages(game.messages)),
                game.observations,
                room,
                game.parts,
            )
            for each, game in zip(completions, games, strict=True)
        ]

    def _read(self, one: Completion, question: Question, room: int) -> Retokenized | None:
        tagged, is_code = question.tagged, question.is_code

        def read() -> Retokenized | None:
            return retokenize(self._policy, one, tagged, room, is_code=is_code)

        if len(one.text) > _SHORT_CHARS:
            return read()
        return self._texts.use((one.text, one.finish_reason, tagged, is_code, room), read)


def _candidate(sampled: m.SampledGroup, signal: float) -> Candidate:
    return Candidate(
        family=sampled.published.group.task.family,
        signal=signal,
        network=sampled.network,
    )


def signal_of(rewards: Sequence[float], config: RoundConfig) -> float:
    """Return the sum of |advantage| over the usable completions of an external group."""
    advantages = group_advantages(rewards, config.advantage_scale)
    share = completion_share(len(rewards), config.num_completions)
    return share * sum(abs(advantages[index]) for index in config.strategy.trained_on(advantages))
