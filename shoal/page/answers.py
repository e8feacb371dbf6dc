"""The page's answers: its own files, the state, curves, groups, health.

/                        the page          /api/state     everything, asked for each second
/static/…                its files         /api/history   /api/group
/metrics /healthz /readyz
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

from shoal.page.board import Board
from shoal.page.files import static_files
from shoal.page.peer import PagePeer
from shoal.view.health import Healthy
from shoal_base.visible import visible_name
from shoal_ipc.answers.form import to_json

_GROUP_ID: Final = re.compile(r"[0-9a-f]{1,128}")

Asked = dict[str, str]
"""The parameters of a request, the last of each name."""


@dataclass(frozen=True, slots=True)
class PageReply:
    """One answer."""

    status: int
    body: bytes
    media_type: str = "text/plain; charset=utf-8"


class Pages:
    """Answers by path, for any number of threads; it only reads."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._one_at_a_time = threading.Lock()
        """Groups are read from a peer's socket."""
        files = {
            f"/static/{name}": PageReply(200, one.content, one.media_type)
            for name, one in static_files().items()
        }
        self._files = files | {"/": files["/static/index.html"]}
        self._paths: dict[str, Callable[[Asked], PageReply]] = {
            "/api/state": self._state,
            "/api/history": self._history,
            "/api/group": self._group,
            "/metrics": self._metrics,
            "/healthz": lambda asked: self._probed(asked, PagePeer.health),
            "/readyz": lambda asked: self._probed(asked, PagePeer.readiness),
        }

    def answer(self, path: str, query: str) -> PageReply:
        """Return the answer to a request that may ask."""
        if (file := self._files.get(path)) is not None:
            return file
        make = self._paths.get(path)
        return _text("not here", 404) if make is None else make(dict(parse_qsl(query)))

    def _state(self, _asked: Asked) -> PageReply:
        self._board.note_request()
        return _json(self._board.state())

    def _history(self, asked: Asked) -> PageReply:
        peer = self._peer(asked)
        return _nothing("no such peer") if peer is None else _json(peer.curves())

    def _group(self, asked: Asked) -> PageReply:
        peer, group_id = self._peer(asked), asked.get("id", "")
        if peer is None or not _GROUP_ID.fullmatch(group_id):
            return _nothing("no such group")
        with self._one_at_a_time:
            found = peer.groups.one(group_id)
        return (
            _nothing("this group is not kept any more") if found is None else _json(to_json(found))
        )

    def _metrics(self, asked: Asked) -> PageReply:
        """Return one peer's: the named one, or the only one."""
        peers = self._named(asked)
        if len(peers) != 1:
            names = ", ".join(map(visible_name, self._board.peers))
            return _text(f"say which: /metrics?peer=NAME, one of {names}", 404)
        return PageReply(
            200, peers[0].metrics().encode(), "text/plain; version=0.0.4; charset=utf-8"
        )

    def _probed(self, asked: Asked, probe: Callable[[PagePeer], Healthy]) -> PageReply:
        """Return one line for each peer that is meant; 503 where one of them is not well."""
        found = {peer.name: probe(peer) for peer in self._named(asked)}
        lines = [f"{visible_name(name)}: {one.says}" for name, one in found.items()]
        ok = bool(found) and all(one.ok for one in found.values())
        return _text("\n".join(lines) or "no peer here", 200 if ok else 503)

    def _named(self, asked: Asked) -> list[PagePeer]:
        name, peers = asked.get("peer"), self._board.peers
        return [one for key, one in peers.items() if name in (None, key)]

    def _peer(self, asked: Asked) -> PagePeer | None:
        self._board.note_request()
        return self._board.peers.get(asked.get("peer", ""))


def _json(value: Any, status: int = 200) -> PageReply:
    """Answer in JSON of one line of ASCII."""
    body = json.dumps(value, separators=(",", ":")).encode()
    return PageReply(status, body, "application/json")


def _text(text: str, status: int) -> PageReply:
    return PageReply(status, f"{text}\n".encode())


def _nothing(says: str) -> PageReply:
    return _json({"error": says}, 404)
