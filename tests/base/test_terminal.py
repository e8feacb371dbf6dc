"""A terminal on which text only stands, whichever of rich's ways it comes by."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from rich.table import Table
from rich.text import Text

from shoal_base.terminal import Terminal, styled
from tests.support.hostile_text import ALL_OF_THEM, acting_in

STYLE = re.compile(r"\x1b\[[0-9;]*m")


def _table(text: str) -> Table:
    table = Table(title=text, caption=text)
    table.add_column(text)
    table.add_row(text)
    return table


WAYS: dict[str, Callable[[str], object]] = {
    "string": str,
    "text": Text,
    "parts": lambda text: styled((text, "bold"), text),
    "table": _table,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("width", [40, 200])
def test_nothing_acts_but_our_own_styles(way: str, wrap: bool, width: int) -> None:
    file = io.StringIO()
    console = Terminal(file=file, width=width, force_terminal=True, color_system="truecolor")
    console.print(WAYS[way](ALL_OF_THEM), soft_wrap=wrap)
    assert not acting_in(STYLE.sub("", file.getvalue())) - {"\n"}


@pytest.mark.parametrize("text", ["[/x]", "[bold]b[/bold]", ":smile:", "[link=http://e]l[/link]"])
def test_markup_in_a_text_neither_acts_nor_raises(text: str) -> None:
    file = io.StringIO()
    console = Terminal(file=file, width=200, force_terminal=True, color_system="truecolor")
    console.print(text)
    console.print(styled((text, "bold")))
    assert STYLE.sub("", file.getvalue()) == f"{text}\n{text}\n"


def test_a_style_is_written() -> None:
    file = io.StringIO()
    console = Terminal(file=file, force_terminal=True, color_system="standard")
    console.print(styled("a", ("b", "bold")), soft_wrap=True)
    assert file.getvalue() == "a\x1b[1mb\x1b[0m\n"
