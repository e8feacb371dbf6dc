"""The ring of refusals: no flood fills or slows it."""

from __future__ import annotations

import random

import pytest

from shoal_base.visible import visible_name
from shoal_p2p.intake.validation import family_of
from shoal_p2p.intake.verdict_log import MAX_PER_FORWARDER, MAX_REFUSALS, RefusalLog
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Reason, Verdict, verdict
from tests.support import factories as make

ANN, BEN, EVE = PeerId("ann"), PeerId("ben"), PeerId("eve")


def refused(reason: Reason = Reason.BAD_SIGNATURE, family: str = "") -> Verdict:
    found = verdict(reason)
    return Verdict(outcome=found.outcome, reason=found.reason, family=family)


def test_the_newest_stands_first_and_the_same_again_is_one_row() -> None:
    log = RefusalLog()
    for at_ms in range(1000):
        log.note(refused(), signer=EVE, forwarder=EVE, at_ms=at_ms)
    log.note(refused(Reason.TOO_OLD), signer=ANN, forwarder=BEN, at_ms=2000)
    log.note(refused(), signer=EVE, forwarder=EVE, at_ms=3000)
    assert [(one.reason, one.count, one.at_ms) for one in log.newest()] == [
        (Reason.BAD_SIGNATURE, 1001, 3000),
        (Reason.TOO_OLD, 1, 2000),
    ]


def test_what_is_taken_or_known_already_is_no_refusal() -> None:
    log = RefusalLog()
    log.note(ACCEPT, signer=ANN, forwarder=ANN, at_ms=1)
    log.note(refused(Reason.DUPLICATE), signer=ANN, forwarder=BEN, at_ms=1)
    assert not log.newest()


def test_one_peer_cannot_push_out_what_others_did() -> None:
    log = RefusalLog()
    for number in range(100):
        log.note(refused(), signer=PeerId(f"s{number}"), forwarder=PeerId(f"f{number}"), at_ms=1)
    for number in range(10_000):
        log.note(refused(), signer=PeerId(f"made up {number}"), forwarder=EVE, at_ms=2)
    rows = log.newest()
    assert sum(one.forwarder == EVE for one in rows) == MAX_PER_FORWARDER
    assert sum(one.forwarder != EVE for one in rows) == 100
    assert rows[0].signer == "made up 9999"


@pytest.mark.parametrize("seed", range(4))
def test_it_is_bounded_after_every_refusal(seed: int) -> None:
    rng = random.Random(seed)
    log, reasons = RefusalLog(), list(Reason)
    for at_ms in range(800):
        signer = rng.choice([None, *(PeerId(f"p{n}") for n in range(9))])
        forwarder = PeerId(f"f{int(rng.expovariate(0.2))}")
        found = refused(rng.choice(reasons), rng.choice(["", "gcd"]))
        log.note(found, signer=signer, forwarder=forwarder, at_ms=at_ms)
        rows = log.newest()
        assert len(rows) <= MAX_REFUSALS
        assert sum(map(len, log._of.values())) == len(rows)
        assert set(log._of) == {one.forwarder for one in rows}
    assert [one.at_ms for one in rows] == sorted((one.at_ms for one in rows), reverse=True)
    assert max(map(len, log._of.values())) <= MAX_PER_FORWARDER


def test_a_family_is_kept_as_it_can_be_shown() -> None:
    author = make.Author(make.swarm(), now_ms=make.NOW_MS)
    batch = author.batch([make.group(of=make.task(family="\x1b[2J" * 50))])
    assert family_of(batch) == visible_name("\x1b[2J" * 16)[:64]
