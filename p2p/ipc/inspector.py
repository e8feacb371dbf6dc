"""Answers debug CLIs on the socket: all that a peer without a buffer has to say."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping

from p2p.ipc.view_types import View
from p2p.standing.guard import ControlError
from shoal_ipc import messages as m
from shoal_wire.manifest import Manifest
from shoal_wire.types import PeerId

Control = Callable[[m.ControlAction, str], Awaitable[None]]
"""``await control(action, peer_id)``: raises ControlError."""


class InspectorService:
    """Answers debug CLIs only: all that a peer without a buffer has to say."""

    def __init__(
        self,
        *,
        me: PeerId,
        manifest: Manifest,
        views: Mapping[str, View],
        control: Control | None = None,
    ) -> None:
        self._me = me
        self._manifest = manifest
        self._views = views
        self._control = control

    async def hello(self, holder: str, hello: m.Hello) -> m.HelloReply | m.Failure:
        """Greet."""
        return m.HelloReply(
            ipc_version=m.IPC_VERSION, peer_id=self._me, manifest=self._manifest.raw
        )

    async def handle(self, holder: str, role: m.Role, body: m.Body) -> m.Body:
        """Answer one request."""
        if isinstance(body, m.Inspect):
            return await inspect(self._views, body)
        if isinstance(body, m.Control):
            return await follow(self._control, body)
        return m.Failure(reason=f"this peer does not take {type(body).__name__}")

    async def goodbye(self, holder: str, role: m.Role) -> None:
        """Nothing was lent."""


async def follow(control: Control | None, body: m.Control) -> m.Body:
    """Follow one order about a peer."""
    if control is None:
        return m.Failure(reason="this peer takes no orders")
    try:
        await control(body.action, body.peer_id)
    except ControlError as error:
        return m.Failure(reason=str(error))
    return m.Done(count=1)


async def inspect(views: Mapping[str, View], body: m.Inspect) -> m.Body:
    """Answer with one view."""
    view = views.get(body.view)
    if view is None:
        return m.Failure(reason=f"no view {body.view!r} here; there are {', '.join(views)}")
    try:
        options = json.loads(body.options_json or "{}")
        return m.InspectReply(json=json.dumps(await view(options)))
    except (ValueError, TypeError) as error:
        return m.Failure(reason=f"view {body.view!r}: {error}")
