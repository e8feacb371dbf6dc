"""The worker's time goes by connection before it goes by name, and is paid before it is had."""

from __future__ import annotations

import functools
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pytest
import trio
import trio.testing
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal_p2p.fair import ShareKey
from shoal_p2p.fair.limiter import FairLimiter
from shoal_p2p.gossip.settings import GossipSettings
from shoal_p2p.intake.verifier_scheduler import (
    MAX_COST_S,
    MAX_WAITING,
    QUEUE_TIMEOUT_S,
    CostLimitExceeded,
    VerifierScheduler,
)
from shoal_p2p.reputation.scoring import BAN_BELOW, Scoreboard
from shoal_tasks.errors import UnknownFamily, WorkerUnavailable
from shoal_tasks.families import TRAIN_SEED_MIN, coordinates
from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import TaskCoordinates
from shoal_wire.digests import question_digest
from shoal_wire.types import Digest, RolloutGroup
from shoal_wire.verdict import Reason
from tests.support import factories as make
from tests.support.doubles.worker import InstantWorker, fake_question
from tests.support.intake_bench import IntakeBench

_DIGEST = Digest(bytes(16))
CHEAP_S, SLOW_S = 0.0005, 0.02
_SIZES = st.integers(24, 1024)
_GOSSIP = GossipSettings()


class OneWorker:
    """One thing at a time, first come first served, each task at its family's price."""

    def __init__(self) -> None:
        self._lock = trio.StrictFIFOLock()
        self.served = 0

    async def question_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest]:
        async with self._lock:
            await trio.sleep(sum(SLOW_S if task.family == "slow" else CHEAP_S for task in tasks))
        self.served += len(tasks)
        return [_DIGEST] * len(tasks)

    def known_digests(self, _tasks: Sequence[TaskCoordinates]) -> None:
        pass


@functools.cache
def task(family: str, index: int, seed: int = 1) -> TaskCoordinates:
    return replace(make.coordinates_at(0), family=family, seed=seed, index=index)


def by(network: str, name: str = "itself") -> ShareKey:
    """The path of what a network signs."""
    return (network, "signed", name)


@functools.cache
def tasks(count: int, family: str = "cheap", first: int = 0) -> tuple[TaskCoordinates, ...]:
    return tuple(task(family, first + n) for n in range(count))


class Course:
    """Strangers who ask without end, and honest batches of eight tasks from time to time."""

    def __init__(self, families: Sequence[str], seed: int = 0) -> None:
        self.turns = VerifierScheduler(OneWorker())
        self.seats = FairLimiter(_GOSSIP.max_validating)
        self.families = families
        self.rng = random.Random(seed)
        self.waits: list[float] = []
        self.put_off = 0

    async def ask(self, wanted: Sequence[TaskCoordinates], lane: str) -> None:
        async with self.seats.slot((lane,)):
            await self.turns.question_digests(wanted, by(lane))

    async def flood(self, lane: str, sizes: Sequence[int]) -> None:
        async def one() -> None:
            while True:
                batch = tasks(self.rng.choice(sizes), self.rng.choice(self.families))
                try:
                    await self.ask(batch, lane)
                except WorkerUnavailable:
                    await trio.sleep(0.5)

        async with trio.open_nursery() as nursery:
            for _ in range(_GOSSIP.limits.max_validating_per_peer):
                nursery.start_soon(one)

    async def be_honest(self, lane: str) -> None:
        for _ in range(8):
            began = trio.current_time()
            try:
                await self.ask(tasks(8), lane)
            except WorkerUnavailable:
                self.put_off += 1
            self.waits.append(trio.current_time() - began)
            await trio.sleep(1.0)

    async def play(self, num_hostile: int, sizes: Sequence[int]) -> None:
        with trio.move_on_after(60.0):
            async with trio.open_nursery() as hostile:
                for number in range(num_hostile):
                    hostile.start_soon(self.flood, f"bad {number}", sizes)
                async with trio.open_nursery() as honest:
                    for number in range(3):
                        honest.start_soon(self.be_honest, f"good {number}")
                hostile.cancel_scope.cancel()


@settings(max_examples=3)
@given(num_hostile=st.integers(4, 8), family=st.sampled_from(["cheap", "slow"]), size=_SIZES)
@example(num_hostile=8, family="cheap", size=1024)
@example(num_hostile=8, family="slow", size=24)
def test_however_many_besiege_the_worker_an_honest_batch_waits_a_moment(
    num_hostile: int, family: str, size: int
) -> None:
    """Each takes all the turns that gossip gives a network: the honest share what is left."""

    async def main() -> None:
        course = Course([family])
        await course.play(num_hostile, [size])
        assert (len(course.waits), course.put_off) == (24, 0)
        assert statistics.median(course.waits) < 0.5

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_a_lane_holds_no_more_than_its_bound(autojump_clock: trio.testing.MockClock) -> None:
    worker = InstantWorker()
    worker.gate = trio.Event()
    turns, refused = VerifierScheduler(worker), []

    async def ask(count: int) -> None:
        try:
            await turns.question_digests(tasks(count), by("one"))
        except WorkerUnavailable:
            refused.append(count)

    async with trio.open_nursery() as nursery:
        for _ in range(40):
            nursery.start_soon(ask, 1)
        nursery.start_soon(ask, 1024)
        await trio.testing.wait_all_tasks_blocked()
        assert len(refused) == 25
        worker.gate.set()
    assert len(refused) == 25
    assert len(await turns.question_digests(tasks(1024), by("one"))) == 1024


async def test_a_cached_result_takes_no_turn(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Remembering(InstantWorker):
        def known_digests(self, wanted: Sequence[TaskCoordinates]) -> list[Digest] | None:
            return [_DIGEST for _ in wanted] if all(one.index < 8 for one in wanted) else None

    worker = Remembering()
    worker.gate = trio.Event()
    turns = VerifierScheduler(worker)
    async with trio.open_nursery() as nursery:
        for number in range(MAX_WAITING):
            nursery.start_soon(turns.question_digests, tasks(2, first=8 + number), by("one"))
        await trio.testing.wait_all_tasks_blocked()
        assert await turns.question_digests(tasks(8), by("one")) == [_DIGEST] * 8
        assert worker.num_requested == 4  # two slices of two, which wait
        with pytest.raises(WorkerUnavailable):  # one that is not remembered makes all of it a call
            await turns.question_digests(tasks(9), by("one"))
        nursery.cancel_scope.cancel()


async def test_the_price_of_a_slow_family_is_measured(
    autojump_clock: trio.testing.MockClock,
) -> None:
    worker = OneWorker()
    turns = VerifierScheduler(worker)
    for number in range(30):
        await turns.question_digests(tasks(4, "slow", first=number), by("one"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.question_digests, tasks(80, "slow"), by("one"))
        await trio.sleep(0.001)
        began, served = trio.current_time(), worker.served
        await turns.question_digests(tasks(2), by("two"))
        assert trio.current_time() - began < 0.2
        assert worker.served - served < 12
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("error", [WorkerUnavailable("down"), UnknownFamily("what")])
async def test_after_an_error_the_turns_go_on(error: Exception) -> None:
    worker = InstantWorker()
    turns = VerifierScheduler(worker)
    for _ in range(5):
        worker.error = error
        with pytest.raises(type(error)):
            await turns.question_digests(tasks(200), by("one"))
        worker.error = None
        assert len(await turns.question_digests(tasks(200), by("one"))) == 200


async def test_who_stops_waiting_gives_its_turn_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turns = VerifierScheduler(OneWorker())
    for _ in range(10):
        with trio.move_on_after(0.05):
            async with trio.open_nursery() as nursery:
                for number in range(5):
                    nursery.start_soon(turns.question_digests, tasks(500), by(f"{number}"))
    assert len(await turns.question_digests(tasks(3), by("one"))) == 3


async def test_names_of_one_network_share_its_turns_and_what_it_signs_has_its_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turns, had = VerifierScheduler(OneWorker(), timeout_s=60.0), Counter[str]()

    async def ask(share_key: ShareKey) -> None:
        while True:
            await turns.question_digests(tasks(64), share_key)
            had.update(share_key[:2])

    with trio.move_on_after(30.0):
        async with trio.open_nursery() as nursery:
            for _ in range(4):  # as much at once as keeps the worker busy
                nursery.start_soon(ask, ("honest", "signed", "itself"))
                nursery.start_soon(ask, ("many", "signed", "itself"))
            for number in range(10):
                nursery.start_soon(ask, ("many", "passed on", f"name {number}"))
    assert had["honest"] == pytest.approx(had["many"], rel=0.1)
    assert had["passed on"] == pytest.approx(had["many"] / 2, rel=0.1)


@pytest.mark.slow
@settings(max_examples=8)
@given(
    seed=st.integers(0, 1 << 16),
    num_hostile=st.integers(1, 8),
    sizes=st.lists(st.integers(1, 1024), min_size=1, max_size=4),
    families=st.sampled_from([("cheap",), ("slow",), ("cheap", "slow")]),
)
def test_whatever_others_ask_for_a_modest_lane_is_never_put_off(
    seed: int, num_hostile: int, sizes: list[int], families: tuple[str, ...]
) -> None:
    course = Course(families, seed)
    trio.run(course.play, num_hostile, sizes, clock=trio.testing.MockClock(autojump_threshold=0))
    assert (len(course.waits), course.put_off) == (24, 0)


class CountedWorker(OneWorker):
    """Counts its time by the seed of the tasks, which names the publisher; `slowness_s` each."""

    def __init__(self, slowness_s: float) -> None:
        super().__init__()
        self.slowness_s = slowness_s
        self.had_s = defaultdict[int, float](float)

    async def question_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest]:
        async with self._lock:
            for task in tasks:
                await trio.sleep(self.slowness_s)
                self.had_s[task.seed] += self.slowness_s
        return [question_digest(fake_question(task)) for task in tasks]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 12)), min_size=1, max_size=MAX_WAITING
    ),
    st.sampled_from([0.01, 0.03, 0.14]),
    st.booleans(),
)
@settings(max_examples=60)
def test_what_the_worker_can_do_in_time_is_never_put_off(
    batches: list[tuple[str, int]], slowness_s: float, is_own: bool
) -> None:
    """A batch waits for others' work, and its side of the network for what it may: no batch that
    both leave time for is postponed, whether or not the cost of its tasks was known."""

    def work_s(networks: str) -> float:
        return slowness_s * sum(count for network, count in batches if network in networks)

    while work_s("abc") > 0.9 * QUEUE_TIMEOUT_S or max(map(work_s, "abc")) > MAX_COST_S:
        batches.pop()

    async def play() -> None:
        turns = VerifierScheduler(CountedWorker(slowness_s))
        async with trio.open_nursery() as nursery:
            for number, (network, count) in enumerate(batches):
                batch = tasks(count, first=100 * number)
                ask = functools.partial(turns.question_digests, batch, by(network), is_own=is_own)
                nursery.start_soon(ask)

    trio.run(play, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_a_publisher_behind_an_expensive_batch_is_not_charged_for_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    worker = CountedWorker(0.1)
    turns, refusals = VerifierScheduler(worker), dict[str, type[Exception]]()

    async def ask(lane: str, count: int) -> None:
        try:
            await turns.question_digests(tasks(count, family=lane), by(lane), is_own=True)
        except WorkerUnavailable as error:
            refusals[lane] = type(error)

    await ask("modest", 1)  # so that its price is known, and it has two turns for two tasks
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "modest", 2)
        await trio.sleep(0.05)
        worker.slowness_s = 9.0
        nursery.start_soon(ask, "expensive", 1)
    assert refusals == {"modest": WorkerUnavailable, "expensive": CostLimitExceeded}


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 7))]
)
def test_whose_own_batches_are_never_done_loses_its_share(seed: int) -> None:
    """A batch that is passed on keeps its lane's share, whatever it asks for. A seed is a crowd."""
    rng = random.Random(seed)
    num_wasteful, num_modest = rng.randint(1, 3), rng.randint(1, 4)
    size, slowness_s = rng.randint(100, 400), rng.choice([0.02, 0.03])
    for is_own in (True, False):
        had_s = played(num_wasteful, num_modest, size, slowness_s, is_own=is_own)
        wasted, least = max(had_s[:num_wasteful]), min(had_s[num_wasteful:])
        assert (wasted < least / 2) is is_own, (wasted, least, size, slowness_s)


def played(
    num_wasteful: int, num_modest: int, size: int, slowness_s: float, *, is_own: bool
) -> list[float]:
    """Return what each lane had of the worker in 8 seconds, the wasteful ones' first."""
    worker = CountedWorker(slowness_s)
    turns = VerifierScheduler(worker)

    async def ask(lane: int, count: int) -> None:
        wanted = [task(f"of {lane}", n, seed=lane) for n in range(count)]
        while True:
            try:
                await turns.question_digests(wanted, by(str(lane)), is_own=is_own)
            except WorkerUnavailable:
                await trio.sleep(0.01)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for lane in range(num_wasteful + num_modest):
                for _ in range(3):
                    nursery.start_soon(ask, lane, size if lane < num_wasteful else 2)
            # Until the first batches are over, which had more while no price was known.
            await trio.sleep(QUEUE_TIMEOUT_S + 1)
            worker.had_s.clear()
            await trio.sleep(8)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return [worker.had_s[lane] for lane in range(num_wasteful + num_modest)]


@pytest.mark.slow
@settings(max_examples=10)
@given(
    seed=st.integers(0, 1 << 16),
    slowness_s=st.sampled_from([0.001, 0.02, 0.1, 0.5, 3.0]),
    num_peers=st.integers(1, 6),
)
def test_a_slow_worker_bans_no_honest_peer(seed: int, slowness_s: float, num_peers: int) -> None:
    rng, board, manifest = random.Random(seed), Scoreboard(), make.swarm()
    seen: Counter[Reason] = Counter()

    async def main() -> None:
        bench = IntakeBench(manifest, questions=CountedWorker(slowness_s))
        authors = [make.Author(manifest) for _ in range(num_peers)]

        async def publish(author: make.Author) -> None:
            for _ in range(12):
                groups = [make.group(n) for n in range(rng.randint(1, 40))]
                raw = author.envelope(author.batch(groups))
                by = rng.choice(authors).peer_id
                for forwarder in {author.peer_id, by}:
                    judged = await bench.intake.validate(raw, author.peer_id, forwarder)
                    seen[judged.reason] += 1
                    now = trio.current_time()
                    board.judge(judged, signer=author.peer_id, forwarder=forwarder, now=now)
                await trio.sleep(rng.uniform(0, 2))

        async with bench.running(), trio.open_nursery() as nursery:
            for author in authors:
                nursery.start_soon(publish, author)
        for author in authors:
            score = board.score(author.peer_id, trio.current_time())
            assert score > BAN_BELOW / 4, "it would lose its place in the mesh"

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert set(seen) <= {
        *(Reason.VALID, Reason.DUPLICATE, Reason.OVER_QUOTA, Reason.BUSY),
        *(Reason.COST_LIMIT, Reason.WORKER_UNAVAILABLE),
    }


async def test_seats_go_to_who_has_fewest(autojump_clock: trio.testing.MockClock) -> None:
    seats, order = FairLimiter(4), []

    async def hold(source: str) -> None:
        async with seats.slot((source,)):
            order.append(source)
            await trio.sleep(1.0)

    async with trio.open_nursery() as nursery:
        for _ in range(40):
            nursery.start_soon(hold, "flood")
        await trio.sleep(0.5)
        nursery.start_soon(hold, "honest")
        await trio.sleep(0.6)
        assert order.count("honest") == 1
    assert len(order) == 41


async def test_a_free_seat_costs_no_turn_of_the_loop() -> None:
    seats, others_ran = FairLimiter(1), trio.Event()

    async def other() -> None:
        others_ran.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for _ in range(32):  # which of two continues after a turn is chance
            async with seats.slot(("a",)):
                assert not others_ran.is_set()


class TwoWorkers(CountedWorker):
    """Another worker makes the families on a server, `server_s` each."""

    def __init__(self, server_s: float) -> None:
        super().__init__(0.001)
        self._server = CountedWorker(server_s)

    async def question_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest]:
        if tasks[0].family == _ON_A_SERVER:
            return await self._server.question_digests(tasks)
        return await super().question_digests(tasks)


_ON_A_SERVER = make.SPECS[0].name


@settings(max_examples=12)
@given(
    seed=st.integers(0, 1 << 16),
    server_s=st.sampled_from([0.001, 0.05, 0.3, 1.0, 5.0, 60.0]),
    num_peers=st.integers(1, 6),
)
def test_how_slow_an_own_server_is_costs_no_honest_peer_and_no_other_family(
    seed: int, server_s: float, num_peers: int
) -> None:
    rng, manifest = random.Random(seed), make.swarm()
    seen: dict[bool, Counter[Reason]] = {True: Counter(), False: Counter()}

    async def main() -> None:
        lanes = {_ON_A_SERVER: "ws://127.0.0.1:8000"}
        bench = IntakeBench(manifest, questions=TwoWorkers(server_s), lanes=lanes)

        async def publish(author: make.Author) -> None:
            for _ in range(8):
                is_there = rng.random() < 0.5
                spec = make.SPECS[0] if is_there else make.SPECS[2]
                groups = [_group_of(spec, rng.randrange(1 << 20)) for _ in range(rng.randint(1, 8))]
                raw = author.envelope(author.batch(groups))
                judged = await bench.intake.validate(raw, author.peer_id, author.peer_id)
                seen[is_there][judged.reason] += 1
                await trio.sleep(rng.uniform(0, 2))

        async with bench.running(), trio.open_nursery() as nursery:
            for _ in range(num_peers):
                nursery.start_soon(publish, make.Author(manifest))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert set(seen[True]) <= {Reason.VALID, Reason.WORKER_UNAVAILABLE}
    assert set(seen[False]) <= {Reason.VALID}


def _group_of(spec: FamilySpec, number: int) -> RolloutGroup:
    at = coordinates(spec, TRAIN_SEED_MIN + number)
    return make.group(of=make.task_of(spec, at.seed, fake_question(at)))


@pytest.mark.parametrize("server_s", [0.05, 60.0])
async def test_a_batch_of_too_many_games_is_too_expensive_at_any_server_speed(
    autojump_clock: trio.testing.MockClock, server_s: float
) -> None:
    turns = VerifierScheduler(TwoWorkers(server_s), lanes={_ON_A_SERVER: "ws://127.0.0.1:8000"})
    for count, error in ((179, WorkerUnavailable), (180, CostLimitExceeded)):
        with pytest.raises(WorkerUnavailable) as failed:
            await turns.question_digests(tasks(count, _ON_A_SERVER), by("one"), is_own=True)
        assert failed.type is error
