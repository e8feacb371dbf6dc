"""What the buffer counts for a group is what the group occupies, whatever its text is made of."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from shoal_p2p.intake.validation import weight_of
from shoal_p2p.rollouts.groups import published_groups
from shoal_wire.codec import decode_batch, encode_batch
from shoal_wire.halffloat import pack_halves, unpack_halves
from shoal_wire.types import RolloutGroup
from tests.support import factories as make


def plain(number: int) -> RolloutGroup:
    return make.group(number, texts=[f"{number} {n}" + 2000 * "x" for n in range(8)])


def wide(number: int) -> RolloutGroup:
    """One character makes all of a text four bytes wide."""
    return make.group(number, texts=[f"{number} {n} 🐟" + 2000 * "x" for n in range(8)])


def claimed(number: int) -> RolloutGroup:
    tokens, logprobs = 2001, tuple(-n / 64 for n in range(2001))
    completions = [make.completion(f"{n}" + 2000 * "x", num_tokens=tokens) for n in range(8)]
    whole = [make.replace(c, logprobs=logprobs) for c in completions]
    return RolloutGroup(task=make.task(number), completions=tuple(whole))


def many(number: int) -> RolloutGroup:
    return make.group(number, texts=["7"] * 64)


@pytest.mark.parametrize("kind", [plain, wide, claimed, many])
def test_a_group_weighs_what_it_occupies(kind: object) -> None:
    ann = make.Author()
    payload = encode_batch(ann.batch([kind(number) for number in range(8)]))  # type: ignore[operator]
    unpack_halves(pack_halves([-1.0]))
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        batch = decode_batch(payload, max_bytes=8 << 20)
        gc.collect()
        occupied = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    weight = sum(map(weight_of, batch.groups))
    assert 0.75 * occupied < weight < 2.5 * occupied + 8 * 2500
    assert published_groups(ann.signed(batch))


def test_halves_of_one_value_share_it() -> None:
    values = unpack_halves(pack_halves([-0.5] * 3 + [-2.0]))
    assert values == (-0.5, -0.5, -0.5, -2.0)
    assert values[0] is values[1] is unpack_halves(pack_halves([-0.5]))[0]
    assert unpack_halves(b"") == ()
