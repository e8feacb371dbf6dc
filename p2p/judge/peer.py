"""The judge as a peer: `p2p`'s core without buffer, outbox, trainer or subscriptions.

core (host, discovery, manifest) ─▶ records ─▶ task worker ─▶ `/shoal/judge/1` ─▶ socket ─▶ ready
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from p2p.intake.ledger import Equivocation
from p2p.ipc.inspector import InspectorService, View
from p2p.ipc.server import SOCKET_NAME, IpcServer
from p2p.ipc.views import CoreViews
from p2p.judge.desk import DeskLimits
from p2p.judge.judge import JUDGE_LIMITS, WORKER_PATIENCE_SECONDS, Judge
from p2p.judge.store import JUDGE_FILE, JudgeStore
from p2p.net.identity import Identity
from p2p.peer import PeerCore, wall_ms
from shoal_settings.schema import Settings
from shoal_tasks.swarm import specs_of
from shoal_wire.judge import JUDGE_PROTOCOL, MAX_JUDGE_REQUEST_BYTES
from shoal_wire.types import SignedBatch


class JudgePeer:
    """One judge, from start to end."""

    def __init__(
        self,
        *,
        identity: Identity,
        settings: Settings,
        on_ready: Callable[[JudgePeer], None] = lambda _peer: None,
        limits: DeskLimits | None = None,
    ) -> None:
        self._identity = identity
        # It hears no gossip: the task worker is for answers alone.
        self._settings = settings.model_copy(update={"subscribe_shards": "0"})
        self._on_ready = on_ready
        self._limits = limits
        self._stop = trio.Event()
        self._manifest_changed = False
        self.core = PeerCore(identity=identity, settings=self._settings, data_dir=settings.data_dir)
        self.judge: Judge

    def stop(self) -> None:
        """Ask the judge to end."""
        self._stop.set()

    async def run(self) -> bool:
        """Run until told to stop; True asks for a new start with a newly adopted manifest.

        Raises:
            ListenError, ManifestError, SocketPathError, JudgeStoreError: it cannot start.
        """
        core = self.core
        async with trio.open_nursery() as nursery:
            found = await core.connect(nursery)
            store = JudgeStore(self._settings.data_dir / JUDGE_FILE, judge=core.peer_id)
            try:
                await core.join(
                    nursery,
                    keep=_nothing,
                    accuse=_no_evidence,
                    worker_patience_seconds=WORKER_PATIENCE_SECONDS,
                )
                self._serve(store)
                await nursery.start(self._socket().run)

                async def watch() -> None:
                    await core.source.watch(found)
                    self._manifest_changed = True
                    self._stop.set()

                nursery.start_soon(watch)
                self._on_ready(self)
                await self._stop.wait()
                await core.host.close()
            finally:
                store.close()
            nursery.cancel_scope.cancel()
        return self._manifest_changed

    def _serve(self, store: JudgeStore) -> None:
        core = self.core
        self.judge = Judge(
            identity=self._identity,
            manifest=core.manifest,
            families=specs_of(core.manifest, self._settings.task_file),
            worker=core.worker,
            store=store,
            wall_ms=wall_ms,
            limits=self._limits,
        )
        core.host.set_request_handler(
            JUDGE_PROTOCOL,
            self.judge.answer,
            max_request_bytes=MAX_JUDGE_REQUEST_BYTES,
            limits=JUDGE_LIMITS,
        )

    def _socket(self) -> IpcServer:
        service = InspectorService(
            me=self.core.peer_id,
            manifest=self.core.manifest,
            views=self._views(),
            control=self.core.guard.control,
        )
        return IpcServer(self._settings.data_dir / SOCKET_NAME, service)

    def _views(self) -> Mapping[str, View]:
        views = CoreViews(self.core).by_name()
        core_status = views["status"]

        async def status(options: Mapping[str, object]) -> dict[str, object]:
            return {
                **await core_status(options),
                "role": "judge",
                "records": self.judge.num_records,
                "judged": self.judge.judged,
                "open_challenges": self.judge.desk.num_open,
                "refused": dict(self.judge.refused),
            }

        return {**views, "status": status}


async def _nothing(_signed: SignedBatch) -> None:
    """It subscribes to nothing, so no batch comes."""


async def _no_evidence(_pair: Equivocation, _envelope: bytes) -> None:
    """Likewise."""
