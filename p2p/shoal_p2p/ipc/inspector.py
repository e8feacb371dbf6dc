"""Debug views and orders on the socket: all that a peer without a buffer has to say.

A view is a method of `ipc.views`, `net_views` or `node_views` that is marked `@view`. Its name
is a word of `shoal_ipc.answers.views`, which has the type of its answer. Its options are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from shoal_ipc import messages as m
from shoal_ipc.answers.form import to_json
from shoal_ipc.answers.peer import Swarm
from shoal_p2p.ipc.which_peer import WhichPeerError
from shoal_p2p.standing.guard import ControlError
from shoal_wire.manifest import Manifest
from shoal_wire.types import PeerId

View = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Makes a view's answer, a dataclass of `shoal_ipc.answers`, from its options."""
M = TypeVar("M", bound=Callable[..., Any])

_MARK = "_is_debug_view"

Control = Callable[[m.ControlAction, str], Awaitable[None]]
"""``await control(action, peer_id)``: raises ControlError."""


def view(method: M) -> M:
    """Mark a method as the debug view of its name."""
    setattr(method, _MARK, True)
    return method


def view_names(kind: type) -> frozenset[str]:
    """Return the names of the methods that are marked in a class or in one that it extends."""
    return frozenset(
        name
        for part in kind.__mro__
        for name, member in vars(part).items()
        if hasattr(member, _MARK)
    )


def views_of(part: object) -> dict[str, View]:
    """Return an object's marked methods by name."""
    return {name: getattr(part, name) for name in sorted(view_names(type(part)))}


def swarm_of(manifest: Manifest) -> Swarm:
    """Return a swarm as answers name it."""
    return Swarm(name=manifest.swarm_name, digest=manifest.digest.hex())


class InspectorService:
    """Answers debug CLIs only."""

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
            return await answer_view(self._views, body)
        if isinstance(body, m.Control):
            return await carry_out(self._control, body)
        return m.Failure(reason=f"this peer does not take {type(body).__name__}")

    async def goodbye(self, holder: str, role: m.Role) -> None:
        """Nothing was lent."""


async def carry_out(control: Control | None, body: m.Control) -> m.Body:
    """Follow one order about a peer."""
    if control is None:
        return m.Failure(reason="this peer takes no orders")
    try:
        await control(body.action, body.peer_id)
    except ControlError as error:
        return m.Failure(reason=str(error))
    return m.Done(count=1)


async def answer_view(views: Mapping[str, View], body: m.Inspect) -> m.Body:
    """Answer with one view."""
    answer = views.get(body.view)
    if answer is None:
        return m.Failure(reason=f"no view {body.view!r} here; there are {', '.join(views)}")
    try:
        options = json.loads(body.options_json or "{}")
        return m.InspectReply(json=json.dumps(to_json(await answer(options))))
    except WhichPeerError as error:
        return m.Failure(reason=str(error))
    except (ValueError, TypeError) as error:
        return m.Failure(reason=f"view {body.view!r}: {error}")
