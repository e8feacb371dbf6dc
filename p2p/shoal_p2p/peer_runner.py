"""Runs a peer with a role and without a trainer: the bootstrap, the judge.

listening peer ─▶ its role, with a `SwarmNode` ─▶ socket ─▶ … ─▶ asked to stop ─▶ host closed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import trio

from shoal_ipc.client import SOCKET_NAME
from shoal_p2p.ipc.inspector import InspectorService, View
from shoal_p2p.ipc.server import IpcServer
from shoal_p2p.net.identity import Identity
from shoal_p2p.parts import REAL, Dependencies, Limits, Running
from shoal_p2p.peer import PeerNode
from shoal_p2p.state_file import PEER_FILE
from shoal_p2p.store.schema import check_file
from shoal_p2p.swarm_node import SwarmNode
from shoal_settings.schema import Settings
from shoal_wire.manifest import Manifest


class PeerRole(Protocol):
    """A peer's role, created once the swarm is known."""

    @property
    def member(self) -> SwarmNode:
        """The peer as a member of the swarm."""

    async def start(self, nursery: trio.Nursery) -> None:
        """Join the swarm, and run until `nursery` is cancelled."""

    def views(self) -> Mapping[str, View]:
        """Return the debug views by name."""

    def close(self) -> None:
        """Release open resources, at the end or after `start` failed."""


R = TypeVar("R", bound=PeerRole)


class PeerRunner(Generic[R]):
    """One peer, from start to end. Make a new one to start again."""

    def __init__(
        self,
        *,
        identity: Identity,
        settings: Settings,
        role: Callable[[PeerNode, Manifest], R],
        on_ready: Callable[[R], None] = lambda _role: None,
        parts: Dependencies = REAL,
        tuning: Limits | None = None,
        socket: Callable[[Path, InspectorService], Running] = IpcServer,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._role = role
        self._on_ready = on_ready
        self._parts = parts
        self._tuning = tuning
        self._socket = socket
        self._stop = trio.Event()

    def stop(self) -> None:
        """Ask the peer to end."""
        self._stop.set()

    async def run(self) -> bool:
        """Run until asked to stop; True requests a restart with a newly adopted manifest.

        Raises:
            ListenError, ManifestError, SocketPathError, StoreError: it cannot start.
            What the role raises.
        """
        await self._parts.in_thread(check_file, self._settings.data_dir / PEER_FILE)
        peer = PeerNode(
            identity=self._identity, settings=self._settings, parts=self._parts, tuning=self._tuning
        )
        manifest_changed = False
        async with trio.open_nursery() as nursery:
            found = await peer.listen(nursery)

            async def watch() -> None:
                nonlocal manifest_changed
                await peer.source.watch(found)
                manifest_changed = True
                self._stop.set()

            role = self._role(peer, found.manifest)
            try:
                await role.start(nursery)
                await nursery.start(self._serve(role).run)
                nursery.start_soon(watch)
                self._on_ready(role)
                await self._stop.wait()
                await peer.host.close()
            finally:
                role.close()
            nursery.cancel_scope.cancel()
        return manifest_changed

    def _serve(self, role: R) -> Running:
        service = InspectorService(
            me=role.member.peer_id,
            manifest=role.member.manifest,
            views=role.views(),
            control=role.member.guard.control,
        )
        return self._socket(self._settings.data_dir / SOCKET_NAME, service)
