"""Every row of the verdict table, done to a real node over raw libp2p by a peer of its own making.

Checks the node's verdict, which peer pays for it, and that the node continues.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2

from shoal_p2p.gossip.codec import sign_message
from shoal_tasks.families import JUDGE_SEED_MIN, TRAIN_SEED_MIN
from shoal_wire.codec import batch_to_bytes, compress
from shoal_wire.verdict import Outcome, Reason, verdict
from tests.support import factories as make
from tests.support.network import signed_by
from tests.support.nodes import until
from tests.support.victim import Attacker, Victim, open_hostile, still_works
from tests.wire.verdict_rows import ROWS, task


def another(attacker: Attacker) -> make.Author:
    return make.Author(attacker.author.manifest, now_ms=attacker.author.now_ms)


def by_the_victim(attacker: Attacker) -> bytes:
    identity = attacker.victim.node.member.host.identity
    author = make.Author(attacker.author.manifest, identity=identity, now_ms=attacker.author.now_ms)
    return author.envelope()


def first_of_each() -> dict[Reason, Callable[[Attacker], bytes]]:
    """What anybody can send, one of each reason."""
    found: dict[Reason, Callable[[Attacker], bytes]] = {
        Reason.SIGNER_NOT_SENDER: lambda attacker: another(attacker).envelope(),
        Reason.CLAIMS_TO_BE_ME: by_the_victim,
        Reason.QUESTION_MISMATCH: lambda attacker: task(question="What is it?")(attacker.author),
    }
    for row in ROWS:
        if row.reason is not Reason.VALID and row.reason not in found:
            found[row.reason] = lambda attacker, row=row: row.made_by(attacker.author)
    return found


def seen(victim: Victim, reason: Reason) -> int:
    totals = victim.node.member.guard.verdicts.totals()
    return {**totals.ignore, **totals.reject}.get(reason.value, 0)


def judged_by_gossip(victim: Victim, reason: Reason) -> int:
    return victim.node.member.gossip.stats().verdicts.get(reason, 0)


@pytest.mark.parametrize(("reason", "bad"), first_of_each().items())
async def test_a_bad_batch_gets_its_verdict_and_its_sender_the_price(
    victim: Victim, reason: Reason, bad: Callable[[Attacker], bytes]
) -> None:
    before, kept = seen(victim, reason), victim.node.counters.groups_received
    async with open_hostile(victim) as attacker:
        await attacker.publish(bad(attacker))
        await until(lambda: seen(victim, reason) == before + 1)
        judged = verdict(reason)
        assert (victim.score(attacker.peer_id) < 0) == (judged.outcome is Outcome.REJECT)
        assert victim.node.counters.groups_received == kept
        # Its next message is good and is accepted: one fault disconnects no peer.
        await attacker.publish(attacker.author.envelope())
        await until(lambda: victim.node.counters.groups_received == kept + 1)


async def test_unknown_fields_of_a_batch_are_kept_unchanged(victim: Victim) -> None:
    async with open_hostile(victim) as attacker:
        kept = victim.node.counters.groups_received
        content = batch_to_bytes(attacker.author.batch()) + b"\xf2\x7c\x03new"
        await attacker.publish(attacker.author.seal(compress(content)))
        await until(lambda: victim.node.counters.groups_received == kept + 1)
        assert victim.score(attacker.peer_id) == 0.0


async def test_an_echo_in_the_victims_own_name_is_dropped(victim: Victim) -> None:
    async with open_hostile(victim) as attacker:
        # Signed over the victim's name, with a key of the attacker's own in the message.
        raw = ID.from_base58(victim.peer_id).to_bytes()
        message = sign_message(attacker.host.identity, raw, victim.topic, b"x", 7)
        before = judged_by_gossip(victim, Reason.SIGNER_NOT_SENDER)
        await attacker.send_rpc(rpc_pb2.RPC(publish=[message]))
        await until(lambda: judged_by_gossip(victim, Reason.SIGNER_NOT_SENDER) == before + 1)


async def test_a_replay_after_gossip_has_forgotten_it_is_a_duplicate(victim: Victim) -> None:
    async with open_hostile(victim) as attacker:
        kept, before = (
            victim.node.counters.groups_received,
            seen(victim, Reason.DUPLICATE),
        )
        envelope = attacker.author.envelope()
        await attacker.publish(envelope)
        await until(lambda: victim.node.counters.groups_received == kept + 1)
        victim.node.member.gossip._mesh._duplicates._copies.clear()  # type: ignore[attr-defined]
        await attacker.publish(envelope)
        await until(lambda: seen(victim, Reason.DUPLICATE) == before + 1)
        assert victim.node.counters.groups_received == kept + 1
        assert victim.score(attacker.peer_id) == 0.0, "a duplicate is ignored"


async def test_two_batches_under_one_number_lose_both_and_cost_the_signer_alone(
    victim: Victim,
) -> None:
    async with open_hostile(victim) as attacker, open_hostile(victim) as other:
        signer = another(attacker)
        one = signer.envelope(signer.batch([make.group(1)], sequence=77))
        two = signer.envelope(signer.batch([make.group(2)], sequence=77))
        before, kept = (
            seen(victim, Reason.EQUIVOCATION),
            victim.node.counters.groups_received,
        )
        first = signed_by(signer.identity, victim.topic, one, 1)
        await attacker.send_rpc(rpc_pb2.RPC(publish=[first]))
        await until(lambda: victim.node.counters.groups_received == kept + 1)
        second = signed_by(signer.identity, victim.topic, two, 2)
        await other.send_rpc(rpc_pb2.RPC(publish=[second]))
        await until(lambda: seen(victim, Reason.EQUIVOCATION) == before + 1)
        assert victim.score(signer.peer_id) == pytest.approx(-4.0, abs=0.1)
        assert victim.score(other.peer_id) == 0.0, "it may have seen only one of the two"
        publishers = {entry.group.publisher for entry in victim.node.buffer.external_groups()}
        assert signer.peer_id not in publishers


@pytest.mark.parametrize("seed", [0, JUDGE_SEED_MIN, TRAIN_SEED_MIN - 1])
async def test_answers_to_reserved_questions_are_not_kept_and_cost_their_signer_alone(
    victim: Victim, seed: int
) -> None:
    async with open_hostile(victim) as forwarder:
        signer = another(forwarder)
        groups = [make.group(1), make.group(of=make.task(2, seed=seed))]
        data = signer.envelope(signer.batch(groups))
        before, kept = (
            seen(victim, Reason.RESERVED_TASK),
            victim.node.counters.groups_received,
        )
        message = signed_by(signer.identity, victim.topic, data)
        await forwarder.send_rpc(rpc_pb2.RPC(publish=[message]))
        await until(lambda: seen(victim, Reason.RESERVED_TASK) == before + 1)
        assert victim.score(signer.peer_id) == pytest.approx(-4.0, abs=0.1)
        assert victim.score(forwarder.peer_id) == 0.0, "it may be of another version"
        assert victim.node.counters.groups_received == kept


async def test_after_every_row_the_node_works(victim: Victim) -> None:
    await still_works(victim)
