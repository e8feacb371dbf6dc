"""Topics by family: one name for each shard of each key, and a batch is of one of them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from shoal_tasks.families import GAMES_1
from shoal_tasks.spec import ENVIRONMENT, EXACT, TEXT_ARENA, FamilySpec, JsonValue, environment
from shoal_tasks.swarm import families_of
from shoal_wire.limits import MAX_SHARDS, TOPIC_PREFIX
from shoal_wire.manifest import Manifest, SwarmRules, make_manifest
from shoal_wire.rules import check_batch
from shoal_wire.topic_keys import COMMON_KEY, key_of_digest, numbered, split_number
from shoal_wire.types import Digest, InlineTask
from shoal_wire.verdict import Reason
from tests.support import factories as make


def rows(number: int) -> FamilySpec:
    """Return a family of rows that no machine has."""
    sha256 = f"{number:064x}"
    config: dict[str, JsonValue] = {"sha256": sha256, "rows": 9, "held_out": 1, "split": "question"}
    return FamilySpec(
        name=f"rows {number}", generator="rows", config=config, verifier=EXACT, verifier_version="1"
    )


GAME: dict[str, JsonValue] = {"max_turns": 4, "reward_range": [0, 1]}
OWN = [
    rows(1),
    rows(2),
    environment("mine", ENVIRONMENT, {**GAME, "sha256": "0" * 64, "class": "Game"}),
    environment("library", TEXT_ARENA, {**GAME, "game": "2048-v0"}),
]


def swarm(**rules: object) -> Manifest:
    specs = [*make.SPECS, *GAMES_1, *OWN]
    return make_manifest("swarm", families_of(specs), replace(SwarmRules(), **rules))  # type: ignore[arg-type]


def test_families_that_every_node_has_share_a_topic_and_others_have_their_own() -> None:
    manifest = swarm()
    for spec in (*make.SPECS, *GAMES_1):
        assert manifest.keys[spec.name] == COMMON_KEY
    keys = [manifest.keys[spec.name] for spec in OWN]
    assert keys == [key_of_digest(spec.digest) for spec in OWN]
    assert len({COMMON_KEY, *keys}) == 1 + len(OWN)
    assert len(set(manifest.topics())) == 1 + len(OWN)


@pytest.mark.parametrize("shard_count", [1, 7])
def test_a_topic_names_one_shard_and_nothing_else_does(shard_count: int) -> None:
    manifest, other = swarm(shard_count=shard_count), swarm(max_age_seconds=9)
    assert set(manifest.shards_of(manifest.topics())) == {
        number for key in manifest.keys.values() for number in numbered(key, range(shard_count))
    }
    rng = random.Random(3)
    for _ in range(500):
        key = rng.choice((0, 1, rng.getrandbits(48), (1 << 48) - 1))
        (shard,) = numbered(key, [rng.randrange(shard_count)])
        topic = manifest.topic(shard)
        assert manifest.shards_of((topic,)) == (shard,) and other.shards_of((topic,)) == ()
        position = rng.randrange(len(TOPIC_PREFIX) + 66, len(topic))
        letter = rng.choice("0123456789abcdefABCDEF/+ \n\u0661-")
        changed = f"{topic[:position]}{letter}{topic[position + rng.randrange(2) :]}"
        (found,) = manifest.shards_of((changed,)) or (None,)
        assert found is None or manifest.topic(found) == changed, changed
    for key in (COMMON_KEY, 1, (1 << 48) - 1):
        path = manifest.path(make.fresh_identity().peer_id, key)
        assert {split_number(shard)[0] for shard in path} == {key}
        assert all(split_number(shard)[1] < MAX_SHARDS for shard in path)


def test_a_batch_is_of_one_topic() -> None:
    manifest = swarm(allow_inline_tasks=True)
    author = make.Author(manifest)
    specs = [*make.SPECS, *OWN]
    inline = replace(
        make.task(), inline=InlineTask(question="1?", answer="1"), config_digest=Digest(bytes(16))
    )
    tasks = [make.task_of(spec, 1 << 20, "1?") for spec in specs] + [inline]
    for first in tasks:
        for second in tasks:
            batch = author.batch([make.group(of=first), make.group(of=second)])
            reason = check_batch(batch, make.batch_rules(manifest), now_ms=make.NOW_MS)
            is_one = manifest.key_of(first) == manifest.key_of(second)
            assert reason is (None if is_one else Reason.BAD_FIELD)
    assert manifest.key_of(inline) == COMMON_KEY
    unknown = replace(make.task(), family="of a newer program")
    batch = author.batch([make.group(), make.group(of=unknown)])
    assert (
        check_batch(batch, make.batch_rules(manifest), now_ms=make.NOW_MS) is Reason.UNKNOWN_FAMILY
    )
