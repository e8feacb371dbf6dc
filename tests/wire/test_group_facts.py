"""What is worked out of a group once: its id and the length of its encoding."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import pytest
from hypothesis import given, settings

from shoal_wire import digests
from shoal_wire.codec import (
    batch_to_bytes,
    compress,
    decode_batch,
    encode_batch,
    group_size,
    group_to_bytes,
)
from shoal_wire.limits import MAX_BATCH_BYTES
from shoal_wire.types import RolloutBatch
from tests.wire import wire_samples as sample
from tests.wire import wire_strategies as make


@given(make.batches)
@settings(max_examples=50)
def test_a_groups_size_is_that_of_its_encoding_whichever_way_it_is_known(
    batch: RolloutBatch,
) -> None:
    sizes = [len(group_to_bytes(group)) for group in batch.groups]
    decoded = decode_batch(encode_batch(replace(batch)), max_bytes=MAX_BATCH_BYTES)
    for known in (batch, decoded):
        assert [group_size(group) for group in known.groups] == sizes
    assert [group_size(replace(group)) for group in batch.groups] == sizes


@given(make.batches)
@settings(max_examples=50)
def test_the_length_that_a_decoder_bounds_is_known_before_it_is_compressed(
    batch: RolloutBatch,
) -> None:
    length = len(batch_to_bytes(batch))
    assert decode_batch(encode_batch(batch), max_bytes=length) == batch
    with pytest.raises(Exception, match="oversize_payload"):
        decode_batch(encode_batch(batch), max_bytes=length - 1)


def test_unknown_fields_of_a_group_count_towards_its_size() -> None:
    message = sample.batch_message()
    unknown = b"\xfa\x7c\x20" + bytes(32)  # field 1999, length-delimited
    message.groups[0].MergeFromString(unknown)
    batch = decode_batch(compress(message.SerializeToString()), max_bytes=MAX_BATCH_BYTES)
    assert batch == sample.batch()
    group = batch.groups[0]
    assert group_size(group) == len(group_to_bytes(group)) + len(unknown)


def test_what_is_known_is_no_part_of_the_value() -> None:
    group, other = sample.group(), sample.group()
    digests.group_id(group)
    assert group == other
    assert hash(group) == hash(other)
    assert repr(group) == repr(other)
    changed = replace(group, completions=(sample.completion("else"),))
    assert digests.group_id(changed) != digests.group_id(group)
    for copied in (copy.deepcopy(group), pickle.loads(pickle.dumps(group))):
        assert copied == group
        assert digests.group_id(copied) == digests.group_id(group)
