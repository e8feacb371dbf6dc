"""Values that go into a pipe are whole."""

from __future__ import annotations

import io

from shoal.layout import pairs, print_pairs
from shoal_base.terminal import Terminal

ADDRESS = "/dns4/a-rather-long-name.of-a-server.example.org/tcp/4001/p2p/" + 52 * "Q"


def test_on_a_terminal_it_is_folded() -> None:
    file, table = io.StringIO(), pairs()
    table.add_row("address", ADDRESS)
    print_pairs(Terminal(file=file, width=80, force_terminal=True, no_color=True), table)
    assert ADDRESS not in file.getvalue()


def test_a_sentence_is_one_line_of_a_pipe() -> None:
    file = io.StringIO()
    Terminal(file=file, width=40).print("word " * 30)
    assert file.getvalue().count("\n") == 1


def test_no_line_of_a_pipe_ends_in_blanks() -> None:
    file, table = io.StringIO(), pairs()
    for name, value in (("address", ADDRESS), ("peers", "3"), ("name", "")):
        table.add_row(name, value)
    print_pairs(Terminal(file=file, width=80, no_color=True), table)
    lines = file.getvalue().splitlines()
    assert lines == [f"address  {ADDRESS}", "peers    3", "name"]
