"""Whole peers in the test's own loop: nodes, bootstrap peers, judges; only the worker is a double.

    async with open_peer(BootstrapPeer, tmp_path / "meeting") as meeting:
        async with open_peer(Node, tmp_path / "one", bootstrap=(address_of(meeting),)) as one:
            …

They yield the argument of `on_ready`: a `NodeComponents`, a `MeetingPoint`, a `SittingJudge`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from shoal_p2p.net.identity import Identity, load_or_create_identity
from shoal_p2p.parts import Dependencies, Limits
from shoal_settings.schema import Settings
from tests.support import factories as make
from tests.support.doubles.worker import InstantWorker

LOOPBACK = "/ip4/127.0.0.1/tcp/0"
PATIENCE_S = 60.0
_lives: dict[int, Any] = {}

SHARED = Dependencies(worker=lambda _families, _patience_s: make.SharedWorker())
"""The session's task worker in place of each peer's own, which takes seconds to start."""
INSTANT = Dependencies(worker=lambda _families, _patience_s: InstantWorker())
"""A task worker that answers at once, with `factories.fake_question` of each task."""


def quiet_settings(data_dir: Path, **changes: Any) -> Settings:
    """Return the settings of a node that uses only loopback and does not train."""
    alone: dict[str, Any] = {"listen": (LOOPBACK,), "role": "observe", "mdns": False}
    return Settings(data_dir=data_dir, **{**alone, **changes})


@asynccontextmanager
async def open_peer(
    kind: Any,
    data_dir: Path,
    *,
    parts: Dependencies = SHARED,
    tuning: Limits | None = None,
    **changes: Any,
) -> AsyncIterator[Any]:
    """Run a peer of `quiet_settings` with `changes`; it ends in order."""
    await trio.Path(data_dir).mkdir(exist_ok=True, parents=True)
    async with run_peer(
        kind, quiet_settings(data_dir, **changes), parts=parts, tuning=tuning
    ) as live:
        yield live


@asynccontextmanager
async def run_peer(
    kind: Any,
    settings: Settings,
    *,
    identity: Identity | None = None,
    parts: Dependencies = SHARED,
    tuning: Limits | None = None,
    kill: bool = False,
) -> AsyncIterator[Any]:
    """Run a peer; it ends in order, or as suddenly as by a kill."""
    ready, ended = trio.Event(), trio.Event()
    found: list[Any] = []
    peer = kind(
        identity=identity or load_or_create_identity(settings.data_dir / "identity.key"),
        settings=settings,
        on_ready=lambda live: (found.append(live), ready.set()),  # type: ignore[func-returns-value]
        parts=parts,
        tuning=tuning,
    )

    async def run() -> None:
        await peer.run()
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        with trio.fail_after(PATIENCE_S):
            await ready.wait()
        _lives[id(found[0])] = peer
        yield found[0]
        del _lives[id(found[0])]
        if kill:
            nursery.cancel_scope.cancel()
            return
        peer.stop()
        with trio.fail_after(PATIENCE_S):
            await ended.wait()


def address_of(live: Any) -> str:
    """Return one full multiaddress of a running peer."""
    return str(live.member.host.listen_addrs()[0])


def stop(live: Any) -> None:
    """Ask a running peer to end, before its context does."""
    _lives[id(live)].stop()
