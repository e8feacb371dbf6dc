"""Records of a judge to numbers: swarm against silo, window of rounds by window. Pure; needs scipy.

Peers are what is compared, not answers: those of one peer are of one policy and depend on each
other. So a peer has one value, the mean of its scores, in a window or in the last `SMOOTH` of them
(the moving average); an arm's value is the mean over its peers. Moving averages of the two arms are
compared by a permutation test on peers, which holds for few of them and for scores of 0 and 1 (by
Welch's test where there are many), and the p-values of all windows are adjusted together (Benjamini
and Hochberg, which holds for tests that share answers as these do).
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from shoal_wire.judge_messages import JudgeRecord, Mode
from shoal_wire.types import PeerId

ALPHA = 0.05
SMOOTH = 5
"""Windows in the moving average."""
_WINDOWS = 40
_RESAMPLES = 4999
_MIN_PEERS = 2
_MANY_PEERS = 100
"""In both arms together; from here on Welch's test says the same and takes no time."""
_FAR = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One arm in one window."""

    mean: float
    """Mean over peers of each one's mean score."""
    error: float
    """Standard error of that mean; 0 with one peer."""
    peers: int
    answers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Rounds `first` to `last`, both included."""

    first: int
    last: int
    arms: Mapping[Mode, Arm]
    """In this window alone."""
    recent: Mapping[Mode, Arm]
    """In this window and those before it, `SMOOTH` in all."""
    p: float | None = None
    """Of the difference of `recent`, not adjusted; None with fewer than two peers in an arm."""
    adjusted: float | None = None

    @property
    def difference(self) -> float | None:
        """Swarm minus silo, of `recent`; None where one of them has no answers."""
        if len(self.recent) < len(Mode):
            return None
        return self.recent[Mode.SWARM].mean - self.recent[Mode.SILO].mean

    @property
    def better(self) -> Mode | None:
        """The arm that is better beyond chance (adjusted p below ALPHA)."""
        difference = self.difference
        if difference is None or self.adjusted is None or self.adjusted >= ALPHA:
            return None
        return Mode.SWARM if difference > 0 else Mode.SILO


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Both arms of one model."""

    model: str
    window_rounds: int
    windows: tuple[Window, ...]
    total: Mapping[Mode, Arm]
    """Over all rounds."""
    p: float | None
    """Of the totals' difference."""
    regions: tuple[tuple[int, int, Mode], ...]
    """Rounds from, to, and the arm that is better beyond chance there."""
    beyond: int
    """Records left out because their round is far above others': a round is a peer's own word."""

    def to_json(self) -> dict[str, Any]:
        """As the command prints it."""
        return {
            "model": self.model,
            "window_rounds": self.window_rounds,
            "arms": {str(mode): _arm_json(arm) for mode, arm in self.total.items()},
            "p": self.p,
            "records_beyond": self.beyond,
            "regions": [
                {"from_round": first, "to_round": last, "better": str(mode)}
                for first, last, mode in self.regions
            ],
            "windows": [
                {
                    "from_round": window.first,
                    "to_round": window.last,
                    **{str(mode): _arm_json(arm) for mode, arm in window.arms.items()},
                    "moving_average": {
                        str(mode): _arm_json(arm) for mode, arm in window.recent.items()
                    },
                    "p": window.p,
                    "p_adjusted": window.adjusted,
                }
                for window in self.windows
            ],
        }


def compare(
    everything: Sequence[JudgeRecord],
    *,
    model: str,
    window_rounds: int | None = None,
    until: int | None = None,
) -> Comparison:
    """Compare swarm with silo for one model's records, of which there is at least one.

    Records of rounds above `until` are left out; without it those of more than twice the round
    that 95 in 100 records do not exceed.
    """
    last = usual_last(everything) * _FAR if until is None else until
    records = [record for record in everything if record.round <= last]
    width = window_rounds or _fitting_window(records)
    by_place: dict[int, list[JudgeRecord]] = defaultdict(list)
    for record in records:
        by_place[max(0, record.round - 1) // width].append(record)
    windows = _adjust([_window(by_place, place, width) for place in sorted(by_place)])
    return Comparison(
        model=model,
        window_rounds=width,
        windows=tuple(windows),
        total=_arms(records),
        p=_p_value(records),
        regions=_regions(windows),
        beyond=len(everything) - len(records),
    )


def usual_last(records: Sequence[JudgeRecord]) -> int:
    """Return the round that 95 in 100 records do not exceed."""
    rounds = sorted(record.round for record in records)
    return rounds[math.ceil(0.95 * len(rounds)) - 1]


def unanswered(records: Sequence[JudgeRecord]) -> int:
    """Return how many challenges between a peer's first and last record have none."""
    by_peer: dict[PeerId, list[JudgeRecord]] = defaultdict(list)
    for record in records:
        by_peer[record.peer_id].append(record)
    return sum(
        max(0, max(r.challenges for r in mine) - min(r.challenges for r in mine) + 1 - len(mine))
        for mine in by_peer.values()
    )


def _fitting_window(records: Sequence[JudgeRecord]) -> int:
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


def _window(by_place: Mapping[int, list[JudgeRecord]], place: int, width: int) -> Window:
    near = range(place - SMOOTH + 1, place + 1)
    recent = [record for other in near for record in by_place.get(other, ())]
    return Window(
        first=place * width + 1,
        last=(place + 1) * width,
        arms=_arms(by_place[place]),
        recent=_arms(recent),
        p=_p_value(recent),
    )


def _arms(records: Sequence[JudgeRecord]) -> dict[Mode, Arm]:
    means = {mode: _peer_means(records, mode) for mode in Mode}
    return {
        mode: Arm(
            mean=statistics.fmean(values),
            error=statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0,
            peers=len(values),
            answers=sum(record.mode is mode for record in records),
        )
        for mode, values in means.items()
        if values
    }


def _peer_means(records: Sequence[JudgeRecord], mode: Mode) -> list[float]:
    scores: dict[PeerId, list[float]] = defaultdict(list)
    for record in records:
        if record.mode is mode:
            scores[record.peer_id].append(record.score)
    return [statistics.fmean(mine) for mine in scores.values()]


def _p_value(records: Sequence[JudgeRecord]) -> float | None:
    """Two-sided p of the difference of the arms' means; repeats for the same records."""
    one, other = _peer_means(records, Mode.SWARM), _peer_means(records, Mode.SILO)
    if min(len(one), len(other)) < _MIN_PEERS:
        return None
    import numpy as np
    from scipy.stats import permutation_test, ttest_ind

    if len(one) + len(other) >= _MANY_PEERS and statistics.pvariance([*one, *other]) > 0:
        return float(ttest_ind(one, other, equal_var=False).pvalue)

    def difference(a: Any, b: Any, axis: int) -> Any:
        return np.mean(a, axis=axis) - np.mean(b, axis=axis)

    found = permutation_test(
        (one, other), difference, vectorized=True, n_resamples=_RESAMPLES, random_state=0
    )
    return float(found.pvalue)


def _adjust(windows: Sequence[Window]) -> list[Window]:
    """Benjamini and Hochberg over the windows that have a p-value."""
    tested = [window.p for window in windows if window.p is not None]
    if not tested:
        return list(windows)
    from scipy.stats import false_discovery_control

    adjusted = iter(false_discovery_control(tested, method="bh"))
    return [
        window if window.p is None else replace(window, adjusted=float(next(adjusted)))
        for window in windows
    ]


def _regions(windows: Sequence[Window]) -> tuple[tuple[int, int, Mode], ...]:
    """Join neighbouring windows in which the same arm is better beyond chance."""
    found: list[tuple[int, int, Mode]] = []
    for window in windows:
        if window.better is None:
            continue
        if found and found[-1][1] + 1 == window.first and found[-1][2] is window.better:
            found[-1] = (found[-1][0], window.last, window.better)
        else:
            found.append((window.first, window.last, window.better))
    return tuple(found)


def _arm_json(arm: Arm) -> dict[str, float]:
    return {
        "mean": round(arm.mean, 6),
        "standard_error": round(arm.error, 6),
        "peers": arm.peers,
        "answers": arm.answers,
    }
