"""Every row of the verdict table, done to a real node over raw libp2p by a peer of its own making.

What the node says, what it costs whom, and that the node goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2

from p2p.gossip.messages import sign_message
from shoal_tasks.families import JUDGE_SEED_MIN, TRAIN_SEED_MIN
from shoal_wire.codec import batch_to_bytes
from shoal_wire.compression import compress
from shoal_wire.envelope import seal
from shoal_wire.types import Digest, InlineTask
from shoal_wire.v1 import rollout_pb2 as pb
from shoal_wire.verdict import Outcome, Reason, verdict
from tests.support import factories as make
from tests.support.nodes import fresh_identity, until
from tests.support.victim import Attacker, Victim, open_hostile, still_works

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def of_batch(**changes: object) -> Callable[[Attacker], bytes]:
    return lambda a: a.author.envelope(a.author.batch(**changes))


def of_group(group: object) -> Callable[[Attacker], bytes]:
    return lambda a: a.author.envelope(a.author.batch([group]))  # type: ignore[list-item]


def of_task(**changes: object) -> Callable[[Attacker], bytes]:
    return of_group(make.group(of=make.task(**changes)))


def of_texts(*texts: str) -> Callable[[Attacker], bytes]:
    return of_group(make.group(texts=texts))


def of_payload(payload: bytes) -> Callable[[Attacker], bytes]:
    return lambda a: seal(
        payload, public_key=a.host.identity.public_key_bytes, sign=a.host.identity.sign
    )


def at(offset_ms: int) -> Callable[[Attacker], bytes]:
    return lambda a: of_batch(created_ms=a.author.now_ms + offset_ms)(a)


def envelope_with(**fields: object) -> Callable[[Attacker], bytes]:
    def make_it(attacker: Attacker) -> bytes:
        made = pb.Envelope.FromString(attacker.author.envelope())
        for name, value in fields.items():
            setattr(made, name, value)
        return made.SerializeToString()

    return make_it


def by_another(attacker: Attacker) -> bytes:
    return make.Author(attacker.author.manifest, now_ms=attacker.author.now_ms).envelope()


def by_the_victim(attacker: Attacker) -> bytes:
    identity = attacker.victim.node.member.host.identity
    author = make.Author(attacker.author.manifest, identity=identity, now_ms=attacker.author.now_ms)
    return author.envelope()


def newer(attacker: Attacker) -> bytes:
    made = pb.RolloutBatch(schema_major=9)
    return of_payload(compress(made.SerializeToString()))(attacker)


ROWS: list[tuple[Reason, Callable[[Attacker], bytes]]] = [
    (Reason.MALFORMED_ENVELOPE, lambda _: b"\xff" * 40),
    (Reason.NOT_CANONICAL, lambda a: a.author.envelope() + b"\xf2\x3f\x03new"),
    (Reason.WRONG_PAYLOAD_TYPE, envelope_with(payload_type=b"/x/1")),
    (Reason.KEY_NOT_ED25519, envelope_with(public_key=b"\x08\x02\x12\x21" + bytes(33))),
    (Reason.WEAK_KEY, envelope_with(public_key=b"\x08\x01\x12\x20" + bytes(32))),
    (Reason.BAD_SIGNATURE, envelope_with(signature=bytes(64))),
    (Reason.SIGNER_NOT_SENDER, by_another),
    (Reason.CLAIMS_TO_BE_ME, by_the_victim),
    (Reason.OVERSIZE_PAYLOAD, of_payload(compress(bytes(8 << 20)))),
    (Reason.CORRUPT_COMPRESSION, of_payload(b"not zstd")),
    (Reason.MALFORMED_PAYLOAD, of_payload(compress(b"\xff" * 9))),
    (Reason.NEWER_SCHEMA, newer),
    (Reason.WRONG_SWARM, of_batch(swarm_digest=Digest(bytes(32)))),
    (Reason.TOO_OLD, at(-25 * HOUR_MS)),
    (Reason.NEAR_FUTURE, at(HOUR_MS)),
    (Reason.FAR_FUTURE, at(2 * DAY_MS)),
    (Reason.UNKNOWN_FAMILY, of_task(family="of my own")),
    (Reason.UNKNOWN_FAMILY, of_task(config_digest=Digest(b"c" * 16))),
    (Reason.OTHER_VERIFIER_VERSION, of_task(verifier_version="0.0.1")),
    (Reason.QUESTION_MISMATCH, of_task(question="What is it?")),
    (Reason.NO_GROUPS, lambda a: a.author.envelope(a.author.batch([]))),
    (Reason.NO_COMPLETIONS, of_texts()),
    (Reason.TOO_MANY_COMPLETIONS, of_texts(*["7"] * 65)),
    (Reason.EMPTY_TEXT, of_texts("7", "")),
    (Reason.OVERSIZE_TEXT, of_texts("7", "x" * 40_000)),
    (Reason.FORBIDDEN_CHARACTER, of_texts("7", "a\0b")),
    (Reason.RESERVED_TASK, of_task(seed=0)),
    (Reason.RESERVED_TASK, of_task(seed=TRAIN_SEED_MIN - 1)),
    (Reason.BAD_NUMBER, of_batch(sampling=replace(make.SAMPLING, temperature=math.nan))),
    (Reason.BAD_NUMBER, of_batch(sampling=replace(make.SAMPLING, top_p=math.inf))),
    (Reason.BAD_FIELD, of_task(config_digest=Digest(b"c" * 3))),
    (Reason.INLINE_NOT_ALLOWED, of_task(inline=InlineTask(question="Why?", answer="So."))),
]


def seen(victim: Victim, reason: Reason) -> int:
    totals = victim.node.member.guard.verdicts.totals()[verdict(reason).outcome]
    return totals.get(reason.value, 0) if isinstance(totals, dict) else 0


@pytest.mark.parametrize(("reason", "bad"), ROWS, ids=[row[0].value for row in ROWS])
async def test_a_bad_batch_gets_its_verdict_and_its_sender_the_price(
    victim: Victim, reason: Reason, bad: Callable[[Attacker], bytes]
) -> None:
    before, kept = seen(victim, reason), victim.node.pool.groups_received
    async with open_hostile(victim) as attacker:
        await attacker.publish(bad(attacker))
        await until(lambda: seen(victim, reason) == before + 1)
        judged = verdict(reason)
        assert (victim.score(attacker.peer_id) < 0) == (judged.outcome is Outcome.REJECT)
        assert victim.node.pool.groups_received == kept
        # Its next message, a good one, is taken: one slip ends nobody.
        await attacker.publish(attacker.author.envelope())
        await until(lambda: victim.node.pool.groups_received == kept + 1)


async def test_all_rewards_equal_or_another_model_is_no_fault(victim: Victim) -> None:
    async with open_hostile(victim) as attacker:
        kept = victim.node.pool.groups_received
        other = replace(make.POLICY, model_name="some/other-model")
        batch = attacker.author.batch([make.group(5, ("7", "7"))], policy=other)
        await attacker.publish(attacker.author.envelope(batch))
        await until(lambda: victim.node.pool.groups_received == kept + 1)
        assert victim.score(attacker.peer_id) == 0.0


async def test_unknown_fields_of_a_batch_are_kept_as_they_came(victim: Victim) -> None:
    async with open_hostile(victim) as attacker:
        kept = victim.node.pool.groups_received
        content = batch_to_bytes(attacker.author.batch()) + b"\xf2\x7c\x03new"
        await attacker.publish(of_payload(compress(content))(attacker))
        await until(lambda: victim.node.pool.groups_received == kept + 1)
        assert victim.score(attacker.peer_id) == 0.0


async def test_a_forged_gossip_message_is_rejected_before_its_data_is_read(victim: Victim) -> None:
    async with open_hostile(victim) as attacker:
        message = attacker.message(b"data")
        message.data = b"other data"
        gossip = victim.node.member.gossip
        before = gossip.stats().verdicts.get(Reason.BAD_SIGNATURE, 0)
        await attacker.send_rpc(rpc_pb2.RPC(publish=[message]))
        await until(lambda: gossip.stats().verdicts.get(Reason.BAD_SIGNATURE, 0) == before + 1)
        assert victim.score(attacker.peer_id) == pytest.approx(-5.0, abs=0.1)


async def test_messages_of_unknown_topics_are_dropped_unread(victim: Victim) -> None:
    async with open_hostile(victim) as attacker:
        before = victim.counts()["unknown_topic"]
        other = attacker.message(b"x", topic="/shoal/1/other/rollouts/0")
        await attacker.send_rpc(rpc_pb2.RPC(publish=[other] * 5))
        await until(lambda: victim.counts()["unknown_topic"] == before + 5)


async def test_an_echo_in_the_victims_own_name_is_dropped(victim: Victim) -> None:
    async with open_hostile(victim) as attacker:
        # Signed over the victim's name, with a key of the attacker's own in the message.
        raw = ID.from_base58(victim.peer_id).to_bytes()
        message = sign_message(attacker.host.identity, raw, victim.topic, b"x", 7)
        before = victim.node.member.gossip.stats().verdicts.get(Reason.SIGNER_NOT_SENDER, 0)
        await attacker.send_rpc(rpc_pb2.RPC(publish=[message]))
        await until(
            lambda: (
                victim.node.member.gossip.stats().verdicts.get(Reason.SIGNER_NOT_SENDER, 0)
                == before + 1
            )
        )


async def test_an_oversize_message_is_rejected(victim: Victim) -> None:
    async with open_hostile(victim) as attacker:
        before = victim.node.member.gossip.stats().verdicts.get(Reason.OVERSIZE_MESSAGE, 0)
        await attacker.publish(bytes(1_000_001))
        await until(
            lambda: (
                victim.node.member.gossip.stats().verdicts.get(Reason.OVERSIZE_MESSAGE, 0)
                == before + 1
            )
        )
        assert victim.score(attacker.peer_id) < 0


async def test_a_replay_after_gossip_has_forgotten_it_is_a_duplicate(victim: Victim) -> None:
    async with open_hostile(victim) as attacker:
        kept, before = victim.node.pool.groups_received, seen(victim, Reason.DUPLICATE)
        envelope = attacker.author.envelope()
        await attacker.publish(envelope)
        await until(lambda: victim.node.pool.groups_received == kept + 1)
        victim.node.member.gossip._pubsub.seen_messages._expiry.clear()
        await attacker.publish(envelope)
        await until(lambda: seen(victim, Reason.DUPLICATE) == before + 1)
        assert victim.node.pool.groups_received == kept + 1
        assert victim.score(attacker.peer_id) == 0.0, "a duplicate is ignored"


async def test_two_batches_under_one_number_lose_both_and_cost_the_signer_alone(
    victim: Victim,
) -> None:
    signer = make.Author(victim.node.member.manifest, identity=fresh_identity(), now_ms=make.NOW_MS)
    async with open_hostile(victim) as attacker, open_hostile(victim) as other:
        signer.now_ms = attacker.author.now_ms
        one = signer.envelope(signer.batch([make.group(1)], sequence=77))
        two = signer.envelope(signer.batch([make.group(2)], sequence=77))
        raw = bytes(ID.from_base58(signer.peer_id).to_bytes())
        before, kept = seen(victim, Reason.EQUIVOCATION), victim.node.pool.groups_received
        for number, (sender, envelope) in enumerate(((attacker, one), (other, two))):
            message = _signed_by(signer, raw, envelope, number + 1, victim.topic)
            await sender.send_rpc(rpc_pb2.RPC(publish=[message]))
            await until(
                lambda number=number: (
                    victim.node.pool.groups_received == kept + 1
                    if number == 0
                    else seen(victim, Reason.EQUIVOCATION) == before + 1
                )
            )
        assert victim.score(signer.peer_id) == pytest.approx(-4.0, abs=0.1)
        assert victim.score(other.peer_id) == 0.0, "it may have seen only one of the two"
        held = list(victim.node.buffer.residents())
        publishers = {entry.group.publisher for entry in held}
        assert signer.peer_id not in publishers


@pytest.mark.parametrize("seed", [0, JUDGE_SEED_MIN, TRAIN_SEED_MIN - 1])
async def test_answers_to_reserved_questions_are_not_kept_and_cost_their_signer_alone(
    victim: Victim, seed: int
) -> None:
    signer = make.Author(victim.node.member.manifest, identity=fresh_identity(), now_ms=make.NOW_MS)
    async with open_hostile(victim) as forwarder:
        signer.now_ms = forwarder.author.now_ms
        groups = [make.group(1), make.group(of=make.task(2, seed=seed))]
        data = signer.envelope(signer.batch(groups))
        raw = bytes(ID.from_base58(signer.peer_id).to_bytes())
        before, kept = seen(victim, Reason.RESERVED_TASK), victim.node.pool.groups_received
        message = _signed_by(signer, raw, data, 1, victim.topic)
        await forwarder.send_rpc(rpc_pb2.RPC(publish=[message]))
        await until(lambda: seen(victim, Reason.RESERVED_TASK) == before + 1)
        assert victim.score(signer.peer_id) == pytest.approx(-4.0, abs=0.1)
        assert victim.score(forwarder.peer_id) == 0.0, "it may be of version 0.1.0"
        assert victim.node.pool.groups_received == kept


def _signed_by(
    author: make.Author, raw_id: bytes, data: bytes, seqno: int, topic: str
) -> rpc_pb2.Message:
    return sign_message(author.identity, raw_id, topic, data, seqno)


async def test_a_publisher_over_its_quota_is_ignored(victim: Victim) -> None:
    async with open_hostile(victim) as attacker:
        before = seen(victim, Reason.OVER_QUOTA)
        groups = [make.group(n) for n in range(600)]
        for _ in range(3):
            batch = attacker.author.batch(groups)
            await attacker.publish(attacker.author.envelope(batch))
        await until(lambda: seen(victim, Reason.OVER_QUOTA) > before)
        assert victim.score(attacker.peer_id) == 0.0


async def test_our_own_trouble_is_ignored_and_costs_nobody(victim: Victim) -> None:
    from shoal_tasks.errors import WorkerUnavailable

    async with open_hostile(victim) as attacker:
        before = seen(victim, Reason.WORKER_UNAVAILABLE)
        victim.node.member.worker.error = WorkerUnavailable("down")  # type: ignore[attr-defined]
        try:
            await attacker.publish(attacker.author.envelope())
            await until(lambda: seen(victim, Reason.WORKER_UNAVAILABLE) == before + 1)
        finally:
            victim.node.member.worker.error = None  # type: ignore[attr-defined]
        assert victim.score(attacker.peer_id) == 0.0


async def test_after_every_row_the_node_works(victim: Victim) -> None:
    await still_works(victim)
