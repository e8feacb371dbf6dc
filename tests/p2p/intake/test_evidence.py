"""What is kept against a publisher: two batches of one number that it signed, and nothing less."""

from __future__ import annotations

import pytest

from shoal_p2p.intake.evidence import proves_equivocation
from shoal_wire.digests import batch_id
from shoal_wire.types import BatchId
from tests.support import factories as make
from tests.wire.envelope_mutations import other_spellings

ANN = make.Author(make.swarm())
ONE = ANN.sign(1, sequence=5).envelope
TWO = ANN.sign(2, sequence=5).envelope
COPIES = other_spellings(ONE)


def announcement_of(name: bytes) -> bytes:
    return ANN.announcement(sequence=5, batch_id=name)


def shown(first: bytes, second: bytes) -> bool:
    return proves_equivocation(ANN.peer_id, 5, first=first, first_id=batch_id(first), second=second)


def shown_by_id(first_id: BatchId, second: bytes) -> bool:
    return proves_equivocation(ANN.peer_id, 5, first=None, first_id=first_id, second=second)


def test_two_batches_of_one_number_are_a_proof_in_either_order() -> None:
    assert shown(ONE, TWO)
    assert shown(TWO, ONE)


def test_a_batch_and_an_announcement_of_another_are_a_proof() -> None:
    assert shown(ONE, announcement_of(batch_id(TWO)))
    assert not shown(ONE, announcement_of(batch_id(ONE)))


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
def test_a_batch_and_a_copy_of_it_in_other_bytes_show_nothing(copy: bytes) -> None:
    assert not shown(ONE, copy)
    assert not shown(copy, ONE)
    assert not shown(copy, TWO)


def test_the_id_of_a_first_batch_that_is_gone_is_enough() -> None:
    assert shown_by_id(batch_id(ONE), TWO)
    assert not shown_by_id(batch_id(TWO), TWO)
    assert not shown_by_id(batch_id(TWO), next(iter(COPIES.values())))


def test_batches_of_another_of_another_number_or_of_two_swarms_show_nothing() -> None:
    other = make.Author(ANN.manifest)
    elsewhere = make.Author(make.swarm("another"), identity=ANN.identity)
    assert not shown(ONE, other.sign(2, sequence=5).envelope)
    assert not shown(ONE, ANN.sign(2, sequence=6).envelope)
    assert not shown(ONE, elsewhere.sign(2, sequence=5).envelope)
    assert not shown(b"damaged", TWO)
