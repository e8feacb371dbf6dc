"""The bounded dictionary: a dictionary in every other way, and never over its bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shoal_base.bounded import BoundedDict

KEYS = st.integers(0, 9)
VALUES = st.integers()


def test_the_entry_assigned_longest_ago_goes() -> None:
    bounded: BoundedDict[str, int] = BoundedDict(2)
    bounded["a"] = 1
    bounded["b"] = 2
    bounded["a"] = 3
    assert bounded.put("c", 4) == ("b", 2)
    assert list(bounded.items()) == [("a", 3), ("c", 4)]


def test_reading_renews_nothing_and_setdefault_keeps_the_first_place() -> None:
    bounded: BoundedDict[str, int] = BoundedDict(2)
    bounded.update({"a": 1, "b": 2})
    assert bounded["a"] == 1
    assert bounded.get("a") == 1
    assert bounded.setdefault("a", 9) == 1
    assert bounded.put("c", 3) == ("a", 1)


def test_using_renews() -> None:
    bounded: BoundedDict[str, list[int]] = BoundedDict(2)
    first = bounded.use("a", list)
    bounded["b"] = []
    assert bounded.use("a", list) is first
    assert bounded.put("c", []) == ("b", [])
    assert list(bounded) == ["a", "c"]


def test_a_bound_of_nothing_keeps_nothing_and_one_below_is_none() -> None:
    bounded: BoundedDict[str, int] = BoundedDict(0)
    assert bounded.put("a", 1) == ("a", 1)
    assert bounded.use("a", lambda: 2) == 2
    assert not bounded
    with pytest.raises(ValueError, match="no bound"):
        BoundedDict(-1)


class AgainstPlainDict(RuleBasedStateMachine):
    """Every operation on a bounded dictionary and on a plain one that is cut by hand."""

    @initialize(limit=st.integers(0, 4))
    def start(self, limit: int) -> None:
        self.limit = limit
        self.bounded: BoundedDict[int, int] = BoundedDict(limit)
        self.plain: dict[int, int] = {}

    def cut(self, key: int, value: int) -> tuple[int, int] | None:
        self.plain.pop(key, None)
        self.plain[key] = value
        if len(self.plain) <= self.limit:
            return None
        oldest = next(iter(self.plain))
        return oldest, self.plain.pop(oldest)

    @rule(key=KEYS, value=VALUES)
    def put(self, key: int, value: int) -> None:
        assert self.bounded.put(key, value) == self.cut(key, value)

    @rule(key=KEYS, value=VALUES)
    def assign(self, key: int, value: int) -> None:
        self.bounded[key] = value
        self.cut(key, value)

    @rule(pairs=st.lists(st.tuples(KEYS, VALUES), max_size=12))
    def update(self, pairs: list[tuple[int, int]]) -> None:
        self.bounded.update(pairs)
        for key, value in pairs:
            self.cut(key, value)

    @rule(key=KEYS, value=VALUES)
    def setdefault(self, key: int, value: int) -> None:
        assert self.bounded.setdefault(key, value) == self.plain.get(key, value)
        if key not in self.plain:
            self.cut(key, value)

    @rule(key=KEYS, value=VALUES)
    def use(self, key: int, value: int) -> None:
        expected = self.plain.get(key, value)
        assert self.bounded.use(key, lambda: value) == expected
        self.cut(key, expected)

    @rule(key=KEYS)
    def pop(self, key: int) -> None:
        assert self.bounded.pop(key, None) == self.plain.pop(key, None)

    @rule(key=KEYS)
    def read(self, key: int) -> None:
        assert self.bounded.get(key) == self.plain.get(key)
        assert (key in self.bounded) == (key in self.plain)

    @rule()
    def clear(self) -> None:
        self.bounded.clear()
        self.plain.clear()

    @invariant()
    def is_within_its_bound_and_in_order(self) -> None:
        assert len(self.bounded) <= self.limit
        assert list(self.bounded.items()) == list(self.plain.items())
        assert list(reversed(self.bounded)) == list(reversed(self.plain))


TestAgainstPlainDict = AgainstPlainDict.TestCase


@given(st.lists(VALUES), st.integers(0, 4))
def test_what_goes_and_what_stays_is_what_came(values: list[int], limit: int) -> None:
    bounded: BoundedDict[int, int] = BoundedDict(limit)
    gone = [lost for pair in enumerate(values) if (lost := bounded.put(*pair)) is not None]
    assert [*gone, *bounded.items()] == list(enumerate(values))
