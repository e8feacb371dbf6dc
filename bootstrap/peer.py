"""The bootstrap peer: `p2p`'s core without buffer, outbox or trainer.

It validates before it forwards, like any peer, and forgets what it has forwarded. Nodes that
have met stay together without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from p2p.intake.ledger import Equivocation
from p2p.ipc.inspector import InspectorService, View
from p2p.ipc.server import SOCKET_NAME, IpcServer
from p2p.ipc.views import CoreViews
from p2p.net.identity import Identity
from p2p.peer import PeerCore
from shoal_settings.schema import Settings
from shoal_wire.types import SignedBatch


class BootstrapPeer:
    """One bootstrap peer, from start to end."""

    def __init__(
        self,
        *,
        identity: Identity,
        settings: Settings,
        on_ready: Callable[[BootstrapPeer], None] = lambda _peer: None,
    ) -> None:
        self._settings = settings
        self._on_ready = on_ready
        self._stop = trio.Event()
        self._manifest_changed = False
        self.core = PeerCore(identity=identity, settings=settings, data_dir=settings.data_dir)
        self.groups_relayed = 0

    def stop(self) -> None:
        """Ask the peer to end."""
        self._stop.set()

    async def run(self) -> bool:
        """Run until told to stop; True asks for a new start with a newly adopted manifest.

        Raises:
            ListenError, ManifestError, SocketPathError: it cannot start.
        """
        async with trio.open_nursery() as nursery:
            found = await self.core.connect(nursery)
            await self.core.join(nursery, keep=self._forget, accuse=_ignore)
            service = InspectorService(
                me=self.core.peer_id,
                manifest=self.core.manifest,
                views=self._views(),
                control=self.core.guard.control,
            )
            await nursery.start(IpcServer(self._settings.data_dir / SOCKET_NAME, service).run)

            async def watch() -> None:
                await self.core.source.watch(found)
                self._manifest_changed = True
                self._stop.set()

            nursery.start_soon(watch)
            self._on_ready(self)
            await self._stop.wait()
            await self.core.host.close()
            nursery.cancel_scope.cancel()
        return self._manifest_changed

    def _views(self) -> Mapping[str, View]:
        views = CoreViews(self.core).by_name()
        core_status = views["status"]

        async def status(options: Mapping[str, object]) -> dict[str, object]:
            shown = await core_status(options)
            return {**shown, "role": "bootstrap", "groups_relayed": self.groups_relayed}

        return {**views, "status": status}

    async def _forget(self, signed: SignedBatch) -> None:
        self.groups_relayed += len(signed.batch.groups)


async def _ignore(_pair: Equivocation, _envelope: bytes) -> None:
    """A relay keeps no evidence: those with a buffer do."""
