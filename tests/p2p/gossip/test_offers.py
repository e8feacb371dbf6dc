"""What is offered to whom: once, and to nobody who has it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal_p2p.gossip.offers import OfferBook


def key(number: int) -> bytes:
    return number.to_bytes(4, "big")


def test_an_id_is_news_to_a_peer_once() -> None:
    book = OfferBook[str](max_ids=10)
    assert book.news("a", [key(1), key(2)]) == [key(1), key(2)]
    assert book.news("a", [key(1), key(2), key(3)]) == [key(3)]
    assert book.news("b", [key(1)]) == [key(1)]


def test_who_sent_a_message_is_not_offered_it() -> None:
    book = OfferBook[str](max_ids=10)
    book.note_holder("a", key(1))
    assert book.news("a", [key(1), key(2)]) == [key(2)]


def test_a_peer_that_comes_back_is_offered_all_again() -> None:
    book = OfferBook[str](max_ids=10)
    book.news("a", [key(1)])
    book.keep_only([], [key(1)])
    assert book.news("a", [key(1)]) == [key(1)]


PEERS = st.sampled_from("abc")
KEYS = st.integers(0, 12).map(key)
STEPS = st.one_of(
    st.tuples(st.just("holds"), PEERS, KEYS),
    st.tuples(st.just("offer"), PEERS, st.lists(KEYS, unique=True, max_size=6)),
    st.tuples(st.just("beat"), st.sets(PEERS), st.sets(KEYS)),
)


@given(st.lists(STEPS, max_size=40))
def test_over_any_course_nothing_is_offered_twice_and_the_bound_holds(
    steps: list[tuple[str, object, object]],
) -> None:
    book, heard = OfferBook[str](max_ids=5), set[tuple[str, bytes]]()
    for what, one, other in steps:
        if what == "holds":
            book.note_holder(one, other)  # type: ignore[arg-type]
            heard.add((one, other))  # type: ignore[arg-type]
        elif what == "offer":
            news = book.news(one, other)  # type: ignore[arg-type]
            missed = [k for k in other if (one, k) not in heard]  # type: ignore[attr-defined]
            assert set(missed) <= set(news), "who has not heard of it is told"
            assert len(set(news)) == len(news)
            heard |= {(one, k) for k in news}
        else:
            book.keep_only(one, other)  # type: ignore[arg-type]
            heard = {(p, k) for p, k in heard if p in one and k in other}  # type: ignore[operator]
        assert all(len(known) <= 5 for known in book._knows.values())
