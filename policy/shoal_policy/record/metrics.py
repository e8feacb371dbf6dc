"""Names of metrics, and the file that stores them.

Names follow TRL's GRPOTrainer where it has the same metric, so that curves can be compared;
docs/metrics.md explains each one, and a test compares that table with this module.

    RoundRecord ──round_metrics──▶ {"event": "round", …}    ─┐
    HeldOut ─────held_out_metrics─▶ {"event": "held_out", …} ─┴▶ metrics.jsonl, sinks
"""

from __future__ import annotations

import json
import logging
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shoal_base.bounded import MANY
from shoal_base.files import append_whole, is_full, write_atomically
from shoal_base.lines import say_json
from shoal_policy.record.progress import RoundRecord, RunCounters

log = logging.getLogger(__name__)

TRL_NAMES: Mapping[str, str] = {
    "num_tokens": "tokens_trained",  # TRL's num_tokens is another: all tokens since the start
    "clip_fraction": "clip_ratio/region_mean",
    "clip_fraction_low": "clip_ratio/low_mean",
    "clip_fraction_high": "clip_ratio/high_mean",
    "completion_mean_length": "completions/mean_length",
    "completion_min_length": "completions/min_length",
    "completion_max_length": "completions/max_length",
    "completion_clipped_ratio": "completions/clipped_ratio",
    "sampling_logp_difference": "sampling/sampling_logp_difference/mean",
    "seconds": "step_time",
}
"""Field of RoundRecord to metric name, where the two differ."""

MAX_BYTES = 64 << 20
"""Size limit of the file: about 40,000 rounds of 1.6 KB; beyond it older rounds are thinned."""


def metric_name(field: str) -> str:
    """Return the metric name of a field of RoundRecord."""
    return TRL_NAMES.get(field, field)


def round_metrics(record: RoundRecord, progress: RunCounters) -> dict[str, Any]:
    """Return a round's metrics by name; `progress` already includes the round."""
    named = {metric_name(field): value for field, value in asdict(record).items()}
    return {**named, "num_tokens": progress.num_tokens}


def held_out_metrics(held_out: Mapping[str, Any]) -> dict[str, Any]:
    """Return an evaluation's metrics by name, from `RunCounters.held_out`."""
    named = {
        f"held_out/{key}": held_out[key] for key in ("pass@1", "reward", "num_items", "seconds")
    }
    families = {f"held_out/{name}": value for name, value in held_out["families"].items()}
    return {"round": held_out["round"], **named, **families}


def reward_spread(groups: Sequence[Sequence[float]]) -> tuple[float | None, float | None]:
    """Return the spread of the groups' rewards; (None, None) without groups.

    As TRL's `reward_std`, the mean over groups of the unbiased standard deviation, and its
    `frac_reward_zero_std`, the share of groups whose rewards are all equal.
    """
    deviations = [_deviation(rewards) for rewards in groups if len(rewards) > 1]
    if not deviations:
        return None, None
    equal = sum(max(rewards) == min(rewards) for rewards in groups)
    return statistics.fmean(deviations), equal / len(groups)


def _deviation(rewards: Sequence[float]) -> float:
    """Return the unbiased standard deviation of at least two rewards.

    `statistics.stdev` computes with fractions, which took 3 % of a small model's round.
    """
    mean = statistics.fmean(rewards)
    return math.hypot(*(reward - mean for reward in rewards)) / math.sqrt(len(rewards) - 1)


class MetricsFile:
    """`metrics.jsonl`: one JSON object per line, only whole lines, each round at most once.

    A full disk loses nothing: lines wait in memory for the next try. With `--json` the same objects
    go to standard output.
    """

    def __init__(
        self,
        path: Path,
        *,
        last_round: int,
        last_held_out: int = -1,
        max_bytes: int = MAX_BYTES,
        print_json: bool = False,
    ) -> None:
        """Open the file of a run at `last_round`, last evaluated at `last_held_out`.

        A file over `max_bytes` is thinned (`thin_events`). With `print_json` every object is also
        printed.
        """
        self._path = path
        self._max_bytes = max_bytes
        self._print_json = print_json
        self._pending: list[bytes] = []
        self._failing = False
        last = {"round": last_round, "held_out": last_held_out, "judge": last_round}
        drop_repeated_rounds(path, last)
        self._num_bytes = path.stat().st_size if path.exists() else 0
        self._enforce_limit()

    def append(self, event: Mapping[str, Any]) -> None:
        """Write one object, after any pending ones."""
        if self._print_json:
            say_json({"schema_version": 1, **event})
        self._pending.append(json.dumps(event).encode() + b"\n")
        if len(self._pending) > MANY:
            log.warning("metrics line dropped: write queue full (%d)", MANY)
            del self._pending[0]
        self.flush()

    def flush(self) -> bool:
        """Write pending lines; return False on a full disk. Other errors are only logged."""
        if not self._pending:
            return True
        data = b"".join(self._pending)
        try:
            append_whole(self._path, data)
        except OSError as error:
            if not self._failing:
                log.warning("metrics not written: %s", error.strerror)
            self._failing = True
            return not is_full(error)
        self._pending.clear()
        self._failing = False
        self._num_bytes += len(data)
        self._enforce_limit()
        return True

    def _enforce_limit(self) -> None:
        """Thin a file over the limit to half of it, so that this happens rarely."""
        if self._num_bytes <= self._max_bytes:
            return
        try:
            lines = self._path.read_bytes().splitlines(keepends=True)
            new = b"".join(thin_events(lines, self._max_bytes // 2))
            write_atomically(self._path, new, mode=0o600)
        except (OSError, ValueError, LookupError) as error:  # no space for both, or no events
            log.debug("metrics not thinned: %s", error)
            self._num_bytes -= self._max_bytes // 8  # not after every round
            return
        self._num_bytes = len(new)


def thin_events(lines: Sequence[bytes], max_bytes: int) -> list[bytes]:
    """Return at most `max_bytes` of these events, in their order.

    The newest quarter stays complete. Of older rounds every second, fourth, eighth … stays, and
    every evaluation: the run remains from first to last round, the past more coarsely.
    """
    first, stride = len(lines) * 3 // 4, 1
    older, newest = [(line, json.loads(line)) for line in lines[:first]], lines[first:]
    kept = list(lines)
    while sum(map(len, kept)) > max_bytes and stride < 1 << 40:
        stride *= 2
        older = [
            one
            for one in older
            if one[1].get("event", "round") != "round" or not one[1]["round"] % stride
        ]
        kept = [*(line for line, _ in older), *newest]
    while sum(map(len, kept)) > max_bytes:
        del kept[: len(kept) // 2 + 1]
    return kept


def drop_repeated_rounds(path: Path, last: Mapping[str, int]) -> None:
    """Drop events later than the `last` round of their kind, and a truncated last line.

    A resumed run repeats the rounds after its checkpoint; each must be in the file once. The file
    is replaced atomically.
    """
    try:
        old = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("cannot read metrics of earlier rounds: %s", error.strerror)
        return
    new = b"".join(line for line in old.splitlines(keepends=True) if _keeps_line(line, last))
    if new == old:
        return
    try:
        if not new:  # a run that starts over: the earlier one's file is kept
            path.replace(path.with_name(f"{path.name}.old"))
            return
        write_atomically(path, new, mode=0o600)
    except OSError as error:
        log.warning("cannot remove metrics of repeated rounds: %s", error.strerror)


def _keeps_line(line: bytes, last: Mapping[str, int]) -> bool:
    """Return whether a line is whole, and not later than the last round of its kind."""
    if not line.endswith(b"\n"):
        return False
    try:
        event = json.loads(line)
        return int(event["round"]) <= last[event.get("event", "round")]
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
