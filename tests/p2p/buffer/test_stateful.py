"""Random sequences of calls against the replay buffer and a model that scans everything."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shoal_p2p.buffer.replay import ReplayBuffer
from shoal_p2p.buffer.types import BufferEntry, InsertOutcome
from shoal_wire.types import GroupId, PeerId
from tests.p2p.buffer.entries import OWN_PEER, entry, group_id, ids_of, limits, only

PUBLISHERS = ("a", "b", "c", "d")
numbers = st.integers(0, 60)
some_numbers = st.lists(numbers, max_size=4, unique=True)
publishers = st.sampled_from(PUBLISHERS)
holders = st.sampled_from(["t1", "t2"])
offers = st.tuples(numbers, publishers, st.sampled_from([1, 8, 15, 30, 50]))
caps_of_groups_and_bytes = st.sampled_from([(7, 1000), (100, 100), (8, 120)])


class BufferMachine(RuleBasedStateMachine):
    """Every rule predicts what the buffer must do, by plain scans."""

    @initialize(caps=caps_of_groups_and_bytes, seed=st.integers(0, 3))
    def start(self, caps: tuple[int, int], seed: int) -> None:
        self.limits = limits(
            max_groups=caps[0],
            max_bytes=caps[1],
            max_age_seconds=50.0,
            max_groups_per_publisher=4,
            max_bytes_per_publisher=45,
        )
        self.buffer = ReplayBuffer(self.limits, random.Random(seed))
        self.now = 0.0
        self.here: dict[GroupId, BufferEntry] = {}
        self.own: dict[GroupId, BufferEntry] = {}
        self.leases: dict[GroupId, tuple[str, float]] = {}
        self.consumed: set[GroupId] = set()
        self.seen: set[GroupId] = set()
        self.given_up: set[tuple[GroupId, PeerId]] = set()
        self.dropped = Counter[str]()
        self.evicted = 0

    # The model

    def ready(self) -> list[GroupId]:
        return [key for key in self.here if key not in self.leases]

    def model_expire(self) -> int:
        """End leases, then drop what is too old; count it."""
        overdue = [key for key, (_, deadline) in self.leases.items() if deadline <= self.now]
        for key in overdue:
            del self.leases[key]
        old = [key for key in self.ready() if self.now - self.here[key].received_at >= 50.0]
        own = [key for key, item in self.own.items() if self.now - item.received_at >= 50.0]
        for key in old:
            del self.here[key]
        for key in own:
            del self.own[key]
        self.dropped["expired"] += len(old) + len(own)
        return len(old) + len(own)

    def model_give_up(self, key: GroupId) -> None:
        """It leaves by its publisher's doing: others may bring it."""
        self.given_up.add((key, self.publisher(key)))
        self.seen.discard(key)
        del self.here[key]

    def model_consume(self, key: GroupId) -> None:
        self.here.pop(key, None)
        self.leases.pop(key, None)
        self.consumed.add(key)

    def held(self, publisher: PeerId) -> list[BufferEntry]:
        return [item for item in self.here.values() if item.group.publisher == publisher]

    def publisher(self, key: GroupId) -> PeerId:
        return self.here[key].group.publisher

    def within_bounds(self) -> None:
        caps = self.limits
        for pool in (self.here, self.own):
            assert len(pool) <= caps.max_groups
            assert sum(item.num_bytes for item in pool.values()) <= caps.max_bytes
        for name in PUBLISHERS:
            held = self.held(PeerId(name))
            assert len(held) <= caps.max_groups_per_publisher
            assert sum(item.num_bytes for item in held) <= caps.max_bytes_per_publisher

    # The rules

    @rule(offered=st.lists(offers, min_size=1, max_size=8))
    def insert_externals(self, offered: list[tuple[int, str, int]]) -> None:
        for number, name, size in offered:
            self.insert(entry(number, name, num_bytes=size, received_at=self.now))

    @rule(number=numbers, age=st.sampled_from([0, 28, 49, 50, 60]))
    def insert_one(self, number: int, age: int) -> None:
        self.insert(entry(number, "a", num_bytes=15, received_at=self.now - age))

    @rule(number=numbers, size=st.sampled_from([1, 15, 50, 101, 1001]))
    def record_own(self, number: int, size: int) -> None:
        self.model_expire()
        item = entry(number, OWN_PEER, num_bytes=size, received_at=self.now)
        outcome = self.buffer.record_own(item, self.now)
        expected = self.expected_refusal(item, self.limits.max_bytes)
        assert outcome is (expected or InsertOutcome.STORED)
        if expected is not None:
            self.dropped[expected] += 1
            return
        self.own[item.group.group_id] = item
        self.seen.add(item.group.group_id)
        while (
            len(self.own) > self.limits.max_groups
            or sum(own.num_bytes for own in self.own.values()) > self.limits.max_bytes
        ):
            del self.own[next(iter(self.own))]
            self.evicted += 1

    def insert(self, item: BufferEntry) -> None:
        self.model_expire()
        outcome = self.buffer.insert(item, self.now)
        expected = self.expected_refusal(item, self.limits.max_bytes_per_publisher)
        if expected is not None:
            assert outcome is expected
            self.dropped[expected] += 1
            return
        after = {item.group.group_id for item in self.buffer.external_groups()}
        displaced = frozenset(self.here) - after
        possible = self.possible_victims(item, frozenset(self.here))
        if outcome is InsertOutcome.OVER_QUOTA:
            assert None in possible
            assert not displaced
            self.dropped[outcome] += 1
            return
        assert outcome is InsertOutcome.STORED
        assert displaced in possible
        self.evicted += len(displaced)
        for key in displaced:
            self.model_give_up(key)
        self.here[item.group.group_id] = item
        self.seen.add(item.group.group_id)

    def expected_refusal(self, item: BufferEntry, max_bytes: int) -> InsertOutcome | None:
        key = item.group.group_id
        if key in self.consumed:
            return InsertOutcome.CONSUMED_BEFORE
        is_given_up = (key, item.group.publisher) in self.given_up
        if key in self.seen or key in self.leases or key in self.own or is_given_up:
            return InsertOutcome.DUPLICATE
        if self.now - item.received_at >= 50.0:
            return InsertOutcome.TOO_OLD
        if item.num_bytes > max_bytes:
            return InsertOutcome.TOO_LARGE
        return None

    def possible_victims(
        self, item: BufferEntry, here: frozenset[GroupId]
    ) -> set[frozenset[GroupId] | None]:
        """Return every set that may go for `item`, None among them if it may be refused.

        There are several where two publishers are equally large or two groups equally old.
        """
        choices = self.next_victims(item, here)
        if choices is None:
            return {frozenset()}
        if not choices:
            return {None}
        found: set[frozenset[GroupId] | None] = set()
        for victim in choices:
            for more in self.possible_victims(item, here - {victim}):
                found.add(None if more is None else more | {victim})
        return found

    def next_victims(self, item: BufferEntry, here: frozenset[GroupId]) -> set[GroupId] | None:
        """Return which groups may go next; None if `item` fits."""
        pool = [self.here[key] for key in here]
        mine = item.group.publisher
        caps = self.limits
        num, size = Counter[PeerId](), Counter[PeerId]()
        for other in [*pool, item]:
            num[other.group.publisher] += 1
            size[other.group.publisher] += other.num_bytes
        if num[mine] > caps.max_groups_per_publisher or size[mine] > caps.max_bytes_per_publisher:
            return self.oldest_of({mine}, here)
        if num.total() > caps.max_groups:
            measure = num
        elif size.total() > caps.max_bytes:
            measure = size
        else:
            return None
        with_ready = {self.publisher(key) for key in self.ready() if key in here}
        largest = max((measure[peer] for peer in with_ready | {mine}), default=0)
        fattest = {peer for peer in with_ready if measure[peer] == largest} - {mine}
        return self.oldest_of(fattest or {mine}, here)

    def oldest_of(self, publishers: set[PeerId], here: frozenset[GroupId]) -> set[GroupId]:
        oldest: set[GroupId] = set()
        for publisher in publishers:
            ready = [
                key for key in self.ready() if key in here and self.publisher(key) == publisher
            ]
            ages = [self.here[key].received_at for key in ready]
            oldest |= {key for key in ready if self.here[key].received_at == min(ages)}
        return oldest

    @rule(
        count=st.integers(0, 5),
        holder=holders,
        seconds=st.sampled_from([7.0, 28.0]),
        banned=st.booleans(),
    )
    def lease(self, count: int, holder: str, seconds: float, banned: bool) -> None:
        self.model_expire()
        weights = only(a=0.0, b=0.01) if banned else only()
        candidates = {key for key in self.ready() if not (banned and self.publisher(key) == "a")}
        leased = ids_of(
            self.buffer.lease(
                count, holder=holder, now=self.now, lease_seconds=seconds, weight_of=weights
            )
        )
        assert len(leased) == len(set(leased)) == min(count, len(candidates))
        assert set(leased) <= candidates
        for key in leased:
            self.leases[key] = (holder, self.now + seconds)

    @rule(chosen=some_numbers)
    def consume(self, chosen: list[int]) -> None:
        keys = {group_id(number) for number in chosen}
        assert self.buffer.consume(keys) == len(keys - self.consumed)
        for key in keys:
            self.model_consume(key)

    @rule(chosen=some_numbers, holder=holders)
    def release(self, chosen: list[int], holder: str) -> None:
        keys = [group_id(number) for number in chosen]
        mine = [key for key in keys if self.leases.get(key, ("",))[0] == holder]
        assert self.buffer.release(keys, holder) == len(mine)
        for key in mine:
            del self.leases[key]

    @rule(holder=holders)
    def disconnect(self, holder: str) -> None:
        mine = [key for key, (name, _) in self.leases.items() if name == holder]
        assert self.buffer.release_holder(holder) == len(mine)
        for key in mine:
            del self.leases[key]

    @rule(chosen=some_numbers, holder=holders)
    def reconnect(self, chosen: list[int], holder: str) -> None:
        self.model_expire()
        keys = [group_id(number) for number in chosen]
        assert self.buffer.hold(keys, holder, self.now, 28.0) == len(
            [key for key in keys if key in self.here]
        )
        for key in keys:
            if key not in self.consumed:
                self.leases[key] = (holder, self.now + 28.0)

    @rule(chosen=some_numbers, publisher=publishers)
    def discard(self, chosen: list[int], publisher: str) -> None:
        named = {group_id(number) for number in chosen}
        keys = {key for key in named & set(self.here) if self.publisher(key) == publisher}
        assert self.buffer.discard(named, PeerId(publisher)) == len(keys)
        self.given_up |= {(key, PeerId(publisher)) for key in named}
        self.dropped["discarded"] += len(keys)
        for key in keys:
            self.model_give_up(key)

    @rule(seconds=st.sampled_from([1.0, 7.0, 28.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        too_old = self.model_expire()
        assert self.buffer.expire(self.now) == too_old

    # What always holds

    @invariant()
    def agrees_with_the_model(self) -> None:
        if not hasattr(self, "buffer"):
            return
        assert [item.group.group_id for item in self.buffer.external_groups()] == list(self.here)
        ready = {key: slot.is_ready for key, slot in self.buffer._pool.slots.items()}
        assert ready == {key: key not in self.leases for key in self.here}
        assert [item.group.group_id for item in self.buffer.own_groups()] == list(self.own)
        shown = {key for key in map(group_id, range(61)) if self.buffer.get(key) is not None}
        assert shown == self.here.keys()
        self.within_bounds()

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "buffer"):
            return
        stats = self.buffer.stats(self.now)
        assert stats.groups == len(self.here)
        assert stats.bytes == sum(item.num_bytes for item in self.here.values())
        assert stats.local_groups == len(self.own)
        assert stats.local_bytes == sum(item.num_bytes for item in self.own.values())
        assert stats.leased == len([key for key in self.here if key in self.leases])
        assert self.buffer.ready() == len(self.ready())
        assert stats.evicted == self.evicted
        assert stats.consumed_total == len(self.consumed)
        left = {why: num for why, num in stats.dropped.items() if not why.startswith("evicted")}
        assert left == +self.dropped
        by_peer = {item.peer_id: item for item in stats.publishers}
        for name in (*PUBLISHERS, OWN_PEER):
            held = self.own.values() if name == OWN_PEER else self.held(PeerId(name))
            shown = by_peer.get(PeerId(name))
            assert (shown.groups if shown else 0) == len(held)


TestBuffer = BufferMachine.TestCase
TestBuffer.settings = settings(max_examples=60, stateful_step_count=40)
