"""Outcomes of a round: for every group, whether it was trained on or why not. No I/O of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from shoal_ipc import messages as m
from shoal_ipc.skip_reason import SkipReason
from shoal_policy.choice.advantage import has_signal
from shoal_policy.choice.scored import ScoredGroup, TrainingSet, UnusedGroup
from shoal_policy.rollouts import SharedGroup
from shoal_policy.update.rows import TrainGroup
from shoal_wire.types import GroupId, PeerId


def build_outcomes(
    fresh: Sequence[ScoredGroup],
    shared: Sequence[SharedGroup | None],
    training: TrainingSet,
    trained: Sequence[TrainGroup],
    nonfinite: Collection[int] = (),
) -> Iterator[m.GroupOutcome]:
    """Yield one outcome per group of the round: own groups, trained external groups, the rest.

    `shared` is parallel to `fresh`, `trained` to the groups of `training`; `nonfinite` are indices
    of groups whose steps were skipped.
    """
    rows = dict(
        zip(map(id, training.groups), zip(trained, range(len(trained)), strict=True), strict=True)
    )
    for one, public in zip(fresh, shared, strict=True):
        group_id = GroupId(b"") if public is None else public.group_id
        row, index = rows.get(id(one), (None, -1))
        yield _outcome(one, row, group_id, is_nonfinite=index in nonfinite)
    for one in training.external.groups:
        row, index = rows[id(one)]
        assert one.source is not None
        yield _outcome(one, row, one.source.group_id, is_nonfinite=index in nonfinite)
    yield from map(_unused, training.external.unused)


def _outcome(
    one: ScoredGroup, row: TrainGroup | None, group_id: GroupId, *, is_nonfinite: bool
) -> m.GroupOutcome:
    why = _skip_reason(one, row, is_nonfinite=is_nonfinite)
    return m.GroupOutcome(
        group_id=group_id,
        publisher=PeerId("") if one.source is None else one.source.publisher,
        model="" if one.source is None else one.source.policy.model_name,
        family=one.question.task.family,
        reward=_mean(one.rewards),
        signal=0.0 if why or row is None else row.share * sum(map(abs, row.advantages)),
        tokens=0 if why or row is None else sum(map(len, row.completions)),
        skip_reason=why,
    )


def _skip_reason(one: ScoredGroup, row: TrainGroup | None, *, is_nonfinite: bool) -> str:
    if not has_signal(one.rewards):
        return SkipReason.ALL_SAME if any(one.rewards) else SkipReason.NO_REWARD
    if row is None:
        return SkipReason.NOT_NEEDED
    return SkipReason.NONFINITE if is_nonfinite else ""


def _unused(one: UnusedGroup) -> m.GroupOutcome:
    return m.GroupOutcome(
        group_id=one.source.group_id,
        publisher=one.source.publisher,
        model=one.source.policy.model_name,
        family=one.source.group.task.family,
        reward=_mean(one.rewards),
        skip_reason=one.reason,
    )


def _mean(rewards: Sequence[float]) -> float:
    return sum(rewards) / len(rewards) if rewards else 0.0
