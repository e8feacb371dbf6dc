"""A manifest is its bytes: the digest names them, and values that peers refuse never get in."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_wire import limits
from shoal_wire.errors import ManifestError
from shoal_wire.manifest import SwarmRules, TaskFamily, decode_manifest, make_manifest
from shoal_wire.v1 import swarm_pb2 as pb
from tests.wire import wire_samples as sample

rules = st.builds(
    SwarmRules,
    min_completions=st.integers(1, 8),
    max_completions=st.integers(8, limits.MAX_COMPLETIONS),
    max_message_bytes=st.integers(1024, limits.MAX_MESSAGE_BYTES),
    max_batch_bytes=st.integers(1024, limits.MAX_BATCH_BYTES),
    max_completion_bytes=st.integers(1, limits.MAX_COMPLETION_BYTES),
    max_age_seconds=st.integers(1, 30 * 86_400),
    max_future_seconds=st.integers(0, 86_400),
    shard_count=st.integers(1, 4096),
    allow_inline_tasks=st.booleans(),
    allowed_peers=st.sets(
        st.text(alphabet="123456789ABCabc", min_size=46, max_size=64), max_size=5
    ).map(lambda peers: tuple(sorted(peers))),
)


@given(rules)
def test_a_manifest_survives_the_wire(made: SwarmRules) -> None:
    manifest = make_manifest("fish", (sample.FAMILY, family(name="other")), made)
    again = decode_manifest(manifest.raw, expected_digest=manifest.digest)
    assert again == manifest
    assert again.rules == made
    assert manifest.digest == hashlib.sha256(manifest.raw).digest()


def test_any_other_byte_is_another_swarm() -> None:
    one, other = sample.swarm(), sample.swarm(max_age_seconds=3601)
    assert one.digest != other.digest
    assert not set(one.topics()) & set(other.topics())


def test_a_shard_is_known_by_its_topic_in_one_spelling_only() -> None:
    manifest = sample.swarm(shard_count=12)
    assert manifest.shards_of(manifest.topics()[::-1]) == tuple(range(12))
    head = manifest.topic(0)[:-1]
    others = [head + tail for tail in ("12", "01", "+1", "-1", "", " 1", "1 ", "²", "١", "9" * 30)]
    others += [sample.swarm().topic(0), "", "/", head.rstrip("/")]
    assert manifest.shards_of(tuple(others)) == ()


def test_a_field_of_a_later_version_counts_for_the_digest() -> None:
    raw = sample.swarm().raw + b"\xfa\x7c\x01x"
    manifest = decode_manifest(raw)
    assert manifest.raw == raw
    assert manifest.digest == hashlib.sha256(raw).digest()


def test_a_manifest_other_than_the_requested_one_is_refused() -> None:
    with pytest.raises(ManifestError, match="expected 000000000000"):
        decode_manifest(sample.swarm().raw, expected_digest=bytes(32))


def test_topics_name_swarm_and_shard() -> None:
    manifest = sample.swarm(shard_count=3)
    assert manifest.topics() == tuple(
        f"/shoal/1/{manifest.digest.hex()}/rollouts/{shard}" for shard in range(3)
    )
    assert manifest.short_name == manifest.digest.hex()[:12]


def test_publishers_spread_over_the_shards() -> None:
    manifest = sample.swarm(shard_count=4)
    counts = Counter(manifest.shard_of(f"peer {number}") for number in range(400))
    assert set(counts) == {0, 1, 2, 3}
    assert min(counts.values()) > 50


def family(**changes: object) -> TaskFamily:
    return replace(sample.FAMILY, **changes)  # type: ignore[arg-type]


LONG = "x" * (limits.MAX_NAME_BYTES + 1)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"min_completions": 0}, "min_completions is 0"),
        ({"min_completions": 65}, "over max_completions"),
        ({"max_completions": 257}, "max_completions is 257"),
        ({"max_message_bytes": 1_000_001}, "max_message_bytes"),
        ({"max_batch_bytes": 8 * 1024 * 1024 + 1}, "max_batch_bytes"),
        ({"max_completion_bytes": 0}, "max_completion_bytes"),
        ({"max_age_seconds": 0}, "max_age_seconds"),
        ({"max_future_seconds": 86_401}, "max_future_seconds"),
        ({"shard_count": 0}, "shard_count"),
        ({"allowed_peers": ("0" * 50,)}, "not a peer id"),
        ({"allowed_peers": ("2" * 50, "1" * 50)}, "ascending"),
        ({"allowed_peers": ("1" * 50, "1" * 50)}, "twice"),
        ({"allowed_peers": ("1" * 50,) * 2049}, "at most 2048"),
        ({"shard_count": 4097}, "shard_count"),
        ({"max_age_seconds": -1}, "cannot be written"),
        ({"max_age_seconds": 2**32}, "cannot be written"),
    ],
    ids=str,
)
def test_rules_that_peers_would_refuse_do_not_start_a_swarm(
    bad: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ManifestError, match=reason):
        sample.swarm(**bad)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"name": ""}, "family name"),
        ({"name": LONG}, "family name"),
        ({"name": "a\nb"}, "family name"),
        ({"name": "\ud800"}, "cannot be written"),
        ({"generator": ""}, "family generator"),
        ({"verifier": "\0"}, "family verifier"),
        ({"verifier_version": ""}, "family verifier_version"),
        ({"weight": 0.0}, "weight"),
        ({"weight": float("nan")}, "weight"),
        ({"weight": float("inf")}, "weight"),
        ({"answer_format": "xml"}, "answer format"),
        ({"config_json": ""}, "not JSON"),
        ({"config_json": "[1]"}, "not a JSON object"),
        ({"config_json": "[" * 16_000}, "not JSON"),
        ({"config_json": "9" * 16_000}, "not JSON"),
        ({"config_json": '{"a":"' + "b" * 16_384 + '"}'}, "too long"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_families_that_peers_would_refuse_do_not_start_a_swarm(
    bad: dict[str, object], reason: str
) -> None:
    with pytest.raises(ManifestError, match=reason):
        make_manifest("fish", (family(**bad),))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda made: made.ClearField("schema_major"), "schema 0 is not 2"),
        (lambda made: setattr(made, "schema_major", 3), "upgrade shoal"),
        (lambda made: made.ClearField("families"), "0 task families"),
        (lambda made: made.families.extend(list(made.families)), "twice"),
        (lambda made: setattr(made, "swarm_name", ""), "swarm_name"),
        (lambda made: made.families.extend([pb.TaskFamily()]), "family name"),
        (lambda made: setattr(made, "swarm_name", "x" * 300_000), "bytes is over"),
    ],
    ids=["no schema", "newer", "no families", "twice", "no name", "empty family", "too long"],
)
def test_a_manifest_of_a_peer_that_cannot_be_used_says_why(
    change: Callable[[pb.SwarmManifest], object], reason: str
) -> None:
    message = pb.SwarmManifest.FromString(sample.swarm().raw)
    change(message)
    with pytest.raises(ManifestError, match=reason) as raised:
        decode_manifest(message.SerializeToString())
    assert "\n" not in str(raised.value)


def test_bytes_that_are_no_manifest_say_so() -> None:
    with pytest.raises(ManifestError, match="does not parse"):
        decode_manifest(b"\xff\xff")


def test_too_many_families_are_refused() -> None:
    families = tuple(family(name=f"f{number}") for number in range(257))
    make_manifest("fish", families[:256])
    with pytest.raises(ManifestError, match="257 task families"):
        make_manifest("fish", families)
