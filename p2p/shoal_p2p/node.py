"""Runs a node: from a data directory to the end of its rounds.

    store ─▶ trainer child (loading) ─▶ listening peer ─▶ live node ─▶ socket ─▶ … ─▶ shut down

One root nursery. The end of the trainer's rounds, a signal, or another manifest ends the node;
everything else it survives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import trio

from shoal_base.waits import SHORT_DEADLINE_S
from shoal_ipc.client import SOCKET_NAME
from shoal_p2p.ipc.inspector import InspectorService
from shoal_p2p.ipc.server import IpcServer
from shoal_p2p.live_node import NodeComponents
from shoal_p2p.net.identity import Identity
from shoal_p2p.parts import REAL, Dependencies, Limits, Running
from shoal_p2p.peer import PeerNode
from shoal_p2p.peers.manifest_source import FoundManifest
from shoal_p2p.state_file import STATE_FILE
from shoal_p2p.trainer_child import ChildState, TrainerChild
from shoal_settings.loader import to_flags
from shoal_settings.schema import Settings
from shoal_wire.types import PeerId

log = logging.getLogger(__name__)


class NodeEnd(StrEnum):
    """Why a node has ended."""

    FINISHED = "finished"
    """The trainer completed its rounds."""
    STOPPED = "stopped"
    """It was asked to stop."""
    MISCONFIGURED = "misconfigured"
    """The trainer refused its settings."""
    MANIFEST_CHANGED = "manifest_changed"
    """A bootstrap turned out to be of another swarm; start again with its manifest."""


class Node:
    """One node, from start to end. Make a new one to start again."""

    def __init__(
        self,
        *,
        identity: Identity,
        settings: Settings,
        on_ready: Callable[[NodeComponents], None] = lambda _node: None,
        parts: Dependencies = REAL,
        tuning: Limits | None = None,
        socket: Callable[[Path, InspectorService], Running] = IpcServer,
    ) -> None:
        """`on_ready` is called once it has joined and serves ``socket(path, service)``."""
        self._identity = identity
        self._settings = settings
        self._on_ready = on_ready
        self._parts = parts
        self._tuning = tuning
        self._socket = socket
        self._end = NodeEnd.STOPPED
        self._stop = trio.Event()
        self._joining = trio.CancelScope()
        """Cancelled once the swarm is known, which may take until a peer is found."""
        self._child = (
            None if settings.role == "observe" else TrainerChild(to_flags(settings, "trainer"))
        )
        self._trainer_scope = trio.CancelScope()
        self._trainer_ended = trio.Event()
        self.last_status: dict[str, Any] = {}
        """The status at the end, once the trainer has stopped; empty before."""

    def stop(self) -> None:
        """Ask the node to end; it closes in order and returns."""
        if not self._stop.is_set():
            log.info("stopping: the trainer writes its last checkpoint, queued batches are sent")
        self._stop.set()
        self._joining.cancel()

    async def run(self) -> NodeEnd:
        """Run until the end; return why.

        Raises:
            ListenError, ManifestError, StoreError, SocketPathError: it cannot start.
        """
        settings, wall_ms = self._settings, self._parts.wall_ms
        peer = PeerNode(
            identity=self._identity,
            settings=settings,
            parts=self._parts,
            tuning=self._tuning,
            fetches_tasks=True,
            state_file=STATE_FILE,
        )
        store = self._parts.store(
            settings.data_dir / STATE_FILE,
            peer_id=self._identity.peer_id,
            wall_ms=wall_ms,
            # If the database is lost and the key is not, numbers must not repeat.
            first_sequence=wall_ms(),
            in_thread=self._parts.in_thread,
            refused=peer.disk.refused,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            if self._child is not None:
                # First of all: it takes seconds to import torch, and waits for the socket.
                nursery.start_soon(self._run_trainer, self._child)
            found = await self._join(peer, nursery)
            if found is None:
                nursery.cancel_scope.cancel()
                return self._end
            live = NodeComponents(peer, found.manifest, store=store, child=self._child)
            await live.start(nursery)
            await nursery.start(self._socket(settings.data_dir / SOCKET_NAME, live.service).run)
            nursery.start_soon(self._watch_manifest, peer, found)
            nursery.start_soon(say_who_is_there, peer, self._is_training)
            self._on_ready(live)
            await self._stop.wait()
            await self._shut_down(live)
            nursery.cancel_scope.cancel()
        return self._end

    async def _join(self, peer: PeerNode, nursery: trio.Nursery) -> FoundManifest | None:
        """Listen and determine the swarm; None if asked to stop before that."""
        with self._joining:
            return await peer.listen(nursery)
        return None

    async def _run_trainer(self, child: TrainerChild) -> None:
        """Run the trainer until it ends for good, which may end the node, or is stopped."""
        try:
            with self._trainer_scope:
                await child.run()
            if child.state is ChildState.MISCONFIGURED:
                self._end = NodeEnd.MISCONFIGURED
                self._stop.set()
            elif child.state is ChildState.FINISHED:
                if self._settings.keep_running:
                    log.info("all rounds are done; the node stays until it is stopped")
                    return
                self._end = NodeEnd.FINISHED
                self._stop.set()
        finally:
            self._trainer_ended.set()

    def _is_training(self) -> bool:
        trains = self._settings.role == "train"
        return trains and not self._trainer_ended.is_set()

    async def _shut_down(self, live: NodeComponents) -> None:
        """The trainer writes its last checkpoint; queued batches are sent; then the host closes."""
        if self._child is not None:
            self._trainer_scope.cancel()
            await self._trainer_ended.wait()
        # Read while peers are still connected: users compare these numbers.
        self.last_status = await live.status()
        with trio.move_on_after(SHORT_DEADLINE_S):
            if live.peer.host.connected_peers():
                await live.hand_over()
        await live.close()

    async def _watch_manifest(self, peer: PeerNode, found: FoundManifest) -> None:
        manifest = await peer.source.watch(found)
        log.warning(
            "the bootstrap's swarm is %s (%s): joining it", manifest.swarm_name, manifest.short_name
        )
        self._end = NodeEnd.MANIFEST_CHANGED
        self._stop.set()


async def say_who_is_there(peer: PeerNode, is_training: Callable[[], bool]) -> None:
    """Log when no peer is connected, and when that ends."""
    changed = trio.Event()

    def note(_peer_id: PeerId) -> None:
        changed.set()

    peer.host.add_peer_callbacks(connected=note, disconnected=note)
    alone: bool | None = None
    await trio.sleep(1.0)
    while True:
        changed = trio.Event()
        solo = peer.discovery.solo
        if solo and alone is not True:
            when = "yet" if alone is None else "any more"
            what = "training alone, and " if is_training() else ""
            log.info("no peers %s: %slooking for peers", when, what)
        elif not solo and alone is not False:
            count = len(peer.host.connected_peers())
            log.info("connected to %d peer%s", count, "" if count == 1 else "s")
        alone = solo
        await changed.wait()
        await trio.sleep(1.0)
