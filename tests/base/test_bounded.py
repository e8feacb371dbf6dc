"""The bounded dictionary: a dictionary in every other way, and never over its bound."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shoal_base.bounded import BoundedDict

KEYS = st.integers(0, 9)
VALUES = st.integers()


def test_a_bound_below_nothing_is_none() -> None:
    with pytest.raises(ValueError, match="at least 0"):
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
