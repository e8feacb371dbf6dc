"""Random sequences of calls against the replay buffer, beside a model that scans everything."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from p2p.buffer.replay import Entry, GroupState, InsertOutcome, Pool, ReplayBuffer, Strategy
from shoal_wire.types import GroupId, PeerId
from tests.p2p.buffer.entries import OWN_PEER, entry, group_id, ids_of, limits

PUBLISHERS = ("a", "b", "c", "d")
numbers = st.integers(0, 60)
some_numbers = st.lists(numbers, max_size=4, unique=True)
publishers = st.sampled_from(PUBLISHERS)
holders = st.sampled_from(["t1", "t2"])
offers = st.tuples(numbers, publishers, st.sampled_from([1, 8, 15, 30, 50]))
caps_of_groups_and_bytes = st.sampled_from([(7, 1000), (100, 100), (8, 120)])


@dataclass
class Modelled:
    """A resident group as the model sees it."""

    entry: Entry
    uses: int = 0


class BufferMachine(RuleBasedStateMachine):
    """Every rule predicts what the buffer must do, by plain scans."""

    @initialize(caps=caps_of_groups_and_bytes, max_uses=st.integers(1, 2), seed=st.integers(0, 3))
    def start(self, caps: tuple[int, int], max_uses: int, seed: int) -> None:
        self.limits = limits(
            max_groups=caps[0],
            max_bytes=caps[1],
            max_age_seconds=50.0,
            max_groups_per_publisher=4,
            max_bytes_per_publisher=45,
            own_max_groups=3,
            own_max_bytes=40,
            max_uses=max_uses,
        )
        self.buffer = ReplayBuffer(self.limits, random.Random(seed))
        self.now = 0.0
        self.here: dict[GroupId, Modelled] = {}
        self.leases: dict[GroupId, tuple[str, float]] = {}
        self.consumed: set[GroupId] = set()
        self.seen: set[GroupId] = set()

    # The model

    def ready(self, *, own: bool) -> list[GroupId]:
        return [
            key
            for key, item in self.here.items()
            if item.entry.own == own and key not in self.leases
        ]

    def model_expire(self) -> None:
        overdue = [key for key, (_, deadline) in self.leases.items() if deadline <= self.now]
        for key in overdue:
            del self.leases[key]
        for key in [*self.ready(own=True), *self.ready(own=False)]:
            if self.now - self.here[key].entry.received_at >= 50.0:
                del self.here[key]

    def model_consume(self, key: GroupId) -> None:
        self.here.pop(key, None)
        self.leases.pop(key, None)
        self.consumed.add(key)

    def held(self, publisher: PeerId, own: bool) -> list[Modelled]:
        return [
            item
            for item in self.here.values()
            if item.entry.own == own and item.entry.group.publisher == publisher
        ]

    def publisher(self, key: GroupId) -> PeerId:
        return self.here[key].entry.group.publisher

    def within_bounds(self) -> None:
        caps = self.limits
        for own in (True, False):
            pool = [item.entry for item in self.here.values() if item.entry.own == own]
            max_groups = caps.own_max_groups if own else caps.max_groups
            max_bytes = caps.own_max_bytes if own else caps.max_bytes
            assert len(pool) <= max_groups
            assert sum(item.num_bytes for item in pool) <= max_bytes
        for name in PUBLISHERS:
            held = self.held(PeerId(name), own=False)
            assert len(held) <= caps.max_groups_per_publisher
            assert sum(item.entry.num_bytes for item in held) <= caps.max_bytes_per_publisher

    # The rules

    @rule(offered=st.lists(offers, min_size=1, max_size=8))
    def insert_externals(self, offered: list[tuple[int, str, int]]) -> None:
        for number, name, size in offered:
            self.insert(entry(number, name, num_bytes=size, received_at=self.now))

    @rule(number=numbers, own=st.booleans(), age=st.sampled_from([0, 28, 49, 50, 60]))
    def insert_one(self, number: int, own: bool, age: int) -> None:
        self.insert(entry(number, "a", num_bytes=15, own=own, received_at=self.now - age))

    def insert(self, item: Entry) -> None:
        self.model_expire()
        outcome = self.buffer.insert(item, self.now)
        expected = self.expected_refusal(item)
        if expected is not None:
            assert outcome is expected
            return
        after = {view.entry.group.group_id for view in self.buffer.residents()}
        displaced = frozenset(self.here) - after
        possible = self.possible_victims(item, frozenset(self.here))
        if outcome is InsertOutcome.OVER_QUOTA:
            assert None in possible
            assert not displaced
            return
        assert outcome is InsertOutcome.STORED
        assert displaced in possible
        for key in displaced:
            del self.here[key]
        self.here[item.group.group_id] = Modelled(entry=item)
        self.seen.add(item.group.group_id)

    def expected_refusal(self, item: Entry) -> InsertOutcome | None:
        key = item.group.group_id
        if key in self.consumed:
            return InsertOutcome.CONSUMED_BEFORE
        if key in self.seen or key in self.leases:
            return InsertOutcome.DUPLICATE
        if self.now - item.received_at >= 50.0:
            return InsertOutcome.TOO_OLD
        if item.num_bytes > (40 if item.own else 45):
            return InsertOutcome.TOO_LARGE
        return None

    def possible_victims(
        self, item: Entry, here: frozenset[GroupId]
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

    def next_victims(self, item: Entry, here: frozenset[GroupId]) -> set[GroupId] | None:
        """Return which groups may go next; None if `item` fits."""
        pool = [self.here[key].entry for key in here if self.here[key].entry.own == item.own]
        mine = item.group.publisher
        caps = self.limits
        num, size = Counter[PeerId](), Counter[PeerId]()
        for other in [*pool, item]:
            num[other.group.publisher] += 1
            size[other.group.publisher] += other.num_bytes
        if item.own:
            if num[mine] <= caps.own_max_groups and size[mine] <= caps.own_max_bytes:
                return None
            return self.oldest_of({mine}, item.own, here)
        if num[mine] > caps.max_groups_per_publisher or size[mine] > caps.max_bytes_per_publisher:
            return self.oldest_of({mine}, item.own, here)
        if num.total() > caps.max_groups:
            measure = num
        elif size.total() > caps.max_bytes:
            measure = size
        else:
            return None
        with_ready = {self.publisher(key) for key in self.ready(own=False) if key in here}
        largest = max((measure[peer] for peer in with_ready | {mine}), default=0)
        fattest = {peer for peer in with_ready if measure[peer] == largest} - {mine}
        return self.oldest_of(fattest or {mine}, item.own, here)

    def oldest_of(
        self, publishers: set[PeerId], own: bool, here: frozenset[GroupId]
    ) -> set[GroupId]:
        oldest: set[GroupId] = set()
        for publisher in publishers:
            ready = [
                key
                for key in self.ready(own=own)
                if key in here and self.publisher(key) == publisher
            ]
            ages = [self.here[key].entry.received_at for key in ready]
            oldest |= {key for key in ready if self.here[key].entry.received_at == min(ages)}
        return oldest

    @rule(
        count=st.integers(0, 5),
        own=st.booleans(),
        strategy=st.sampled_from(list(Strategy)),
        holder=holders,
        seconds=st.sampled_from([7.0, 28.0]),
        exclude=some_numbers,
        banned=st.booleans(),
    )
    def lease(
        self,
        count: int,
        own: bool,
        strategy: Strategy,
        holder: str,
        seconds: float,
        exclude: list[int],
        banned: bool,
    ) -> None:
        self.model_expire()
        left_out = {group_id(number) for number in exclude}
        weights = {PeerId("a"): 0.0, PeerId("b"): 0.01} if banned else None
        candidates = {
            key
            for key in self.ready(own=own)
            if key not in left_out and not (banned and self.publisher(key) == "a")
        }
        leased = ids_of(
            self.buffer.lease(
                count,
                pool=Pool.OWN if own else Pool.EXTERNAL,
                strategy=strategy,
                holder=holder,
                now=self.now,
                lease_seconds=seconds,
                exclude=left_out,
                weights=weights,
            )
        )
        assert len(leased) == len(set(leased)) == min(count, len(candidates))
        assert set(leased) <= candidates
        if strategy is Strategy.NEWEST and leased:
            ages = [self.here[key].entry.received_at for key in leased]
            rest = [self.here[key].entry.received_at for key in candidates - set(leased)]
            assert ages == sorted(ages, reverse=True)
            assert min(ages) >= max(rest, default=-1e9)
        for key in leased:
            self.leases[key] = (holder, self.now + seconds)

    @rule(chosen=some_numbers, holder=holders)
    def ack(self, chosen: list[int], holder: str) -> None:
        keys = [group_id(number) for number in chosen]
        fresh = [key for key in keys if key not in self.consumed]
        for key in fresh:
            item = self.here.get(key)
            if item is not None:
                item.uses += 1
                if item.uses < self.limits.max_uses:
                    if self.leases.get(key, ("",))[0] == holder:
                        del self.leases[key]
                    continue
            self.model_consume(key)
        assert self.buffer.ack(keys, holder, self.now) == len(fresh)
        self.model_expire()

    @rule(chosen=some_numbers)
    def mark_consumed(self, chosen: list[int]) -> None:
        keys = {group_id(number) for number in chosen}
        assert self.buffer.mark_consumed(keys) == len(keys - self.consumed)
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

    @rule(chosen=some_numbers)
    def discard(self, chosen: list[int]) -> None:
        keys = {group_id(number) for number in chosen} & set(self.here)
        assert self.buffer.discard(keys) == len(keys)
        for key in keys:
            del self.here[key]
            self.leases.pop(key, None)

    @rule(seconds=st.sampled_from([1.0, 7.0, 28.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        before = len(self.here)
        self.model_expire()
        assert self.buffer.expire(self.now) == before - len(self.here)

    # What always holds

    @invariant()
    def agrees_with_the_model(self) -> None:
        if not hasattr(self, "buffer"):
            return
        states = {view.entry.group.group_id: view.state for view in self.buffer.residents()}
        assert states == {
            key: GroupState.LEASED if key in self.leases else GroupState.READY for key in self.here
        }
        self.within_bounds()

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "buffer"):
            return
        stats = self.buffer.stats(self.now)
        externals = [item.entry for item in self.here.values() if not item.entry.own]
        assert stats.groups == len(externals)
        assert stats.bytes == sum(item.num_bytes for item in externals)
        assert stats.own_groups == len(self.here) - len(externals)
        assert stats.leased == len([key for key in self.here if key in self.leases])
        assert stats.ready_external == len(self.ready(own=False))
        assert stats.ready_own == len(self.ready(own=True))
        by_peer = {item.peer_id: item for item in stats.per_publisher}
        for name in (*PUBLISHERS, OWN_PEER):
            held = self.held(PeerId(name), own=name == OWN_PEER)
            shown = by_peer.get(PeerId(name))
            assert (shown.groups if shown else 0) == len(held)


TestBuffer = BufferMachine.TestCase
TestBuffer.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
