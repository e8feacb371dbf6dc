"""Answers requests to the page: files, state, curves, groups, health, metrics.

/                        the page          /api/state     everything, requested each second
/static/…                its files         /api/history   /api/group
/metrics /healthz /readyz
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from shoal.page.board import Board
from shoal.page.guard import PageReply, in_words
from shoal.view.live import LivePeer
from shoal.view.metrics import metrics_text
from shoal_base.visible import visible_name

_GROUP_ID: Final = re.compile(r"[0-9a-f]{1,128}")
_STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain",
}

Parameters = dict[str, str]
"""Query parameters of a request, the last value of each name."""


class Pages:
    """Answers by path. Read-only; any thread may call it."""

    def __init__(self, board: Board) -> None:
        self._board = board
        # Read once: no other file can be requested.
        files = {
            f"/static/{path.relative_to(_STATIC).as_posix()}": PageReply(
                200, path.read_bytes(), _TYPES[path.suffix]
            )
            for path in _STATIC.rglob("*")
            if path.suffix in _TYPES
        }
        self._files = files | {"/": files["/static/index.html"]}
        self._paths: dict[str, Callable[[Parameters], PageReply]] = {
            "/api/state": self._state,
            "/api/history": self._history,
            "/api/group": self._group,
            "/metrics": self._metrics,
            "/healthz": lambda query: self._probe(query, at_work=False),
            "/readyz": lambda query: self._probe(query, at_work=True),
        }

    def answer(self, path: str, query: str) -> PageReply:
        """Return the answer to an authorized request."""
        if (file := self._files.get(path)) is not None:
            return file
        make = self._paths.get(path)
        return in_words(404, "not found") if make is None else make(dict(parse_qsl(query)))

    def _state(self, _query: Parameters) -> PageReply:
        self._board.note_request()
        return _json(self._board.state())

    def _history(self, query: Parameters) -> PageReply:
        peer = self._peer(query)
        return _not_found("no such peer") if peer is None else _json(peer.follower.curves())

    def _group(self, query: Parameters) -> PageReply:
        peer, group_id = self._peer(query), query.get("id", "")
        if peer is None or not _GROUP_ID.fullmatch(group_id):
            return _not_found("no such group")
        found = peer.group(group_id)
        return _not_found("this group is no longer stored") if found is None else _json(found)

    def _metrics(self, query: Parameters) -> PageReply:
        """Return the metrics of the named peer, or of the only one."""
        peers = self._named(query)
        if len(peers) != 1:
            names = ", ".join(map(visible_name, self._board.peers))
            return in_words(404, f"name a peer: /metrics?peer=NAME, one of {names}")
        text = "" if (known := peers[0].known) is None else metrics_text(*known)
        return PageReply(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    def _probe(self, query: Parameters, *, at_work: bool) -> PageReply:
        """Return one line for each requested peer; 503 if one of them is unhealthy."""
        found = [(peer.name, *peer.health(at_work=at_work)) for peer in self._named(query)]
        lines = [f"{visible_name(name)}: {message}" for name, _, message in found]
        ok = bool(found) and all(is_healthy for _, is_healthy, _ in found)
        return in_words(200 if ok else 503, "\n".join(lines) or "no peer")

    def _named(self, query: Parameters) -> list[LivePeer]:
        name, peers = query.get("peer"), self._board.peers
        return [one for key, one in peers.items() if name in (None, key)]

    def _peer(self, query: Parameters) -> LivePeer | None:
        self._board.note_request()
        return self._board.peers.get(query.get("peer", ""))


def _json(value: Any, status: int = 200) -> PageReply:
    """Return an answer of one line of JSON in ASCII."""
    body = json.dumps(value, separators=(",", ":")).encode()
    return PageReply(status, body, "application/json")


def _not_found(message: str) -> PageReply:
    return _json({"error": message}, 404)
