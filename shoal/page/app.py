"""What the page answers: its own files, the state, a stream of events, curves, groups, health.

/                        the page          /api/state     everything at once
/static/…                its files         /api/events    what changes, as it does
/metrics /healthz /readyz                  /api/history   /api/groups   /api/group
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from shoal.page.board import Board
from shoal.page.feed import FullError, Listener, encoded
from shoal.page.files import StaticFile, static_files
from shoal.page.groups import Filter
from shoal.page.history import MAX_POINTS
from shoal.page.peer import PagePeer
from shoal.view.health import Healthy
from shoal_base.visible import visible_name
from shoal_ipc.answers.form import to_json

_BEAT_S: Final = 15.0
"""Between signs of life on a stream that has nothing to say."""
_GROUP_ID: Final = re.compile(r"[0-9a-f]{1,128}")
_POINTS: Final = re.compile(r"[0-9]{1,8}")
_RETRY_MS: Final = 1000


def make_app(board: Board) -> Starlette:
    """Return the application; it only reads."""
    files = static_files()
    pages = _Pages(board)
    routes = [
        Route("/", _file(files["index.html"])),
        *(Route(f"/static/{name}", _file(one)) for name, one in files.items()),
        Route("/api/state", pages.state),
        Route("/api/events", _Events(board)),
        Route("/api/history", pages.history),
        Route("/api/groups", pages.groups),
        Route("/api/group", pages.group),
        Route("/metrics", pages.metrics),
        Route("/healthz", pages.healthy),
        Route("/readyz", pages.ready),
    ]
    return Starlette(routes=routes)


class _Pages:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._limiter = trio.CapacityLimiter(1)

    async def state(self, _request: Request) -> Response:
        self._board.note_request()
        return _json(self._board.state())

    async def history(self, request: Request) -> Response:
        peer = self._peer(request)
        if peer is None:
            return _nothing("no such peer")
        asked = request.query_params.get("points", "")
        points = min(int(asked), MAX_POINTS) if _POINTS.fullmatch(asked) else MAX_POINTS
        return _json(await peer.curves(points))

    async def groups(self, request: Request) -> Response:
        peer = self._peer(request)
        if peer is None:
            return _nothing("no such peer")
        given = {
            name: request.query_params.get(name, "")[:256]
            for name in ("family", "publisher", "reward", "whose")
        }
        return _json(await self._in_thread(lambda: peer.groups.list(Filter(**given))))

    async def group(self, request: Request) -> Response:
        peer = self._peer(request)
        group_id = request.query_params.get("id", "")
        if peer is None or not _GROUP_ID.fullmatch(group_id):
            return _nothing("no such group")
        found = await self._in_thread(lambda: peer.groups.one(group_id))
        return (
            _nothing("this group is not kept any more") if found is None else _json(to_json(found))
        )

    async def healthy(self, request: Request) -> Response:
        return self._probed(request, PagePeer.health)

    async def ready(self, request: Request) -> Response:
        return self._probed(request, PagePeer.readiness)

    async def metrics(self, request: Request) -> Response:
        """One peer's: the named one, or the only one."""
        peers = self._named(request)
        if len(peers) != 1:
            names = ", ".join(map(visible_name, self._board.peers))
            return _text(f"say which: /metrics?peer=NAME, one of {names}", 404)
        return Response(peers[0].metrics(), media_type="text/plain; version=0.0.4")

    def _probed(self, request: Request, probe: Callable[[PagePeer], Healthy]) -> Response:
        """One line for each peer that is meant; 503 where one of them is not well."""
        found = {peer.name: probe(peer) for peer in self._named(request)}
        lines = [visible_name(name) + ": " + one.says for name, one in found.items()]
        ok = bool(found) and all(one.ok for one in found.values())
        return _text("\n".join(lines) or "no peer here", 200 if ok else 503)

    def _named(self, request: Request) -> list[PagePeer]:
        name = request.query_params.get("peer")
        peers = self._board.peers
        return [one for key, one in peers.items() if name in (None, key)]

    def _peer(self, request: Request) -> PagePeer | None:
        self._board.note_request()
        return self._board.peers.get(request.query_params.get("peer", ""))

    async def _in_thread(self, call: Callable[[], object]) -> object:
        """Read from a peer's socket, for one browser at a time."""
        return await trio.to_thread.run_sync(call, limiter=self._limiter)


class _Events:
    """The stream of events, as an application of its own: it says when its reader is gone."""

    def __init__(self, board: Board) -> None:
        self._board = board

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        last_id = request.headers.get("last-event-id") or request.query_params.get("after", "")
        if request.method != "GET":
            await _text("", 200)(scope, receive, send)
            return
        try:
            listener = self._board.feed.listen(last_id)
        except FullError:
            full = _text("as many look at this page as may; close another", 503)
            await full(scope, receive, send)
            return
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_end_when_gone, receive, nursery.cancel_scope)
                await self._send_all(listener, send)
                nursery.cancel_scope.cancel()
        finally:
            self._board.feed.forget(listener)

    async def _send_all(self, listener: Listener, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        first = f"retry: {_RETRY_MS}\n\n".encode()
        if listener.is_new:
            state = self._board.state()
            first += f"id: {state['last_event']}\nevent: all\ndata: {encoded(state)}\n\n".encode()
        await _send_part(send, first + b"".join(event.encode() for event in listener.first))
        while True:
            part = b": still here\n\n"
            with trio.move_on_after(_BEAT_S):
                try:
                    part = (await listener.next()).encode()
                except trio.EndOfChannel:
                    break
            await _send_part(send, part)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_part(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _end_when_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _file(one: StaticFile) -> Callable[[Request], Response]:
    def answer(_request: Request) -> Response:
        return Response(one.content, media_type=one.media_type)

    return answer


def _json(value: object) -> Response:
    return Response(encoded(value), media_type="application/json")


def _text(text: str, status: int) -> Response:
    return Response(f"{text}\n" if text else "", status, media_type="text/plain")


def _nothing(says: str) -> Response:
    return Response(encoded({"error": says}), 404, media_type="application/json")
