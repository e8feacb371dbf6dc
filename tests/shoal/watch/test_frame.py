"""A screen of `shoal watch`: it fits, it has all seven headings, and nothing in it acts."""

from __future__ import annotations

import random

import pytest
from rich.cells import cell_len

from shoal.view.model import NodeView
from shoal.watch.frame import frame
from tests.shoal.view.node_answers import FRIEND, ROLLOUTS, view

FOOT = "q or Ctrl-C ends this"
HEADINGS = (
    *("Is it healthy?", "Is it learning?", "Publishers", "Is it worth it?"),
    *("Rollouts", "Refusals", "Next steps"),
)
WORDS = ("health", "learning", "peers", "worth", "rollouts", "refused", "next")


def lines(of: NodeView, width: int, height: int) -> list[str]:
    return frame(of, width=width, height=height, foot=FOOT).plain.split("\n")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 15), (200, 50)])
def test_all_seven_headings_are_on_the_screen(width: int, height: int) -> None:
    found = lines(view(), width, height)
    assert len(found) == height
    assert all(cell_len(line) <= width for line in found)
    heads = WORDS if width < 72 else HEADINGS
    starts = [next(n for n, line in enumerate(found) if line.startswith(q)) for q in heads]
    assert starts == sorted(starts)
    assert found[-1].startswith(FOOT[:width])
    assert "Learning with 1 other node" in " ".join(" ".join(found).split())


def test_what_stands_at_80_by_24() -> None:
    text = "\n".join(lines(view(), 80, 24))
    for words in (
        "warn: Learning with 1 other node. disk: 1 GiB free",
        "round 24: generating, 3 of 8, for 2.5 s, ~4.1 s left",
        "→ make room",
        "held-out 0.250 ± 0.105 of 64 (start 0.125)  own reward 0.360",
        "this node       39%  me                 30          tiny",
        f"…{FRIEND[-10:]}     61%  fine               40   0.500  tiny",
        "banned 2 min",
        "in 8.0 KB/s  out 2.0 KB/s  measured over 1 min 0 s",
        "gcd      0.500  …4TP6TsHYo5  trained on",
        "bad_signature 2",
        "5.0 s ago  it is forged × 7  …yD7WV951dY",
        "shoal invite --data-dir /somewhere/node  invite other nodes",
    ):
        assert words in text, f"{words!r} is not in\n{text}"


@pytest.mark.parametrize("seed", range(4))
def test_it_fits_whatever_the_terminal(seed: int) -> None:
    rng = random.Random(seed)
    many = [{**ROLLOUTS["rollouts"][0], "family": "数" * rng.randrange(40)} for _ in range(50)]
    publishers = [
        {"peer_id": f"{FRIEND}{n}", "trained": n, "signal": 10.0**n, "model": "模型" * n}
        for n in range(30)
    ]
    of = view(rollouts={"rollouts": many}, ledger={"publishers": publishers})
    for _ in range(25):
        width, height = rng.randrange(1, 220), rng.randrange(1, 70)
        found = frame(of, width=width, height=height, foot=FOOT).plain.split("\n")
        assert len(found) == height, (width, height)
        assert all(cell_len(line) <= max(10, width) for line in found), (width, height)


def test_what_is_cut_for_want_of_room_is_the_least() -> None:
    found = lines(view(), 80, 9)
    assert [line[:10].strip() for line in found[1:8]] == [q[:10].strip() for q in HEADINGS]
    assert lines(view(), 80, 1)[0].startswith("shoal node")


def test_into_a_pipe_all_of_it_goes() -> None:
    text = frame(view(), width=20, height=None).plain
    assert all(one.command in text for one in view().shown.next_steps), "a command is broken"
    assert FOOT not in text
