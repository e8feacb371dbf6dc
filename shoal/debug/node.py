"""The node that is looked into, behind its socket."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.layout import local_time
from shoal.nearby import answers_at
from shoal.view.asking import left_behind
from shoal_ipc import messages as m
from shoal_ipc.answers.form import to_json
from shoal_ipc.client import SOCKET_NAME, NodeClient, NodeRefused, NodeUnavailable
from shoal_p2p.data_dir import LAST_STATUS_FILE
from shoal_settings.called import called
from shoal_settings.exits import EXIT_NO_NODE, fail

Answer = dict[str, Any]
"""A node's answer: JSON values."""
Tell = Callable[[str], None]
"""Tells people of something on the way; programs hear answers only."""

_TIMEOUT_SECONDS = 10.0  # a guess: doctor asks the network first
_MAX_HINTS = 16  # more folders are not read by a person


class RunningNode:
    """The node in a folder; connected to when it is first asked something."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._client = NodeClient(
            data_dir / SOCKET_NAME, role=m.Role.INSPECTOR, timeout_seconds=_TIMEOUT_SECONDS
        )

    def ask(self, view: str, **options: Any) -> Answer:
        """Return the node's answer for a view.

        Raises:
            NodeRefused, NodeUnavailable: it does not answer.
            UsageExit: there is none.
        """
        self._connect(view)
        return self._client.inspect(view, **options)

    @property
    def data_dir(self) -> Path:
        """Its folder."""
        return self._data_dir

    def ask_if_there(self, view: str) -> Answer | None:
        """Return the answer for a view without options; None where nobody answers that."""
        try:
            return self.ask(view) if self._client.ensure() else None
        except (NodeRefused, NodeUnavailable):
            return None

    def order(self, action: m.ControlAction, peer_id: str) -> None:
        """Give an order about a peer; raises as `ask`."""
        self._connect()
        self._client.call(m.Control(action=action, peer_id=peer_id), m.Done)

    def left(self, view: str, tell: Tell) -> Answer:
        """Return the status, or the ledger, that a node left here when it ended.

        Raises:
            UsageExit: none has.
        """
        found = left_behind(self._data_dir)
        if view == "status" and found.status is not None:
            return found.status
        if view == "ledger" and found.ledger is not None:
            if found.ledger.at_ms:
                when = local_time(found.ledger.at_ms)
                tell(f"as it was when the node trained last, {when}")
            answer: Answer = to_json(found.ledger)
            return answer
        what = "a status" if view == "status" else "a ledger that can be read"
        message = f"no node has left {what} in {self._data_dir}; name its --data-dir"
        raise fail("debug", message, EXIT_NO_NODE)

    def _connect(self, view: str = "status") -> None:
        if self._client.ensure():
            return
        running = _running_nodes(self._data_dir)
        hint = "; start one with `shoal node`, or name its --data-dir"
        if running:
            hint = f"; running: {', '.join(map(str, running))} (--data-dir)"
        if not running and _is_there(self._data_dir / LAST_STATUS_FILE):
            folder = shlex.quote(str(self._data_dir))
            word = "ledger" if view == "ledger" else "status"
            hint = f"; how it ended: {called()} debug {word} --last --data-dir {folder}"
        raise fail("debug", f"no node is running in {self._data_dir}{hint}", EXIT_NO_NODE)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long
        return False


def _running_nodes(data_dir: Path) -> list[Path]:
    """Return nearby data directories in which somebody answers on the socket."""
    root = data_dir.parent
    found = sorted([*root.glob(f"*/{SOCKET_NAME}"), *root.glob(f"*/*/{SOCKET_NAME}")])
    return [path.parent for path in found[:_MAX_HINTS] if answers_at(path)]
