"""A whole node in a thread, with real libp2p and task worker, for tests of its debug views."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient
from shoal_p2p.live_node import NodeComponents
from shoal_p2p.node import Node
from shoal_p2p.parts import REAL, Dependencies
from tests.support.peers import quiet_settings, run_peer


class RunningNode:
    """A node in a thread, for the duration of its `with` block."""

    def __init__(self, data_dir: Path, *, parts: Dependencies = REAL, **changes: Any) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        self.data_dir = data_dir
        self._settings = quiet_settings(data_dir, **changes)
        self._parts = parts
        self._life = ExitStack()
        self._portal: BlockingPortal
        self.node: NodeComponents

    def __enter__(self) -> RunningNode:
        """Start, and wait until it is ready."""
        with ExitStack() as life:
            self._portal = life.enter_context(start_blocking_portal("trio"))
            peer = run_peer(Node, self._settings, parts=self._parts)
            self.node = life.enter_context(self._portal.wrap_async_context_manager(peer))
            self._life = life.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop in order."""
        self._life.close()

    @property
    def address(self) -> str:
        """One full multiaddress."""
        return self.node.member.host.listen_addrs()[0]

    def client(self, role: m.Role = m.Role.TRAINER) -> NodeClient:
        """Return a blocking client of its socket."""
        return NodeClient(self.data_dir / SOCKET_NAME, role=role, timeout_seconds=20.0)

    def view(self, name: str, **options: Any) -> Any:
        """Return a debug view."""
        with closing(self.client(m.Role.INSPECTOR)) as client:
            return client.inspect(name, **options)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function in the node's loop."""
        return self._portal.call(function, *arguments)
