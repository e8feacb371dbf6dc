"""Statistics of judges' records: swarm against silo, over all rounds and window by window. Pure.

The units of comparison are swarms. Answers of one peer come from one policy, and peers of one swarm
learn from each other: a test that took them for independent would find a difference between two
runs of the same arm in half of all cases. So each swarm has one value an arm: the mean over its
peers (those that share, or the silos that its judge watched at the same time) of each one's mean
score. An arm's value is the mean over swarms. Over all rounds the arms are compared by a t-test on
the swarms' differences (paired, where each has both arms; otherwise Welch's). One swarm has no
p-value and no error, however many peers it has. Needs scipy.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from shoal_lab.significance import paired, spread, welch
from shoal_wire.judge_messages import JudgeRecord, Mode
from shoal_wire.types import PeerId

_WINDOWS = 40  # distinguishable points of a curve; a guess
_MIN_SWARMS = 2  # one has no spread
_FAR = 2.0  # times the usual last round; a guess

Records = Sequence[JudgeRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmWindow:
    """One arm in one window."""

    mean: float
    """Mean over swarms of the mean over its peers of each one's mean score."""
    error: float | None
    """Standard error of that mean over swarms; None with one of them."""
    swarms: int
    """Swarms whose judges have challenged such peers."""
    peers: int
    answers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Rounds `first` to `last`, both included."""

    first: int
    last: int
    arms: Mapping[Mode, ArmWindow]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelComparison:
    """Both arms of one model."""

    model: str
    window_rounds: int
    windows: tuple[Window, ...]
    total: Mapping[Mode, ArmWindow]
    """Sums over all rounds."""
    p: float | None
    """p of the totals' difference."""
    beyond: int
    """Records skipped because their round is far above the rest: a peer states its own round."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that the command prints."""
        return {
            "model": self.model,
            "window_rounds": self.window_rounds,
            "arms": {str(mode): _arm_json(arm) for mode, arm in self.total.items()},
            "p": self.p,
            "records_beyond": self.beyond,
            "windows": [
                {
                    "from_round": window.first,
                    "to_round": window.last,
                    **{str(mode): _arm_json(arm) for mode, arm in window.arms.items()},
                }
                for window in self.windows
            ],
        }


def swarms_of(sources: Sequence[Records]) -> list[list[JudgeRecord]]:
    """Join the records of one swarm from several judges or reports: those with a peer in common.

    Each record counts once.
    """
    swarms: list[tuple[set[PeerId], dict[JudgeRecord, None]]] = []
    for source in sources:
        peers, records = {record.peer_id for record in source}, dict.fromkeys(source)
        apart = []
        for one in swarms:
            if one[0] & peers:
                peers, records = peers | one[0], {**one[1], **records}
            else:
                apart.append(one)
        swarms = [*apart, (peers, records)]
    return [list(records) for _, records in swarms]


def compare(
    swarms: Sequence[Records],
    *,
    model: str,
    window_rounds: int | None = None,
    until: int | None = None,
) -> ModelComparison:
    """Compare swarm with silo by one model's records in each swarm; there is at least one record.

    Records of rounds above `until` are skipped; by default those above twice the 95th percentile of
    rounds.
    """
    everything = [record for swarm in swarms for record in swarm]
    last = usual_last(everything) * _FAR if until is None else until
    kept = [[record for record in swarm if record.round <= last] for swarm in swarms]
    width = window_rounds or _fitting_window([record for swarm in kept for record in swarm])
    return ModelComparison(
        model=model,
        window_rounds=width,
        windows=_windows(kept, width),
        total=_arms(kept),
        p=_p_value(kept),
        beyond=len(everything) - sum(map(len, kept)),
    )


def usual_last(records: Records) -> int:
    """Return the 95th percentile of the records' rounds."""
    rounds = sorted(record.round for record in records)
    return rounds[math.ceil(0.95 * len(rounds)) - 1]


def unanswered(records: Records) -> int:
    """Return how many challenges between a peer's first and last record have none."""
    by_peer: dict[PeerId, list[JudgeRecord]] = defaultdict(list)
    for record in records:
        by_peer[record.peer_id].append(record)
    return sum(
        max(0, max(r.challenges for r in mine) - min(r.challenges for r in mine) + 1 - len(mine))
        for mine in by_peer.values()
    )


def _fitting_window(records: Records) -> int:
    """About forty windows, and none so narrow that a peer often has no answer in it."""
    gaps = []
    by_peer: dict[PeerId, list[int]] = defaultdict(list)
    for record in records:
        by_peer[record.peer_id].append(record.round)
    for rounds in by_peer.values():
        rounds.sort()
        gaps += [after - before for before, after in pairwise(rounds)]
    usual = math.ceil(statistics.median(gaps)) if gaps else 1
    return max(1, usual, math.ceil(max(record.round for record in records) / _WINDOWS))


def _windows(swarms: Sequence[Records], width: int) -> tuple[Window, ...]:
    """Every window with at least one answer."""
    by_place: list[dict[int, list[JudgeRecord]]] = []
    for swarm in swarms:
        places: dict[int, list[JudgeRecord]] = defaultdict(list)
        for record in swarm:
            places[max(0, record.round - 1) // width].append(record)
        by_place.append(places)
    return tuple(
        Window(
            first=place * width + 1,
            last=(place + 1) * width,
            arms=_arms([one.get(place, []) for one in by_place]),
        )
        for place in sorted({place for one in by_place for place in one})
    )


def _arms(swarms: Sequence[Records]) -> dict[Mode, ArmWindow]:
    found = {}
    for mode in Mode:
        peers = [means for swarm in swarms if (means := _peer_means(swarm, mode))]
        if not peers:
            continue
        over_swarms = spread([statistics.fmean(means) for means in peers])
        found[mode] = ArmWindow(
            mean=over_swarms.mean,
            error=over_swarms.error,
            swarms=over_swarms.units,
            peers=sum(map(len, peers)),
            answers=sum(record.mode is mode for swarm in swarms for record in swarm),
        )
    return found


def _peer_means(records: Records, mode: Mode) -> list[float]:
    scores: dict[PeerId, list[float]] = defaultdict(list)
    for record in records:
        if record.mode is mode:
            scores[record.peer_id].append(record.score)
    return [statistics.fmean(mine) for mine in scores.values()]


def _p_value(swarms: Sequence[Records]) -> float | None:
    """Two-sided p of the difference of the arms' means; None with fewer than two swarms."""
    by_swarm = [{mode: _peer_means(swarm, mode) for mode in Mode} for swarm in swarms]
    both = [
        (statistics.fmean(one[Mode.SWARM]), statistics.fmean(one[Mode.SILO]))
        for one in by_swarm
        if one[Mode.SWARM] and one[Mode.SILO]
    ]
    if len(both) >= _MIN_SWARMS:
        return paired([mine - theirs for mine, theirs in both])
    values = {mode: [statistics.fmean(one[mode]) for one in by_swarm if one[mode]] for mode in Mode}
    return welch(values[Mode.SWARM], values[Mode.SILO])


def _arm_json(arm: ArmWindow) -> dict[str, float | None]:
    return {
        "mean": round(arm.mean, 6),
        "standard_error": None if arm.error is None else round(arm.error, 6),
        "swarms": arm.swarms,
        "peers": arm.peers,
        "answers": arm.answers,
    }
