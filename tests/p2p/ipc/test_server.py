"""The socket: who may speak, what a bad client can do (nothing), and what its end gives back."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal_base.waits import SHORT_DEADLINE_S
from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, Leases, NodeRefused, NodeUnavailable
from shoal_ipc.codec import decode_ipc, encode_ipc
from shoal_p2p.ipc import server as ipc_server
from shoal_wire.framing import MAX_IPC_FRAME_BYTES, FrameDecoder, encode_frame
from shoal_wire.types import GroupId
from tests.support import factories as make
from tests.support.doubles.store import full_disk
from tests.support.local_node import LocalNode, open_local_node
from tests.support.nodes import until


class Wire:
    """One connection, frame by frame."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._decoder = FrameDecoder()
        self._frames: list[bytes] = []

    async def send(self, body: m.Body, request_id: int = 1) -> None:
        frame = m.IpcFrame(request_id=request_id, body=body)
        await self.stream.send_all(encode_frame(encode_ipc(frame)))

    async def receive(self) -> m.IpcFrame | None:
        """Return the next frame, or None at the connection's end."""
        with trio.fail_after(20):
            while not self._frames:
                try:
                    data = await self.stream.receive_some(1 << 16)
                except trio.BrokenResourceError:
                    return None
                if not data:
                    return None
                self._frames += self._decoder.feed(data)
        return decode_ipc(self._frames.pop(0))

    async def ask(self, body: m.Body, request_id: int = 1) -> m.Body:
        await self.send(body, request_id)
        reply = await self.receive()
        assert reply is not None
        assert reply.request_id == request_id
        return reply.body


def hello(role: m.Role = m.Role.TRAINER, version: int = m.IPC_VERSION, **ids: Any) -> m.Hello:
    return m.Hello(ipc_version=version, role=role, pid=4242, **ids)


async def connect(node: LocalNode) -> Wire:
    return Wire(await trio.open_unix_socket(str(node.socket_path)))


async def greet(node: LocalNode, role: m.Role = m.Role.TRAINER, **ids: Any) -> Wire:
    wire = await connect(node)
    reply = await wire.ask(hello(role, **ids))
    assert isinstance(reply, m.HelloReply)
    return wire


async def still_serves(node: LocalNode) -> None:
    wire = await greet(node, m.Role.INSPECTOR)
    assert isinstance(await wire.ask(m.Inspect(view="echo")), m.InspectReply)
    await wire.stream.aclose()


async def fill(node: LocalNode, count: int) -> list[GroupId]:
    """Give the node groups of another publisher; return their ids."""
    await node.receive_groups(*range(count))
    return [entry.group.group_id for entry in node.buffer.external_groups()]


async def test_a_client_of_another_version_gets_both_versions_and_is_disconnected(
    node: LocalNode,
) -> None:
    wire = await connect(node)
    reply = await wire.ask(hello(version=99))
    assert isinstance(reply, m.Failure)
    assert "99" in reply.reason
    assert str(m.IPC_VERSION) in reply.reason
    assert not reply.retryable
    assert await wire.receive() is None
    assert not node.link.connected


JUNK = [
    encode_frame(encode_ipc(m.IpcFrame(request_id=1, body=m.Sample(num_external=1)))),
    encode_frame(encode_ipc(m.IpcFrame(request_id=1, body=m.Ok()))),
    encode_frame(b"\xff" * 40),
    encode_frame(b""),
    b"GET / HTTP/1.1\r\n\r\n",
    (MAX_IPC_FRAME_BYTES + 1).to_bytes(4, "big"),
    b"\xff\xff\xff\xff" + b"x" * 1000,
    os.urandom(4096),
]


@pytest.mark.parametrize("greeted", [False, True])
async def test_who_breaks_the_contract_is_cut_off_alone(node: LocalNode, greeted: bool) -> None:
    other = await greet(node, m.Role.INSPECTOR)
    for junk in JUNK:
        wire = await greet(node) if greeted else await connect(node)
        await wire.stream.send_all(junk)
        # Random bytes may be the start of a long frame: then nothing is wrong with them yet.
        await wire.stream.send_eof()
        reply = await wire.receive()
        if reply is not None:  # a request after a hello is no breach
            assert greeted, junk[:20]
            assert await wire.receive() is None
        assert isinstance(await other.ask(m.Inspect(view="echo")), m.InspectReply)
        await until(lambda: not node.link.connected)


async def test_a_silent_connection_is_closed(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ipc_server, "SHORT_DEADLINE_S", 0.05)
    wire = await connect(node)
    assert await wire.receive() is None
    await still_serves(node)


async def test_a_reader_that_does_not_read_is_closed_and_gives_back_its_leases(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ipc_server, "REPLY_S", 0.2)

    async def large(_options: Mapping[str, Any]) -> dict[str, Any]:
        return {"text": "x" * (4 << 20)}

    node.views["large"] = large
    await fill(node, 3)
    wire = await greet(node)
    assert isinstance(await wire.ask(m.Sample(num_external=3)), m.SampleReply)
    assert node.buffer.ready() == 0
    await wire.send(m.Inspect(view="large"))
    await until(lambda: not node.link.connected)
    assert node.buffer.ready() == 3
    await still_serves(node)


async def test_requests_sent_at_once_are_answered_in_order(node: LocalNode) -> None:
    wire = await greet(node, m.Role.INSPECTOR)
    for number in range(2, 40):
        await wire.send(m.Inspect(view="echo", options_json=json.dumps({"n": number})), number)
    for number in range(2, 40):
        reply = await wire.receive()
        assert reply is not None
        assert reply.request_id == number
        assert isinstance(reply.body, m.InspectReply)
        assert json.loads(reply.body.json) == {"options": {"n": number}}


@pytest.mark.parametrize(
    "body",
    [
        make.publish(),
        m.Sample(num_external=1),
        m.Report(consumed_ids=(GroupId(bytes(16)),)),
        m.Report(groups=()),
        m.TrainerStatus(json="{}"),
    ],
    ids=lambda body: type(body).__name__,
)
async def test_an_inspector_may_only_look(node: LocalNode, body: m.Body) -> None:
    ids = tuple(await fill(node, 1))
    wire = await greet(node, m.Role.INSPECTOR, held_ids=ids, consumed_ids=ids)
    reply = await wire.ask(body)
    assert isinstance(reply, m.Failure)
    assert type(body).__name__ in reply.reason
    assert node.buffer.ready() == 1
    assert node.outbox.num_unsent == 0
    assert not node.link.connected


async def test_a_reconnect_consumes_and_holds_what_the_trainer_says(node: LocalNode) -> None:
    ids = await fill(node, 4)
    wire = await greet(node, consumed_ids=(ids[0],), held_ids=(ids[1], ids[2]))
    reply = await wire.ask(m.Sample(num_external=4))
    assert isinstance(reply, m.SampleReply)
    assert [item.group_id for item in reply.groups] == [ids[3]]
    assert reply.ready_external == 0
    # Held and leased ones come back when the trainer goes, the consumed one never.
    await wire.stream.aclose()
    await until(lambda: node.buffer.ready() == 3)
    assert not node.link.connected


async def test_a_newer_trainer_takes_the_place_of_the_older(node: LocalNode) -> None:
    await fill(node, 2)
    old = await greet(node)
    await old.ask(m.Sample(num_external=2))
    new = await greet(node)
    assert node.buffer.ready() == 2
    refused = await old.ask(m.Sample(num_external=1))
    assert isinstance(refused, m.Failure)
    assert not refused.retryable
    sampled = await new.ask(m.Sample(num_external=2))
    assert isinstance(sampled, m.SampleReply)
    assert len(sampled.groups) == 2
    # The older one's end does not touch what is the newer one's.
    await old.stream.aclose()
    await still_serves(node)
    assert (node.link.connected, node.link.pid) == (True, 4242)
    assert node.buffer.ready() == 0


async def test_a_disk_that_fails_in_the_handshake_is_an_answer(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    (group_id,) = await fill(node, 1)
    monkeypatch.setattr(node.store, "consume", full_disk)
    reply = await (await connect(node)).ask(hello(consumed_ids=(group_id,)))
    assert isinstance(reply, m.Failure)
    assert reply.retryable
    assert "disk full" in reply.reason
    assert node.buffer.ready() == 1
    await until(lambda: not node.link.connected)


async def test_a_fault_of_ours_ends_one_connection_and_says_so(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_options: Mapping[str, Any]) -> dict[str, Any]:
        raise RuntimeError("a bug in a view")

    node.views["broken"] = broken
    wire = await greet(node, m.Role.INSPECTOR)
    await wire.send(m.Inspect(view="broken"))
    assert await wire.receive() is None
    assert "a bug in a view" in caplog.text
    await still_serves(node)


async def test_connections_beyond_the_bound_are_closed(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ipc_server, "MAX_CONNECTIONS", 2)
    first, second = await greet(node), await greet(node, m.Role.INSPECTOR)
    third = await connect(node)
    assert await third.receive() is None
    await first.stream.aclose()
    await until(lambda: not node.link.connected)
    await greet(node)
    await second.stream.aclose()


async def test_a_silent_client_does_not_block_others(node: LocalNode) -> None:
    """Half a frame on every connection there may be, and `shoal debug` is answered at once."""
    trainer = await greet(node)
    silent = [await connect(node) for _ in range(2 * ipc_server.MAX_CONNECTIONS)]
    for wire in silent[-ipc_server.MAX_CONNECTIONS + 1 :]:
        await wire.stream.send_all(b"\0\0")
    with trio.fail_after(SHORT_DEADLINE_S / 2):
        await still_serves(node)
    assert node.link.connected
    assert isinstance(await trainer.ask(m.Report()), m.Ok)


async def test_an_inspector_that_asks_nothing_makes_room(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ipc_server, "MINUTE_S", 0.05)
    trainer = await greet(node)
    idle = [await greet(node, m.Role.INSPECTOR) for _ in range(ipc_server.MAX_CONNECTIONS - 1)]
    await trio.sleep(0.1)
    await still_serves(node)
    assert await idle[0].receive() is None, "the one that was there longest"
    assert isinstance(await idle[1].ask(m.Inspect(view="echo")), m.InspectReply)
    assert isinstance(await trainer.ask(m.Report()), m.Ok), "never the trainer"


async def test_the_socket_is_the_owners_alone_and_replaces_a_dead_nodes(tmp_path: Path) -> None:
    path = tmp_path / SOCKET_NAME
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    assert path.exists()
    async with open_local_node(tmp_path) as node:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == 0o600
        await still_serves(node)
    assert not path.exists()


async def test_the_client_waits_out_a_node_that_is_away(tmp_path: Path) -> None:
    identity, manifest = make.fresh_identity(), make.swarm()

    async def inspect(client: Any) -> Any:
        return await trio.to_thread.run_sync(client.call, m.Inspect(view="echo"), m.InspectReply)

    async with open_local_node(tmp_path, identity=identity, manifest=manifest) as node:
        client = node.client()
        assert isinstance(await inspect(client), m.InspectReply)
        assert (client.peer_id, client.manifest) == (identity.peer_id, manifest.raw)
    with pytest.raises(NodeUnavailable):
        await inspect(client)
    assert not client.connected
    async with open_local_node(tmp_path, identity=identity, manifest=manifest):
        assert await trio.to_thread.run_sync(client.wait, 20.0)
        assert isinstance(await inspect(client), m.InspectReply)
        assert client.connects == 2
        with pytest.raises(NodeRefused, match="no view 'nothing'"):
            await trio.to_thread.run_sync(client.call, m.Inspect(view="nothing"), m.InspectReply)
        client.close()


async def test_the_client_gives_up_on_a_node_that_does_not_answer(node: LocalNode) -> None:
    async def never(_options: Mapping[str, Any]) -> dict[str, Any]:
        await trio.sleep_forever()
        return {}

    node.views["never"] = never
    client = node.client(m.Role.INSPECTOR, timeout_seconds=0.2)
    client.leases = Leases
    with pytest.raises(NodeUnavailable, match=r"no answer in time|timed out"):
        await trio.to_thread.run_sync(client.call, m.Inspect(view="never"), m.InspectReply)
    assert await trio.to_thread.run_sync(client.wait, 20.0)
    client.close()
