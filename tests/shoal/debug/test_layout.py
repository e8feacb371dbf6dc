"""Tables on terminals of any width: no cell breaks inside, a peer can always be identified."""

from __future__ import annotations

import io
from typing import Any

import pytest

from shoal.debug.views import VIEWS
from shoal.layout import Rows, print_wrapped
from shoal_base.terminal import Terminal
from shoal_ipc.answers.doctor import Doctor, Finding
from shoal_ipc.answers.learning import Ledger, PublisherStats
from shoal_ipc.answers.node import Buffer, CompletionRow, PublisherRow, Rollout, RolloutsView
from shoal_ipc.answers.peer import (
    Connection,
    Peers,
    Score,
    Scores,
    Target,
)

PEER = "12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV"
ADDRESS = f"/ip6/2001:db8:85a3:8d3:1319:8a2e:370:7348/tcp/40001/p2p/{PEER}/p2p-circuit"
CONNECTION = Connection(
    peer_id=PEER,
    address=ADDRESS,
    direction="in",
    relayed=True,
    latency_ms=1.25,
    agent="go-libp2p/0.38.1 (kubo)",
    topics=("/shoal/1/" + 64 * "a" + "/rollouts/0",),
    score=-12.5,
    verdicts={"too_old": 3},
    connected_s=3700.0,
    bytes_in=1 << 30,
)
TARGET = Target(
    address=ADDRESS,
    kind="bootstrap",
    state="waiting",
    attempts=3,
    last_error="cannot connect: refused by it",
    peer_id=PEER,
)
SCORE = Score(peer_id=PEER, score=-72.0, points={"signed_heavy": -60.0}, banned_s=599.0, bans=1)
TABLES = {
    "peers": Peers(peers=(CONNECTION,), targets=(TARGET,)),
    "scores": Scores(scores=(SCORE,), refused={"rate": 3}),
    "buffer": Buffer(publishers=(PublisherRow(peer_id=PEER, groups=3, weight=1.0),)),
    "ledger": Ledger(publishers=(PublisherStats(peer_id=PEER, model="tiny", signal=2.0),)),
}


def printed(show: Any, view: Any, width: int, *, is_terminal: bool = False) -> list[str]:
    file = io.StringIO()
    show(Terminal(file=file, width=width, force_terminal=is_terminal, color_system=None), view)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140, 200])
def test_peers_addresses_and_agents_do_not_break(width: int) -> None:
    lines = printed(VIEWS["peers"].show, TABLES["peers"], width)
    for whole in (PEER[-10:], "go-libp2p/0.38.1 (kubo)", "cannot connect: refused by it"):
        assert any(whole in line for line in lines), (whole, lines)
    assert sum(ADDRESS in line for line in lines) == 2


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("view", TABLES)
def test_every_value_is_printed_with_its_unit(view: str, width: int) -> None:
    text = " ".join(" ".join(printed(VIEWS[view].show, TABLES[view], width)).split())
    output = {
        "peers": ("yes", "1.2 ms", "1 h 1 min", "1.0 GiB", "3 too_old", "-12.50"),
        "scores": ("-60.00 signed_heavy", "9 min 59 s", "3 rate"),
        "buffer": ("1.00",),
        "ledger": ("tiny", "2.00", "families: none"),
    }[view]
    for words in output:
        assert words in text, (words, text)
    assert PEER[-10:] in text


def test_columns_in_which_nothing_stands_are_left_out() -> None:
    text = "\n".join(printed(VIEWS["scores"].show, TABLES["scores"], 200))
    assert "banned" in text and "blocked" not in text


def test_a_column_goes_below_only_where_it_must() -> None:
    def rows(console: Terminal, _view: object) -> None:
        made = Rows(["peer", "address", "agent", "ms"])
        made.add_row("…abc", "/ip4/1", "-", "1.0")
        made.add_row("…def", "/ip4/22", "kubo", "2.0")
        made.print(console)

    assert "…def   /ip4/22   kubo    2.0" in printed(rows, None, 80)[4]
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
        lines = printed(print_wrapped, text, 60, is_terminal=is_terminal)
        assert " ".join(line.strip() for line in lines) == text
        assert all(line.startswith("  ") for line in lines)
        assert (len(lines) > 1) == is_terminal
        assert not is_terminal or max(map(len, lines)) <= 60


FINDING = Finding(
    check="bootstrap",
    state="bad",
    message="none answers: " + "/ip4/203.0.113.7/tcp/4001 refuses this node's key, " * 3,
    remedy="give the key of that swarm with --swarm-key, or ask for an invitation " * 2,
)
ROLLOUT = Rollout(
    number=2440,
    family="spell_backward_easy",
    publisher=PEER,
    round=152,
    age_s=0.2,
    reward=0.25,
    question="Spell this word backward (example: sun -> nus): quid",
    completions=(CompletionRow(text="a word " * 9, finish_reason="length", reward=0.5),),
)


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize(
    ("view", "answer"),
    [("doctor", Doctor(findings=(FINDING,))), ("rollouts", RolloutsView(rollouts=(ROLLOUT,)))],
    ids=["doctor", "rollouts"],
)
def test_sentences_break_between_words_on_a_terminal(
    view: str, answer: Doctor | RolloutsView, width: int
) -> None:
    whole = printed(VIEWS[view].show, answer, width)
    lines = printed(VIEWS[view].show, answer, width, is_terminal=True)
    assert max(map(len, lines)) <= width
    assert len(lines) > len(whole)
    assert " ".join(lines).split() == " ".join(whole).split()


def test_the_numbers_of_a_long_question_are_shown() -> None:
    question = (
        "Your task is to convert a number between two bases. " * 4 + "Convert 1011 to base 7."
    )
    rollout = Rollout(number=1, family="base_conversion", is_local=True, round=3, question=question)
    lines = printed(VIEWS["rollouts"].show, RolloutsView(rollouts=(rollout,)), 80)
    assert "Convert 1011 to base 7." in " ".join(line.strip() for line in lines)
