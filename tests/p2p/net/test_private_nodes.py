"""Whole nodes of private swarms: which can join, and that none exits."""

from __future__ import annotations

import contextlib
import logging
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal.__main__ import main
from shoal_bootstrap import live_command as bootstrap_command
from shoal_bootstrap.peer import BootstrapPeer
from shoal_ipc.answers.doctor import Finding
from shoal_p2p.ipc.views import CoreViews
from shoal_p2p.judge import live_command as judge_command
from shoal_p2p.judge.peer import JudgePeer
from shoal_p2p.net.access import AccessDenied
from shoal_p2p.net.identity import load_or_create_identity
from shoal_p2p.net.swarm_key import format_swarm_key
from shoal_p2p.node import Node
from shoal_p2p.parts import Limits
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId
from tests.support.nodes import until
from tests.support.peers import address_of, open_peer, quiet_settings

PATIENCE_S = 40.0
CASES = [
    ("none", "k", AccessDenied.KEY_MISSING),
    ("k", "none", AccessDenied.KEY_UNEXPECTED),
    ("o", "k", AccessDenied.KEY_DIFFERS),
]
"""The key that one has, the key that its bootstrap has, what keeps them apart."""


def id_in(data_dir: Path) -> PeerId:
    data_dir.mkdir(exist_ok=True)
    return load_or_create_identity(data_dir / "identity.key").peer_id


def running(
    kind: Any, data_dir: Path, *, admitted: bool = True, **changes: Any
) -> AbstractAsyncContextManager[Any]:
    """Run a peer; one that is not `admitted` does not wait for its bootstrap for long."""
    tuning = Limits.of(quiet_settings(data_dir, **changes))
    wait_s = PATIENCE_S if admitted else 0.3
    return open_peer(kind, data_dir, tuning=replace(tuning, bootstrap_s=wait_s), **changes)


async def test_only_listed_peers_join(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    friend_id = id_in(tmp_path / "friend")
    async with running(BootstrapPeer, tmp_path / "boot", allow_peers=(friend_id,)) as boot:
        assert boot.member.manifest.rules.allowed_peers == tuple(
            sorted([friend_id, boot.member.peer_id])
        )
        at = (address_of(boot),)
        async with (
            running(Node, tmp_path / "friend", bootstrap=at) as friend,
            running(Node, tmp_path / "stranger", admitted=False, bootstrap=at) as stranger,
        ):
            assert friend.member.manifest == boot.member.manifest
            assert friend.member.host.is_connected(boot.member.peer_id)
            assert stranger.member.discovery.solo, "it continues alone, and does not exit"
            (target,) = stranger.member.discovery.snapshot()
            assert "list of peers" in target.last_error
            # Not at the first time, which may be chance; the second dial is a second later.
            await until(
                lambda: f"cannot join by {at[0]}: {AccessDenied.NOT_LISTED.message}" in caplog.text
            )
            own_id = stranger.member.peer_id
            assert f"{own_id} is not on the swarm's list of peers" in caplog.text
            assert f"--allow-peers {own_id}" in caplog.text
            assert sum(boot.member.host.refused_connections().values())
            # The list holds at every member, not only where it was made.
            stranger.member.discovery.add_peer(_addr(friend), "exchange")
            await until(lambda: sum(friend.member.host.refused_connections().values()))
            assert not friend.member.host.is_connected(stranger.member.peer_id)


async def test_the_list_of_an_earlier_swarm_does_not_keep_a_node_from_its_next(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "friend"
    async with contextlib.AsyncExitStack() as stack:
        start = stack.enter_async_context
        boot = await start(running(BootstrapPeer, tmp_path / "boot", allow_peers=(id_in(folder),)))
        friend = await start(running(BootstrapPeer, folder, bootstrap=(address_of(boot),)))
        assert friend.member.manifest.rules.allowed_peers
    async with (
        running(BootstrapPeer, tmp_path / "next") as other,
        running(BootstrapPeer, folder, bootstrap=(address_of(other),), new_run=True) as friend,
    ):
        await until(lambda: friend.member.manifest == other.member.manifest)
        assert friend.member.host.is_connected(other.member.peer_id)


def _addr(peer: Any) -> Any:
    transport = address_of(peer).rpartition("/p2p/")[0]
    return PeerAddresses(peer_id=peer.member.peer_id, addresses=(transport,))


@pytest.mark.parametrize(("mine", "theirs", "denial"), CASES, ids=str)
async def test_a_refused_node_gets_the_reason_at_once_and_from_the_doctor(
    mine: str, theirs: str, denial: AccessDenied, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("k", "o"):
        (tmp_path / name).write_text(format_swarm_key(name.encode() * 32))
    keys = {"none": "none", "k": str(tmp_path / "k"), "o": str(tmp_path / "o")}
    async with running(BootstrapPeer, tmp_path / "boot", swarm_key=keys[theirs]) as boot:
        at = address_of(boot)
        with caplog.at_level(logging.INFO):
            stranger = running(
                BootstrapPeer,
                tmp_path / "stranger",
                admitted=False,
                bootstrap=(at,),
                swarm_key=keys[mine],
            )
            async with stranger as peer:
                found = await CoreViews(peer.member).by_name()["doctor"]({})
        refused_lines = [line for line in caplog.messages if line.startswith("cannot join by ")]
        assert refused_lines == [f"cannot join by {at}: {denial.message}; {denial.remedy}"]
        assert caplog.messages.index(refused_lines[0]) <= 1, (
            "the first line, or that of the other end"
        )
        assert "--swarm-key FILE" in refused_lines[0]
        findings = {finding.check: finding for finding in found.findings}
        assert findings["bootstrap"].remedy == denial.remedy
        assert denial.message in findings["bootstrap"].message
        assert "give the address" not in findings["peers"].remedy


async def test_the_doctor_sees_that_the_key_file_has_changed(tmp_path: Path) -> None:
    key = trio.Path(tmp_path / "swarm.key")
    await key.write_text(format_swarm_key(b"k" * 32))
    async with running(BootstrapPeer, tmp_path / "boot", swarm_key=str(key)) as boot:
        doctor = CoreViews(boot.member).by_name()["doctor"]

        async def seen() -> Finding:
            (found,) = [one for one in (await doctor({})).findings if one.check == "swarm key"]
            return found

        assert (await seen()).state == "ok"
        await key.write_text(format_swarm_key(b"o" * 32))
        found = await seen()
        assert found.state == "warn"
        assert str(key) in found.message
        assert "restart it" in found.remedy
        await key.unlink()
        assert "cannot read the swarm key" in (await seen()).message


async def test_printed_commands_contain_the_key_option(tmp_path: Path) -> None:
    key = tmp_path / "swarm.key"
    await trio.Path(key).write_text(format_swarm_key(b"k" * 32))
    for kind, announce in (
        (BootstrapPeer, bootstrap_command._announce),
        (JudgePeer, judge_command._announce),
    ):
        settings = quiet_settings(tmp_path / kind.__name__, swarm_key=str(key))
        async with running(kind, settings.data_dir, swarm_key=str(key)) as peer:
            (line,) = [announced for announced in announce(peer, settings) if " it: " in announced]
            assert f" {address_of(peer)} --swarm-key {key}" in line


@pytest.mark.parametrize("command", ["node", "bootstrap"])
def test_a_key_that_cannot_be_used_is_one_line(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--data-dir", str(tmp_path / "d"), "--swarm-key", str(tmp_path / "absent")]
    assert main([command, *arguments]) == 2
    error = capfd.readouterr().err
    assert "cannot read the swarm key" in error
    assert error.count("\n") == 1
