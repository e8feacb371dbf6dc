"""What the node promises its trainer, asked through the real socket."""

from __future__ import annotations

from typing import TypeVar

import pytest
import trio

from shoal_ipc import messages as m
from shoal_ipc.client import NodeClient, NodeRefused
from shoal_wire.types import RolloutGroup
from tests.support import factories as make
from tests.support.doubles.store import full_disk
from tests.support.local_node import LocalNode

Reply = TypeVar("Reply", bound=m.Body)


async def ask(client: NodeClient, body: m.Body, reply: type[Reply]) -> Reply:
    return await trio.to_thread.run_sync(client.call, body, reply)


async def refused(client: NodeClient, body: m.Body) -> NodeRefused:
    with pytest.raises(NodeRefused) as caught:
        await ask(client, body, m.Ok)
    return caught.value


NUL = make.group(1, ("7", "\0"))
BAD_BATCHES: dict[str, tuple[m.Publish, str]] = {
    "no key": (make.publish(key=b""), "key"),
    "no groups": (make.publish([]), "at least one group"),
    "one completion": (make.publish([make.group(1, ("7",))]), "1 completions"),
    "too many completions": (make.publish([make.group(1, ("7",) * 65)]), "65 completions"),
    "empty text": (make.publish([make.group(1, ("7", ""))]), "no text"),
    "a NUL": (make.publish([make.group(1), NUL]), "NUL"),
    "too long a text": (make.publish([make.group(1, ("7", "x" * 40_000))]), "longer than"),
    "a held-out question": (
        make.publish([make.group(1), make.group(of=make.task(seed=0))]),
        "seed 0 is reserved for evaluation",
    ),
    "too long a batch": (
        make.publish([make.group(n, ("7" * 32_000,) * 16) for n in range(8)]),
        "unpacked",
    ),
}


async def test_what_peers_would_reject_is_refused_here(node: LocalNode) -> None:
    client = node.client()
    for case, (request, expected) in BAD_BATCHES.items():
        failure = await refused(client, request)
        assert expected in str(failure), case
        assert "\n" not in str(failure)
        assert not failure.retryable
    assert node.outbox.num_unsent == 0
    assert node.buffer.stats(trio.current_time()).local_groups == 0
    # The connection is as good as before.
    assert (await ask(client, make.publish(), m.PublishReply)).sequence == 1
    client.close()


async def test_a_disk_that_fails_is_worth_another_try(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.receive_groups(1)
    client = node.client()
    sampled = await ask(client, m.Sample(num_external=1), m.SampleReply)
    settle = m.Report(consumed_ids=(sampled.groups[0].group_id,))
    with monkeypatch.context() as patch:
        patch.setattr(node.store, "reserve_own", full_disk)
        patch.setattr(node.store, "consume", full_disk)
        for request in (make.publish(), settle):
            failure = await refused(client, request)
            assert failure.retryable
            assert "disk full" in str(failure)
    assert node.buffer.stats(0.0).consumed_total == 0
    assert (await ask(client, settle, m.Ok)).count == 1
    assert node.buffer.stats(0.0).consumed_total == 1
    client.close()


async def test_external_groups_come_with_their_provenance(node: LocalNode) -> None:
    await node.receive_groups(1, 2, 3)
    client = node.client()
    where = {e.group.group_id: e.network for e in node.buffer.external_groups()}
    reply = await ask(client, m.Sample(num_external=2), m.SampleReply)
    assert reply.ready_external == 1
    for item in reply.groups:
        assert item.policy == make.POLICY
        assert isinstance(item.group, RolloutGroup)
        assert item.network == where[item.group_id]
    released = tuple(item.group_id for item in reply.groups)
    await ask(client, m.Report(released_ids=released), m.Ok)
    again = await ask(client, m.Sample(num_external=9), m.SampleReply)
    assert len(again.groups) == 3
    assert again.ready_external == 0
    client.close()


BAD_REQUESTS: list[tuple[m.Body, str]] = [
    (m.TrainerStatus(json="{"), "not JSON"),
    (m.TrainerStatus(json="[1]"), "not a JSON object"),
    (m.Inspect(view="nothing"), "no view 'nothing'"),
    (m.Inspect(view="echo", options_json="{"), "echo"),
    (m.Ok(), "not a request"),
    (m.Hello(ipc_version=1, role=m.Role.TRAINER, pid=1), "not a request"),
]


async def test_a_bad_request_is_a_refusal(node: LocalNode) -> None:
    client = node.client()
    for body, expected in BAD_REQUESTS:
        assert expected in str(await refused(client, body))
        assert (await ask(client, m.Report(groups=()), m.Ok)).count == 0
    client.close()
