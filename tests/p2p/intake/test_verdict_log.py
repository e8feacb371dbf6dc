"""Counts of verdicts, as the debug views and the ban rule read them."""

from __future__ import annotations

from shoal_ipc.answers.peer import Verdicts
from shoal_p2p.intake.verdict_log import VerdictLog
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason, verdict

ANN, BOB = PeerId("ann"), PeerId("bob")


def test_totals_are_sorted_by_outcome_and_reason() -> None:
    log = VerdictLog()
    for reason in (Reason.VALID, Reason.VALID, Reason.DUPLICATE, Reason.BAD_COUNT):
        log.count(verdict(reason), signer=ANN)
    log.count(verdict(Reason.BAD_SIGNATURE), signer=None)
    assert log.totals() == Verdicts(
        accept=2, ignore={"duplicate": 1}, reject={"bad_signature": 1, "bad_count": 1}
    )


def test_a_signer_answers_for_its_own_messages_only() -> None:
    log = VerdictLog()
    log.count(verdict(Reason.BAD_COUNT), signer=ANN)
    log.count(verdict(Reason.VALID), signer=BOB)
    log.count(verdict(Reason.BAD_SIGNATURE), signer=None)
    assert log.peer(ANN) == {"bad_count": 1}
    assert log.peer(BOB) == {"valid": 1}
    assert log.peer(PeerId("eve")) == {}


def test_it_forgets_the_signer_longest_silent_but_no_total() -> None:
    log = VerdictLog()
    log.count(verdict(Reason.VALID), signer=ANN)
    log.count(verdict(Reason.VALID), signer=BOB)
    for number in range(1022):
        log.count(verdict(Reason.VALID), signer=PeerId(f"peer-{number}"))
    log.count(verdict(Reason.VALID), signer=ANN)
    log.count(verdict(Reason.VALID), signer=PeerId("one too many"))
    assert log.peer(ANN) == {"valid": 2}
    assert log.peer(BOB) == {}
    assert log.totals().accept == 1026
