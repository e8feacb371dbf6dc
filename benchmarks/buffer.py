"""The replay buffer: inserts and samples a second of 16 KB groups, and what a flooder gains.

Ours keeps a reference to a decoded group; torchrl and Reverb copy each item into storage. So
ours is measured twice: as the node uses it (`shoal`), and copying 16 KB on the way in and out
(`shoal_copying`), which is the fair peer. A sample of ours is a lease and its acknowledgement.
All fill a store of the same capacity, in one process, on one thread of torch, turn and turn
about; rates are by second of CPU time, which other processes disturb least. torchrl and Reverb
are optional: where they are not installed this says so.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.buffer_peers import PEERS, Store
from benchmarks.harness import Options, Report, at_most, main, median, note
from shoal_p2p.buffer.replay import ReplayBuffer
from shoal_p2p.buffer.types import BufferEntry, BufferLimits, InsertOutcome
from shoal_wire.types import (
    BatchId,
    Completion,
    Digest,
    FinishReason,
    GroupId,
    PeerId,
    PolicyInfo,
    PublishedGroup,
    RolloutGroup,
    SamplingParams,
    Task,
)

GROUP_BYTES = 16 * 1024
CAPACITY = 4096
BATCH = 32
_NUM_PUBLISHERS = 64

_FLOOD_HONEST = 20
_FLOOD_FACTOR = 100
_FLOOD_SLOTS = 1024
_FLOOD_DRAWS_PER_TICK = 16
_FLOOD_TICKS = 1250
"""20,000 draws: a standard deviation of 0.15 % around a share of 4.8 %."""
_FLOOD_GOAL = 0.05


def measure(options: Options) -> Report:
    """Measure speed, then the flood."""
    repeats = 3 if options.quick else 9
    speed = _speed(repeats, num_items=1024 if options.quick else CAPACITY)
    note("flooding …")
    flood = _flood(num_ticks=_FLOOD_TICKS)
    share = flood["uniform_publishers"]["attacker_share"]
    return Report(
        results={
            "group_bytes": GROUP_BYTES,
            "capacity_groups": CAPACITY,
            "batch_groups": BATCH,
            "speed": speed,
            "flood": flood,
        },
        goals=[
            at_most(
                "share of draws of one flooder at 100 x among 20 publishers", share, _FLOOD_GOAL
            )
        ],
    )


# Speed


class Shoal:
    """Our buffer behind the interface of the peers."""

    def __init__(self, *, copying: bool) -> None:
        self._copying = copying
        self._payload = bytes(GROUP_BYTES)
        limits = BufferLimits(
            max_groups=CAPACITY,
            max_bytes=CAPACITY * GROUP_BYTES,
            max_age_seconds=3600.0,
            max_groups_per_publisher=CAPACITY,
            max_bytes_per_publisher=CAPACITY * GROUP_BYTES,
        )
        self._buffer = ReplayBuffer(limits, random.Random(1))
        self._number = 0

    def prepare(self, count: int) -> list[BufferEntry]:
        """Make what `insert` takes."""
        self._number += count
        return [
            _entry(number, f"publisher-{number % _NUM_PUBLISHERS}", received_at=0.0)
            for number in range(self._number - count, self._number)
        ]

    def insert(self, items: Sequence[Any]) -> None:
        """Insert one by one, as gossip delivers them."""
        for entry in items:
            if self._copying:
                bytearray(self._payload)
            outcome = self._buffer.insert(entry, 0.0)
            assert outcome is InsertOutcome.STORED

    def sample(self, count: int) -> None:
        """Lease and acknowledge a batch."""
        entries = self._buffer.lease(count, holder="bench", now=0.0, lease_seconds=60.0)
        if self._copying:
            for _ in entries:
                bytearray(self._payload)
        ids = [entry.group.group_id for entry in entries]
        assert self._buffer.consume(ids) == count

    def close(self) -> None:
        """Nothing to end."""


def _speed(repeats: int, *, num_items: int) -> dict[str, Any]:
    makers: dict[str, Callable[[], Store]] = {
        "shoal": lambda: Shoal(copying=False),
        "shoal_copying": lambda: Shoal(copying=True),
    }
    missing: dict[str, str] = {}
    for name, load in PEERS.items():
        try:
            # What a library prints while it loads must not get between us and our JSON.
            with contextlib.redirect_stdout(sys.stderr):
                makers[name] = load(group_bytes=GROUP_BYTES, capacity=CAPACITY)
        except ImportError as error:
            missing[name] = f"not installed ({error})"
            note(f"{name} is {missing[name]}")
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
    for repeat in range(repeats):
        note(f"repeat {repeat + 1} of {repeats} …")
        for name, make in makers.items():
            rates[name].append(_rates(make(), num_items))
    return {
        **{name: _summary(found, rates["shoal_copying"]) for name, found in rates.items()},
        **missing,
    }


def _rates(store: Store, num_items: int) -> tuple[float, float]:
    """Return inserts and samples a CPU second. The store is full while inserts are timed."""
    try:
        store.insert(store.prepare(CAPACITY))
        items = store.prepare(num_items)
        started = time.process_time()
        store.insert(items)
        inserts = num_items / (time.process_time() - started)
        started = time.process_time()
        for _ in range(num_items // BATCH):
            store.sample(BATCH)
        samples = num_items / (time.process_time() - started)
    finally:
        store.close()
    return inserts, samples


def _summary(
    found: Sequence[tuple[float, float]], ours: Sequence[tuple[float, float]]
) -> dict[str, Any]:
    """Return medians, and the median of ours over theirs in the same repeat."""
    summary: dict[str, Any] = {}
    for index, what in enumerate(("inserts", "samples")):
        rates = [pair[index] for pair in found]
        ratios = [mine[index] / rate for mine, rate in zip(ours, rates, strict=True)]
        summary[f"{what}_per_cpu_second"] = round(median(rates), 1)
        summary[f"{what}_min_per_cpu_second"] = round(min(rates), 1)
        summary[f"{what}_max_per_cpu_second"] = round(max(rates), 1)
        summary[f"shoal_copying_over_this_{what}"] = round(median(ratios), 3)
    return summary


# Flood


def _flood(*, num_ticks: int) -> dict[str, Any]:
    fair = 1 / (_FLOOD_HONEST + 1)
    return {
        "honest_publishers": _FLOOD_HONEST,
        "attacker_rate_factor": _FLOOD_FACTOR,
        "slots": _FLOOD_SLOTS,
        "fair_share": round(fair, 4),
        "uniform_publishers": _flood_share(num_ticks),
        "first_in_first_out_uniform": _fifo_share(num_ticks),
    }


def _senders() -> list[str]:
    """Return who sends a group in one tick."""
    return [f"honest-{i}" for i in range(_FLOOD_HONEST)] + ["attacker"] * _FLOOD_FACTOR


def _fifo_share(num_ticks: int) -> dict[str, Any]:
    """Return the attacker's share in a plain ring drawn from uniformly, the common design."""
    rng = random.Random(1)
    ring: deque[str] = deque(maxlen=_FLOOD_SLOTS)
    drawn: Counter[str] = Counter()
    for _ in range(num_ticks):
        ring.extend(_senders())
        drawn.update(rng.sample(ring, _FLOOD_DRAWS_PER_TICK))
    return {
        "attacker_share": round(drawn["attacker"] / drawn.total(), 4),
        "draws": drawn.total(),
    }


def _flood_share(num_ticks: int) -> dict[str, Any]:
    """Return the attacker's share of groups drawn and acknowledged while it floods."""
    limits = BufferLimits(
        max_groups=_FLOOD_SLOTS,
        max_bytes=_FLOOD_SLOTS * GROUP_BYTES,
        max_age_seconds=float(num_ticks),
        max_groups_per_publisher=_FLOOD_SLOTS,
        max_bytes_per_publisher=_FLOOD_SLOTS * GROUP_BYTES,
    )
    buffer = ReplayBuffer(limits, random.Random(1))
    senders = _senders()
    number = 0
    drawn: Counter[str] = Counter()
    for tick in range(num_ticks):
        for sender in senders:
            buffer.insert(_entry(number, sender, received_at=float(tick)), float(tick))
            number += 1
        entries = buffer.lease(
            _FLOOD_DRAWS_PER_TICK,
            holder="trainer",
            now=float(tick),
            lease_seconds=60.0,
        )
        drawn.update(entry.group.publisher for entry in entries)
        buffer.consume([entry.group.group_id for entry in entries])
    return {
        "attacker_share": round(drawn["attacker"] / drawn.total(), 4),
        "draws": drawn.total(),
    }


_GROUP = RolloutGroup(
    task=Task(
        family="basic_arithmetic",
        config_digest=Digest(bytes(16)),
        seed=1,
        index=1,
        verifier="reasoning_gym",
        verifier_version="1",
        question_digest=Digest(bytes(16)),
    ),
    completions=tuple(
        Completion(text="x" * 2048, num_tokens=512, finish_reason=FinishReason.STOP)
        for _ in range(8)
    ),
)
_POLICY = PolicyInfo(model_name="tiny", tokenizer_digest=Digest(b""), policy_version=0)
_SAMPLING = SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=512)


def _entry(number: int, publisher: str, *, received_at: float) -> BufferEntry:
    return BufferEntry(
        group=PublishedGroup(
            group_id=GroupId(number.to_bytes(16, "big")),
            publisher=PeerId(publisher),
            batch_id=BatchId(bytes(32)),
            round=0,
            created_ms=0,
            policy=_POLICY,
            sampling=_SAMPLING,
            group=_GROUP,
        ),
        num_bytes=GROUP_BYTES,
        received_at=received_at,
    )


if __name__ == "__main__":
    sys.exit(main("buffer", __doc__, measure))
