"""The page's answers: its own files, the state, curves, groups, health.

/                        the page          /api/state     everything, asked for each second
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

Asked = dict[str, str]
"""The parameters of a request, the last of each name."""


class Pages:
    """Answers by path, for any number of threads; it only reads."""

    def __init__(self, board: Board) -> None:
        self._board = board
        # Read once: what is not among them cannot be asked for.
        files = {
            f"/static/{path.relative_to(_STATIC).as_posix()}": PageReply(
                200, path.read_bytes(), _TYPES[path.suffix]
            )
            for path in _STATIC.rglob("*")
            if path.suffix in _TYPES
        }
        self._files = files | {"/": files["/static/index.html"]}
        self._paths: dict[str, Callable[[Asked], PageReply]] = {
            "/api/state": self._state,
            "/api/history": self._history,
            "/api/group": self._group,
            "/metrics": self._metrics,
            "/healthz": lambda asked: self._probed(asked, at_work=False),
            "/readyz": lambda asked: self._probed(asked, at_work=True),
        }

    def answer(self, path: str, query: str) -> PageReply:
        """Return the answer to a request that may ask."""
        if (file := self._files.get(path)) is not None:
            return file
        make = self._paths.get(path)
        return in_words(404, "not here") if make is None else make(dict(parse_qsl(query)))

    def _state(self, _asked: Asked) -> PageReply:
        self._board.note_request()
        return _json(self._board.state())

    def _history(self, asked: Asked) -> PageReply:
        peer = self._peer(asked)
        return _nothing("no such peer") if peer is None else _json(peer.asking.curves())

    def _group(self, asked: Asked) -> PageReply:
        peer, group_id = self._peer(asked), asked.get("id", "")
        if peer is None or not _GROUP_ID.fullmatch(group_id):
            return _nothing("no such group")
        found = peer.group(group_id)
        return _nothing("this group is not kept any more") if found is None else _json(found)

    def _metrics(self, asked: Asked) -> PageReply:
        """Return one peer's: the named one, or the only one."""
        peers = self._named(asked)
        if len(peers) != 1:
            names = ", ".join(map(visible_name, self._board.peers))
            return in_words(404, f"say which: /metrics?peer=NAME, one of {names}")
        text = "" if (known := peers[0].known) is None else metrics_text(*known)
        return PageReply(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    def _probed(self, asked: Asked, *, at_work: bool) -> PageReply:
        """Return one line for each peer that is meant; 503 where one of them is not well."""
        found = [(peer.name, *peer.health(at_work=at_work)) for peer in self._named(asked)]
        lines = [f"{visible_name(name)}: {says}" for name, _, says in found]
        ok = bool(found) and all(is_well for _, is_well, _ in found)
        return in_words(200 if ok else 503, "\n".join(lines) or "no peer here")

    def _named(self, asked: Asked) -> list[LivePeer]:
        name, peers = asked.get("peer"), self._board.peers
        return [one for key, one in peers.items() if name in (None, key)]

    def _peer(self, asked: Asked) -> LivePeer | None:
        self._board.note_request()
        return self._board.peers.get(asked.get("peer", ""))


def _json(value: Any, status: int = 200) -> PageReply:
    """Answer in JSON of one line of ASCII."""
    body = json.dumps(value, separators=(",", ":")).encode()
    return PageReply(status, body, "application/json")


def _nothing(says: str) -> PageReply:
    return _json({"error": says}, 404)
