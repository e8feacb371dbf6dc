"""Who learnt what from whom, as rounds say it."""

from __future__ import annotations

from shoal_ipc import messages as m
from shoal_lab.experiment.plan import NOBODY
from shoal_lab.experiment.playing.lessons import Lessons
from shoal_wire.types import GroupId, PeerId


def outcome(
    group: bytes, *, publisher: str = "", family: str = "sums", signal: float = 2.0, why: str = ""
) -> m.GroupOutcome:
    return m.GroupOutcome(
        group_id=GroupId(group),
        publisher=PeerId(publisher),
        model="",
        reward=0.5,
        family=family,
        signal=signal,
        why_unused=why,
    )


def test_a_row_for_each_publisher_and_family_of_what_was_trained_on() -> None:
    swarm = Lessons({PeerId("a"): 0, PeerId("b"): 1})
    own = [outcome(b"1"), outcome(b"2", family="gcd", why="no_reward"), outcome(b"")]
    assert swarm.of_round(0, 3, own) == [[0, "sums", 2, 4.0, 0]]
    heard = [
        outcome(b"1", publisher="a"),
        outcome(b"2", publisher="a", family="gcd", signal=0.5),
        outcome(b"9", publisher="a", why="all_same"),
        outcome(b"7", publisher="stranger"),
    ]
    rows = swarm.of_round(1, 8, heard)
    assert rows == [[NOBODY, "sums", 1, 2.0, 0], [0, "gcd", 1, 0.5, 5], [0, "sums", 1, 2.0, 5]]
