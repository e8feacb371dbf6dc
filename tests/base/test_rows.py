"""JSON, a row a line."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from shoal_base.rows import one_a_line

VALUES = st.none() | st.integers() | st.text() | st.lists(st.text(), max_size=3)
ROWS = st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=4)


@given(st.dictionaries(st.text().filter(lambda key: key != "rows"), VALUES, max_size=3), ROWS)
def test_what_is_written_is_read_again(content: dict[str, object], rows: list[object]) -> None:
    text = one_a_line(content, "rows", rows)
    assert json.loads(text) == {**content, "rows": rows}
    assert text.count("\n") <= len(content) + max(1, len(rows)) + 2
