"""A whole node, real libp2p and task worker included, in a thread: for tests of its debug side."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import trio

from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient
from shoal_p2p.live_node import LiveNode
from shoal_p2p.net.identity import load_or_create_identity
from shoal_p2p.node import Node, NodeEnd
from shoal_p2p.parts import REAL, Parts
from shoal_settings.schema import Settings

T = TypeVar("T")

LOOPBACK = "/ip4/127.0.0.1/tcp/0"
_PATIENCE_S = 60.0


def quiet_settings(data_dir: Path, **changes: Any) -> Settings:
    """Settings of a node that reaches nothing but loopback and trains nothing."""
    alone: dict[str, Any] = {"listen": (LOOPBACK,), "no_trainer": True, "mdns": False}
    return Settings(data_dir=data_dir, **{**alone, **changes})


class RunningNode:
    """A node in a thread, from `with` to `with`'s end."""

    def __init__(self, data_dir: Path, *, parts: Parts = REAL, **changes: Any) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        self.data_dir = data_dir
        self._settings = quiet_settings(data_dir, **changes)
        self._parts = parts
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._token: trio.lowlevel.TrioToken
        self._error: BaseException | None = None
        self._life: Node
        self.node: LiveNode
        self.end: NodeEnd | None = None

    def __enter__(self) -> RunningNode:
        """Start, and wait until it is ready."""
        self._thread.start()
        if not self._ready.wait(_PATIENCE_S) or self._error is not None:
            raise AssertionError("the node did not start") from self._error
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop in order."""
        self._token.run_sync_soon(self._life.stop)
        self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive()

    @property
    def address(self) -> str:
        """One full multiaddress."""
        return self.node.member.host.listen_addrs()[0]

    def client(self, role: m.Role = m.Role.TRAINER) -> NodeClient:
        """Return a blocking client of its socket."""
        return NodeClient(self.data_dir / SOCKET_NAME, role=role, timeout_seconds=20.0)

    def call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run an async function in the node's loop."""
        return trio.from_thread.run(function, *arguments, trio_token=self._token)

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            self._error = error
            self._ready.set()
            raise

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._life = Node(
            identity=load_or_create_identity(self.data_dir / "identity.key"),
            settings=self._settings,
            on_ready=self._on_ready,
            parts=self._parts,
        )
        self.end = await self._life.run()

    def _on_ready(self, live: LiveNode) -> None:
        self.node = live
        self._ready.set()
