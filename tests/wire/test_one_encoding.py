"""An envelope has one encoding: without the key, no other bytes of it can be made that open."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from shoal_wire.digests import batch_id
from shoal_wire.envelope import EnvelopeError, open_envelope
from shoal_wire.limits import ANNOUNCEMENT_PAYLOAD_TYPE, BATCH_PAYLOAD_TYPE
from shoal_wire.v1 import rollout_pb2 as pb
from tests.wire import envelope_mutations as mutations
from tests.wire import wire_samples as sample

HONEST = sample.sealed()
TYPES = (BATCH_PAYLOAD_TYPE, ANNOUNCEMENT_PAYLOAD_TYPE)


def reads_the_same(raw: bytes) -> bool:
    """Whether protobuf itself makes the same four fields of it."""
    try:
        found = pb.Envelope.FromString(raw)
    except DecodeError:
        return False
    found.DiscardUnknownFields()
    return found == pb.Envelope.FromString(HONEST)


def test_fields_that_are_taken_apart_and_put_together_are_the_envelope() -> None:
    fields = mutations.fields_of(HONEST)
    assert [field.number for field in fields] == [1, 2, 3, 5]
    assert mutations.spelled(fields) == HONEST


@pytest.mark.parametrize("name", mutations.other_spellings(HONEST))
def test_one_spelling_of_each_kind_is_the_same_to_protobuf_and_refused(name: str) -> None:
    raw = mutations.other_spellings(HONEST)[name]
    assert reads_the_same(raw)
    with pytest.raises(EnvelopeError, match="not_canonical"):
        open_envelope(raw)


@given(mutations.respelled(HONEST))
@settings(max_examples=300)
def test_another_spelling_of_an_envelope_does_not_open(raw: bytes) -> None:
    assume(raw != HONEST)
    event("the same to protobuf" if reads_the_same(raw) else "another message")
    with pytest.raises(EnvelopeError):
        open_envelope(raw, payload_types=TYPES)


@given(mutations.mutated(HONEST))
@settings(max_examples=300)
def test_no_change_of_an_envelope_by_who_has_no_key_opens(raw: bytes) -> None:
    assume(raw != HONEST)
    with pytest.raises(EnvelopeError):
        open_envelope(raw, payload_types=TYPES)


@given(st.binary(max_size=300), st.sampled_from([sample.SEED_1, sample.SEED_2]))
@settings(max_examples=50)
def test_what_opens_is_what_would_be_sealed_from_its_parts(payload: bytes, seed: bytes) -> None:
    raw = sample.sealed(payload, seed=seed)
    opened = open_envelope(raw)
    assert sample.sealed(opened.payload, seed=seed, payload_type=opened.payload_type) == raw
    # Ed25519 of RFC 8032 signs the same bytes the same way: so the id is of what was signed.
    assert batch_id(opened.raw) == batch_id(sample.sealed(payload, seed=seed))
