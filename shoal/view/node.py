"""A node that commands inspect through its socket."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from shoal.layout import local_time
from shoal.nearby import answering
from shoal.view.folder_follower import inspector, left_behind
from shoal_ipc import messages as m
from shoal_ipc.answers.form import to_json
from shoal_ipc.client import SOCKET_NAME, NodeRefused, NodeUnavailable
from shoal_p2p.data_dir import why_silent, why_suspended
from shoal_p2p.state_file import LAST_STATUS, STATE_FILE, state_written_at
from shoal_settings.called import called
from shoal_settings.exits import EXIT_NO_NODE, fail

Answer = dict[str, Any]
"""A node's answer: JSON values."""
Tell = Callable[[str], None]
"""Prints progress for people; nothing is printed with --json."""


COMMANDS: Final = ("status", "doctor")
"""Views that are commands of their own."""


def words_of(view: str, *more: str) -> list[str]:
    """Return the words after `shoal` that print a view: `status`, but `debug peers`."""
    return [view, *more] if view in COMMANDS else ["debug", view, *more]


class RunningNode:
    """The node of a folder; connects on the first request."""

    def __init__(self, data_dir: Path, command: str = "debug") -> None:
        """`command` is named in errors."""
        self.data_dir = data_dir
        self._command = command
        self._client = inspector(data_dir)

    def ask(self, view: str, **options: Any) -> Answer:
        """Return the node's answer for a view.

        Raises:
            NodeRefused, NodeUnavailable: it does not answer.
            UsageExit: there is none.
        """
        self._connect(view)
        return self._client.inspect(view, **options)

    def ask_if_there(self, view: str) -> Answer | None:
        """Return the answer for a view without options; None if no node answers."""
        try:
            return self.ask(view) if self._client.ensure() else None
        except (NodeRefused, NodeUnavailable):
            return None

    def order(self, action: m.ControlAction, peer_id: str) -> None:
        """Request an action on a peer; raises as `ask`."""
        self._connect()
        self._client.call(m.Control(action=action, peer_id=peer_id), m.Ok)

    def order_task(self, action: m.TaskAction, task: str, rule: str = "") -> None:
        """Request an action on a task of the swarm; raises as `ask`."""
        self._connect()
        self._client.call(m.TaskOrder(action=action, task=task, rule=rule), m.Ok)

    def manifest(self) -> bytes:
        """Return the bytes of the manifest of the node's swarm; raises as `ask`."""
        self._connect()
        return self._client.manifest or b""

    def left(self, view: str, tell: Tell) -> Answer:
        """Return the last status, or the last ledger, of a node that has stopped.

        Raises:
            UsageExit: none has.
        """
        found = left_behind(self.data_dir)
        if view == "status" and found.status is not None:
            return found.status
        if view == "ledger" and (ledger := found.ledger) is not None:
            if ledger.at_ms:
                tell(f"as it was when the node trained last, {local_time(ledger.at_ms)}")
            return dict(to_json(ledger))
        what = "a status" if view == "status" else "a ledger that can be read"
        message = f"no node has left {what} in {self.data_dir}; name its --data-dir"
        raise fail(self._command, message, EXIT_NO_NODE)

    def _connect(self, view: str = "status") -> None:
        if (why := why_suspended(self.data_dir)) is not None:  # it would not answer for seconds
            raise fail(self._command, why, EXIT_NO_NODE)
        if self._client.ensure():
            return
        if (why := why_silent(self.data_dir)) is not None:
            raise fail(self._command, why, EXIT_NO_NODE)
        root, hint = self.data_dir.parent, "start one with `shoal node`, or name its --data-dir"
        found = [one.parent for deep in ("*", "*/*") for one in root.glob(f"{deep}/{SOCKET_NAME}")]
        if running := answering(sorted(found)):
            hint = f"running: {', '.join(map(str, running))} (--data-dir)"
        elif state_written_at(self.data_dir / STATE_FILE, LAST_STATUS):
            words = " ".join(words_of("ledger" if view == "ledger" else "status"))
            folder = shlex.quote(str(self.data_dir))
            hint = f"how it ended: {called()} {words} --last --data-dir {folder}"
        why = f"no node is running in {self.data_dir}; {hint}"
        raise fail(self._command, why, EXIT_NO_NODE)
