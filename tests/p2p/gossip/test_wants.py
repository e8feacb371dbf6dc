"""Who is asked for what was offered, and who has broken a promise."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from p2p.gossip.wants import WantBook


@dataclass
class Messages:
    """What a node has seen and is judging."""

    seen: set[bytes] = field(default_factory=set)
    judging: set[bytes] = field(default_factory=set)

    def knows(self, key: bytes) -> bool:
        return key in self.seen or key in self.judging

    def judges(self, key: bytes) -> bool:
        return key in self.judging


def book(max_ids: int = 100) -> WantBook[str]:
    return WantBook(max_ids=max_ids)


def test_one_peer_a_second_is_asked_for_what_is_not_known() -> None:
    wants, here = book(), Messages(seen={b"2"})
    assert wants.offered("a", [b"1", b"2"], here, 0.0) == [b"1"]
    wants.asked("a", [b"1"], 0.0)
    assert wants.offered("b", [b"1"], here, 0.9) == []
    assert wants.offered("b", [b"1"], here, 1.0) == [b"1"]


def test_what_is_dropped_in_our_own_trouble_is_asked_of_who_offered_it_meanwhile() -> None:
    wants, here = book(), Messages(judging={b"1", b"2", b"3"})
    assert wants.offered("a", [b"1", b"2", b"3"], here, 0.0) == []
    assert wants.dropped(here) == {}
    here.judging, here.seen = {b"3"}, {b"2"}
    assert wants.dropped(here) == {"a": [b"1"]}
    here.judging = set()
    assert wants.dropped(here) == {"a": [b"3"]}
    assert wants.dropped(here) == {}


def test_who_sends_has_kept_its_promise_whatever_becomes_of_the_message() -> None:
    wants, here = book(), Messages()
    for peer in "ab":
        wants.asked(peer, [b"1"], 0.0)
    wants.came("a", b"1")
    assert wants.broken("ab", here, 9.9) == []
    assert wants.broken("ab", here, 10.0) == ["b"]
    assert wants.broken("ab", here, 20.0) == [], "it is charged once"


def test_a_message_from_elsewhere_or_a_connection_that_ended_releases_from_the_promise() -> None:
    wants, here = book(), Messages()
    wants.asked("a", [b"1"], 0.0)
    wants.asked("b", [b"2"], 0.0)
    here.seen = {b"1"}
    assert wants.broken("a", here, 10.0) == []


KEYS = st.sampled_from([b"1", b"2", b"3", b"4"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["offer", "send", "judge", "drop", "accept", "beat"]),
        st.sampled_from("abc"),
        KEYS,
        st.floats(0.0, 3.0),
    ),
    max_size=60,
)


@given(STEPS)
def test_over_any_course_only_who_was_asked_and_never_sent_is_charged(
    steps: list[tuple[str, str, bytes, float]],
) -> None:
    wants, here, now = book(max_ids=2), Messages(), 0.0
    owed: dict[str, set[bytes]] = {}
    for what, peer, key, wait in steps:
        now += wait
        if what == "offer":
            asked = wants.offered(peer, [key], here, now)
            assert not any(here.knows(k) for k in asked)
            if asked:
                wants.asked(peer, asked, now)
                owed.setdefault(peer, set()).update(asked)
        elif what == "send":
            wants.came(peer, key)
            owed.get(peer, set()).discard(key)
        elif what == "judge" and not here.knows(key):
            here.judging.add(key)
        elif what == "drop":
            here.judging.discard(key)
        elif what == "accept":
            here.judging.discard(key)
            here.seen.add(key)
        else:
            for other, keys in wants.dropped(here).items():
                assert not any(here.knows(k) for k in keys)
                wants.asked(other, keys, now)
                owed.setdefault(other, set()).update(keys)
            for other in wants.broken("abc", here, now):
                assert owed.get(other), f"{other} owes nothing"
            wants.forget(now)
        assert len(wants._second_copies) <= 2
