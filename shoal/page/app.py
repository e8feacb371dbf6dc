"""What the page answers: its own files, the state, curves, groups, health.

/                        the page          /api/state     everything, asked for each second
/static/…                its files         /api/history   /api/groups   /api/group
/metrics /healthz /readyz
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shoal.page.board import Board
from shoal.page.files import StaticFile, static_files
from shoal.page.groups import Filter
from shoal.page.history import MAX_POINTS
from shoal.page.peer import PagePeer
from shoal.view.health import Healthy
from shoal_base.visible import visible_name
from shoal_ipc.answers.form import to_json

_GROUP_ID: Final = re.compile(r"[0-9a-f]{1,128}")
_POINTS: Final = re.compile(r"[0-9]{1,8}")


def make_app(board: Board) -> Starlette:
    """Return the application; it only reads."""
    files = static_files()
    pages = _Pages(board)
    routes = [
        Route("/", _file(files["index.html"])),
        *(Route(f"/static/{name}", _file(one)) for name, one in files.items()),
        Route("/api/state", pages.state),
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


def _file(one: StaticFile) -> Callable[[Request], Response]:
    def answer(_request: Request) -> Response:
        return Response(one.content, media_type=one.media_type)

    return answer


def _json(value: object, status: int = 200) -> Response:
    """Answer in JSON of one line of ASCII."""
    body = json.dumps(value, separators=(",", ":"))
    return Response(body, status, media_type="application/json")


def _text(text: str, status: int) -> Response:
    return Response(f"{text}\n" if text else "", status, media_type="text/plain")


def _nothing(says: str) -> Response:
    return _json({"error": says}, 404)
