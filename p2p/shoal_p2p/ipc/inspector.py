"""Debug views and commands on the socket: all requests that a peer without a buffer answers.

A view is a method of `ipc.views`, `net_views` or `node_views` whose name is a word of
`shoal_ipc.answers.views`, which has the type of its answer. Its options are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from shoal_ipc import messages as m
from shoal_ipc.answers.form import to_json
from shoal_ipc.answers.views import VIEWS
from shoal_p2p.bundles.orders import OrderError
from shoal_p2p.ipc.which_peer import WhichPeerError
from shoal_p2p.reputation.peer_manager import ControlError
from shoal_wire.manifest import Manifest
from shoal_wire.types import PeerId

View = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Makes a view's answer, a dataclass of `shoal_ipc.answers`, from its options."""

Control = Callable[[m.ControlAction, str], Awaitable[None]]
"""``await control(action, peer_id)``: raises ControlError."""

TaskOrder = Callable[[m.TaskOrder], Awaitable[None]]
"""``await order(body)``: raises OrderError."""


def views_of(part: object) -> dict[str, View]:
    """Return an object's methods that are views, by name."""
    return {name: getattr(part, name) for name in sorted(VIEWS) if hasattr(part, name)}


class InspectorService:
    """The service for the programs on a peer's socket; this one answers debug CLIs only."""

    def __init__(
        self,
        *,
        me: PeerId,
        manifest: Manifest,
        views: Mapping[str, View],
        control: Control | None = None,
        order: TaskOrder | None = None,
    ) -> None:
        self._me = me
        self._manifest = manifest
        self._views = views
        self._control = control
        self._order = order

    async def hello(self, holder: str, hello: m.Hello) -> m.HelloReply | m.Failure:
        """Answer a hello; `holder` names the connection. A failure ends it."""
        return m.HelloReply(
            ipc_version=m.IPC_VERSION, peer_id=self._me, manifest=self._manifest.raw
        )

    async def handle(self, holder: str, role: m.Role, body: m.Body) -> m.Body:
        """Answer one request; a refused one with a `Failure`."""
        if isinstance(body, m.Inspect):
            return await self._view(body)
        if isinstance(body, m.Control):
            return await self._carry_out(body)
        if isinstance(body, m.TaskOrder) and self._order is not None:
            return await self._carry_out_order(body, self._order)
        return m.Failure(reason=f"this peer does not answer {type(body).__name__}")

    async def goodbye(self, holder: str, role: m.Role) -> None:
        """The connection has ended; it had no leases."""

    async def _carry_out(self, body: m.Control) -> m.Body:
        if self._control is None:
            return m.Failure(reason="this peer accepts no commands")
        try:
            await self._control(body.action, body.peer_id)
        except ControlError as error:
            return m.Failure(reason=str(error))
        return m.Ok(count=1)

    @staticmethod
    async def _carry_out_order(body: m.TaskOrder, order: TaskOrder) -> m.Body:
        try:
            await order(body)
        except OrderError as error:
            return m.Failure(reason=str(error))
        return m.Ok(count=1)

    async def _view(self, body: m.Inspect) -> m.Body:
        answer = self._views.get(body.view)
        if answer is None:
            names = ", ".join(self._views)
            return m.Failure(reason=f"no view {body.view!r} here; the views are {names}")
        try:
            options = json.loads(body.options_json or "{}")
            return m.InspectReply(json=json.dumps(to_json(await answer(options))))
        except WhichPeerError as error:
            return m.Failure(reason=str(error))
        except (ValueError, TypeError) as error:
            return m.Failure(reason=f"view {body.view!r}: {error}")
