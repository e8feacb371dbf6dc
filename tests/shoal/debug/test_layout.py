"""Tables on terminals of any width: no cell breaks inside, a peer can always be told."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from shoal.debug.views import VIEWS
from shoal.layout import print_wrapped, table
from shoal_base.terminal import Terminal

FIXTURES = Path(__file__).parents[2] / "fixtures"

PEER = "12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV"
ADDRESS = f"/ip6/2001:db8:85a3:8d3:1319:8a2e:370:7348/tcp/40001/p2p/{PEER}/p2p-circuit"
SHOWN = json.loads((FIXTURES / "views.json").read_text(encoding="utf-8"))
TABLES = [
    case
    for case in SHOWN
    if case["arguments"][0] in ("peers", "scores", "topics", "buffer", "contributions")
]


def printed(show: Any, view: Any, width: int) -> list[str]:
    file = io.StringIO()
    show(Terminal(file=file, width=width), view)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140, 200])
def test_peers_addresses_and_agents_do_not_break(width: int) -> None:
    row = {
        "peer_id": PEER,
        "address": ADDRESS,
        "direction": "in",
        "relayed": True,
        "latency_ms": 1.25,
        "agent": "go-libp2p/0.38.1 (kubo)",
        "topics": ["a"],
        "score": -12.5,
        "connected_s": 3700.0,
    }
    target = {
        "address": ADDRESS,
        "kind": "bootstrap",
        "state": "waiting",
        "attempts": 3,
        "last_error": f"{PEER}: cannot connect: refused by it",
        "peer_id": PEER,
    }
    lines = printed(VIEWS["peers"].show, {"peers": [row], "targets": [target]}, width)
    said = (PEER[-10:], "in, relay", "go-libp2p/0.38.1 (kubo)", "cannot connect: refused by it")
    for whole in said:
        assert any(whole in line for line in lines), (whole, lines)
    assert sum(ADDRESS in line for line in lines) == 2


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("case", TABLES, ids=lambda case: case["arguments"][0])
def test_what_a_real_node_answered_fits(case: dict[str, Any], width: int) -> None:
    name = case["arguments"][0]
    lines = printed(VIEWS[name].show, case["answers"][name], width)
    tables = [line for line in lines if line.startswith(" ") and "last error " not in line]
    assert all(len(line.rstrip()) <= width for line in tables), tables
    for row in case["answers"][name].get("peers", []):
        assert sum(row["peer_id"][-10:] in line for line in tables) == 1


def test_a_column_goes_below_only_where_it_must() -> None:
    def rows(console: Terminal, _view: object) -> None:
        made = table("peer", "address", "agent", "ms", below=("address", "agent"))
        made.add_row("…abc", "/ip4/1", "-", "1.0")
        made.add_row("…def", "/ip4/22", "kubo", "2.0")
        made.print(console)

    assert "…def   /ip4/22   kubo    2.0 " in printed(rows, None, 80)[4]
    assert printed(rows, None, 24)[1:-1] == [
        " peer   agent   ms",
        " ──────────────────",
        " …abc   -       1.0",
        "   address /ip4/1",
        " …def   kubo    2.0",
        "   address /ip4/22",
    ]
    assert "   agent kubo" in printed(rows, None, 16)


def test_a_long_question_is_wrapped_on_a_terminal_and_one_line_elsewhere() -> None:
    text = "convert the number " * 12 + "1011"
    for is_terminal in (True, False):
        file = io.StringIO()
        console = Terminal(file=file, width=60, force_terminal=is_terminal, color_system=None)
        print_wrapped(console, text)
        lines = file.getvalue().splitlines()
        assert " ".join(line.strip() for line in lines) == text
        assert all(line.startswith("  ") for line in lines)
        assert (len(lines) > 1) == is_terminal
        assert not is_terminal or max(map(len, lines)) <= 60


FINDING = {
    "check": "bootstrap",
    "state": "bad",
    "says": "none answers: " + "/ip4/203.0.113.7/tcp/4001 refuses this node's key, " * 3,
    "do": "give the key of that swarm with --swarm-key, or ask for an invitation " * 2,
}
ROLLOUT = {
    "number": 2440,
    "family": "spell_backward_easy",
    "own": False,
    "publisher": PEER,
    "round": 152,
    "age_s": 0.2,
    "reward": 0.25,
    "question": "Spell this word backward (example: sun -> nus): quid",
    "completions": [{"text": "a word " * 9, "finish_reason": "length", "reward": 0.5}],
}


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize(
    ("view", "answer"),
    [("doctor", {"findings": [FINDING]}), ("rollouts", {"rollouts": [ROLLOUT]})],
    ids=["doctor", "rollouts"],
)
def test_sentences_break_between_words_on_a_terminal(
    view: str, answer: dict[str, Any], width: int
) -> None:
    whole = printed(VIEWS[view].show, answer, width)
    file = io.StringIO()
    console = Terminal(file=file, width=width, force_terminal=True, color_system=None)
    VIEWS[view].show(console, answer)
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) > len(whole)
    assert " ".join(lines).split() == " ".join(whole).split()


def test_the_numbers_of_a_long_question_are_shown() -> None:
    question = (
        "Your task is to convert a number between two bases. " * 4 + "Convert 1011 to base 7."
    )
    rollout = {
        "number": 1,
        "family": "base_conversion",
        "own": True,
        "publisher": PEER,
        "round": 3,
        "age_s": 1.0,
        "reward": None,
        "question": question,
        "completions": [],
    }
    lines = printed(VIEWS["rollouts"].show, {"rollouts": [rollout]}, 80)
    assert "Convert 1011 to base 7." in " ".join(line.strip() for line in lines)
