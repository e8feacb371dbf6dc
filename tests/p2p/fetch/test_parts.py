"""The pure parts of fetching: the queue of pulls, gaps, the shelf."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shoal_p2p.events import Source
from shoal_p2p.fair import FORWARDED, PUBLISHED
from shoal_p2p.fair.buckets import Rate
from shoal_p2p.fetch.batch_index import BatchIndex
from shoal_p2p.fetch.gaps import GapLimits, GapTracker
from shoal_p2p.fetch.pull_queue import Lane, PullJob, PullQueue, QueueLimits
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Reason
from tests.support import factories as make

ANN, BOB, EVE = PeerId("ann"), PeerId("bob"), PeerId("eve")


def job(
    number: int, publisher: PeerId = ANN, num_bytes: int = 100, lane: Lane = ("", FORWARDED)
) -> PullJob:
    return PullJob(
        batch_id=BatchId(number.to_bytes(32, "big")),
        publisher=publisher,
        sequence=number,
        num_bytes=num_bytes,
        num_groups=1,
        source=Source.PULL,
        hints=(publisher,),
        expires_ms=0,
        lane=lane,
    )


def offer(queue: PullQueue, one: PullJob, now: float = 0.0) -> Reason | None:
    reason = queue.refuse(one, now)
    if reason is None:
        queue.add(one, now)
    return reason


def started(queue: PullQueue, count: int) -> list[PullJob | None]:
    """Start as many jobs as may run, up to `count`; None in the place of each that may not."""
    return [queue.start_next() for _ in range(count)]


# The queue


def test_one_publisher_has_few_jobs_and_few_of_them_run() -> None:
    limits = QueueLimits(max_jobs_per_publisher=3, max_running_per_publisher=2)
    queue = PullQueue(limits, 0.0)
    assert [offer(queue, job(n)) for n in range(4)] == [None, None, None, Reason.OVER_QUOTA]
    assert offer(queue, job(0)) is Reason.DUPLICATE
    assert offer(queue, job(9, BOB)) is None
    assert started(queue, 4) == [job(0), job(9, BOB), job(1), None]
    queue.finish(job(0))
    assert started(queue, 1) == [job(2)]
    assert offer(queue, job(0)) is None


def test_claimed_bytes_are_their_publishers_and_flown_ones_everybodys() -> None:
    limits = QueueLimits(
        bytes_per_publisher=Rate(burst=250, per_second=1),
        bytes_of_all=Rate(burst=500, per_second=10),
    )
    queue = PullQueue(limits, 0.0)
    assert [offer(queue, job(n)) for n in range(3)] == [None, None, Reason.OVER_QUOTA]
    # Claims of one take nothing from another.
    assert offer(queue, job(5, BOB, 250)) is None
    queue.charge_bytes(600, 0.0)
    assert offer(queue, job(6, EVE)) is Reason.BUSY
    assert offer(queue, job(6, EVE), now=10.1) is None


def test_running_bytes_are_bounded_but_one_always_runs() -> None:
    queue = PullQueue(QueueLimits(max_running_bytes=150), 0.0)
    first, second, _, fourth = jobs = [
        *(job(1, ANN, 400), job(2, BOB, 100), job(3, EVE, 60), job(4, EVE, 40))
    ]
    assert [offer(queue, one) for one in jobs] == [None] * 4
    assert started(queue, 2) == [first, None]
    queue.finish(first)
    assert started(queue, 3) == [second, fourth, None]


def test_a_full_queue_evicts_in_favour_of_the_peer_with_fewer_jobs() -> None:
    queue = PullQueue(QueueLimits(max_jobs=4), 0.0)
    for number in range(4):
        assert offer(queue, job(number)) is None
    assert offer(queue, job(4)) is Reason.BUSY
    assert offer(queue, job(5, BOB)) is None
    assert job(3).batch_id not in queue
    assert offer(queue, job(6, BOB)) is None
    # Two and two: no peer has enough more.
    assert offer(queue, job(7, BOB)) is Reason.BUSY


def test_who_announced_in_vain_comes_last() -> None:
    queue = PullQueue(QueueLimits(), 0.0)
    queue.record(job(0, EVE), succeeded=False)
    offer(queue, job(1, EVE))
    offer(queue, job(2, BOB))
    assert started(queue, 2) == [job(2, BOB), job(1, EVE)]
    queue.record(job(0, EVE), succeeded=True)
    queue.finish(job(1, EVE))
    offer(queue, job(3, EVE))
    offer(queue, job(4, ANN))
    assert started(queue, 1) == [job(3, EVE)]


def names(count: int, start: int, lane: Lane) -> list[PullJob]:
    """Add one job under each of that many names."""
    return [job(start + n, PeerId(f"name {start + n}"), lane=lane) for n in range(count)]


def test_a_thousand_names_of_one_connection_neither_fill_the_queue_nor_all_that_runs() -> None:
    queue = PullQueue(QueueLimits(), 0.0)
    taken = [offer(queue, one) for one in names(1000, 1, ("liar", PUBLISHED))]
    assert taken.count(None) == 256
    running = started(queue, 12)
    assert running.count(None) == 4, "all that may run"
    honest = [job(2000 + n, PeerId(f"honest {n}"), lane=(f"home {n}", PUBLISHED)) for n in range(3)]
    assert [offer(queue, one) for one in honest] == [None] * 3
    assert started(queue, 4) == [*honest, None]
    for one in running[:8]:
        assert one is not None
        queue.record(one, succeeded=False)
        queue.finish(one)
    more = job(3000, PeerId("honest 0"), lane=("home 0", PUBLISHED))
    offer(queue, more)
    assert queue.start_next() is more, "who claims in vain comes last, under whatever name"


def test_who_has_claimed_in_vain_gets_nothing_beyond_what_may_run() -> None:
    queue = PullQueue(QueueLimits(), 0.0)
    lanes = [(f"liar {n}", PUBLISHED) for n in range(20)]
    for number, lane in enumerate(lanes):
        queue.record(job(0, PeerId("gone"), lane=lane), succeeded=False)
        offer(queue, job(number, PeerId(f"name {number}"), lane=lane))
    running = started(queue, 12)
    assert running.count(None) == 4


class QueueMachine(RuleBasedStateMachine):
    """Whatever is announced, the bounds hold after every step."""

    limits = QueueLimits(
        max_jobs=5,
        max_jobs_per_publisher=3,
        max_running=2,
        max_running_beyond=1,
        max_running_per_publisher=2,
        max_running_bytes=300,
        bytes_per_publisher=Rate(burst=500, per_second=50),
        bytes_of_all=Rate(burst=500, per_second=50),
    )

    def __init__(self) -> None:
        super().__init__()
        self.queue = PullQueue(self.limits, 0.0)
        self.now = 0.0
        self.running: list[PullJob] = []

    @rule(
        number=st.integers(0, 30),
        publisher=st.sampled_from([ANN, BOB, EVE]),
        size=st.integers(1, 300),
        lane=st.tuples(st.sampled_from("ab"), st.sampled_from([PUBLISHED, FORWARDED])),
    )
    def announce(self, number: int, publisher: PeerId, size: int, lane: Lane) -> None:
        offer(self.queue, job(number, publisher, size, lane), self.now)

    @rule()
    def start(self) -> None:
        one = self.queue.start_next()
        if one is not None:
            assert one not in self.running
            self.running.append(one)

    @rule(index=st.integers(0, 3), failed=st.booleans())
    def finish(self, index: int, failed: bool) -> None:
        if self.running:
            one = self.running.pop(index % len(self.running))
            self.queue.charge_bytes(one.num_bytes, self.now)
            self.queue.record(one, succeeded=not failed)
            self.queue.finish(one)

    @rule(seconds=st.floats(0, 10))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def within_bounds(self) -> None:
        assert self.queue.num_running == len(self.running) <= 3
        assert self.queue.num_waiting + self.queue.num_running <= 5
        assert all(one.batch_id in self.queue for one in self.running)
        if len(self.running) > 2:
            assert self.running[2].lane not in {one.lane for one in self.running[:2]}
        if len(self.running) > 1:
            assert sum(one.num_bytes for one in self.running[1:]) <= 300


QueueMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=25)
TestQueueMachine = QueueMachine.TestCase


# Gaps


def test_a_gap_is_requested_after_the_grace_and_then_with_back_off() -> None:
    gaps = GapTracker(GapLimits(grace_seconds=1.0, retry_seconds=2.0, max_tries=3))
    gaps.open(ANN, 5, after=3, now=0.0)
    gaps.open(ANN, 5, after=3, now=0.9)
    assert gaps.due(0.9) == []
    tries = []
    for now in (1.0, 3.0, 7.0):
        assert gaps.next_due() == now
        (gap,) = gaps.due(now)
        gaps.start_try(gap, now)
        assert gaps.due(now) == []
        tries.append(gaps.end_try(gap))
    assert tries == [False, False, True]
    assert (len(gaps), gaps.next_due()) == (0, None)


def test_what_comes_by_itself_was_only_late() -> None:
    gaps = GapTracker()
    gaps.open(ANN, 5, after=3, now=0.0)
    assert gaps.close(ANN, 4) is gaps.close(BOB, 5) is None
    late = gaps.close(ANN, 5)
    assert late is not None and late.tries == 0
    assert gaps.close(ANN, 5) is None


def test_a_gap_is_filled_by_a_batch_that_arrives_during_its_request() -> None:
    gaps = GapTracker()
    gaps.open(ANN, 5, after=3, now=0.0)
    (gap,) = gaps.due(10.0)
    gaps.start_try(gap, 10.0)
    assert gaps.close(ANN, 5) is gap and gap.tries == 1
    assert not gaps.end_try(gap)
    # The same number missing again is another gap.
    gaps.open(ANN, 5, after=3, now=20.0)
    gap.tries = 99
    assert not gaps.end_try(gap)
    assert len(gaps) == 1


def test_gaps_are_requested_one_per_publisher_lowest_first() -> None:
    gaps = GapTracker()
    for publisher, sequence in ((ANN, 9), (ANN, 5), (BOB, 7)):
        gaps.open(publisher, sequence, after=3, now=0.0)
    assert [(gap.publisher, gap.sequence) for gap in gaps.due(99.0)] == [(ANN, 5), (BOB, 7)]


@given(st.lists(st.tuples(st.sampled_from([ANN, BOB, EVE]), st.integers(2, 60)), max_size=60))
@settings(max_examples=60)
def test_gaps_stay_within_their_bounds(opened: list[tuple[PeerId, int]]) -> None:
    gaps = GapTracker(GapLimits(max_per_publisher=4, max_publishers=2))
    for publisher, sequence in opened:
        gaps.open(publisher, sequence, after=1, now=0.0)
        assert len(gaps) <= 8
        assert len(gaps.due(99.0)) <= 2


# The shelf


def test_the_shelf_is_bounded_and_forgets_the_oldest() -> None:
    author = make.Author()
    shelf = BatchIndex(author.manifest, max_batches=3)
    batches = [author.signed() for _ in range(5)]
    for position, signed in enumerate(batches):
        shelf.put(signed, received_ms=make.NOW_MS + position)
        shelf.put(signed, received_ms=0)
    held = [held.ref.sequence for held in shelf.recent(now_ms=make.NOW_MS, max_age_seconds=60)]
    assert held == [5, 4, 3]
    since = shelf.since(author.peer_id, 0, now_ms=make.NOW_MS)
    assert [one.ref.sequence for one in since] == [3, 4, 5]
    for signed in batches:
        shelf.remove(signed.batch_id)
        assert shelf.get(signed.batch_id) is None
    assert len(shelf) == 0
    assert shelf.since(author.peer_id, 0, now_ms=make.NOW_MS) == []
