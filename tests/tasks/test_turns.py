"""Completions of several turns as one text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal_tasks.turns import SEPARATOR, join_messages, split_messages

MESSAGES = st.lists(st.text().filter(lambda text: SEPARATOR not in text), min_size=1)


@given(MESSAGES)
def test_messages_survive_the_way_through_one_text(messages: list[str]) -> None:
    assert split_messages(join_messages(messages)) == tuple(messages)


@given(st.text())
def test_every_text_is_some_messages(text: str) -> None:
    assert join_messages(split_messages(text)) == text
