"""The nodes of a local swarm, as table and as JSON."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from shoal.json_output import MemberRow
from shoal.layout import number
from shoal.started_peer import StartedPeer
from shoal.view.folder_follower import inspector
from shoal_ipc.answers.form import read
from shoal_ipc.answers.node import Status, TrainerView
from shoal_ipc.client import NodeRefused, NodeUnavailable
from shoal_p2p.data_dir import LAST_STATUS_FILE


class ChildNode:
    """One node of the swarm and its latest status."""

    def __init__(self, folder: Path, process: StartedPeer) -> None:
        self.name = folder.name
        self.process = process
        self.status = Status()
        self._left = folder / LAST_STATUS_FILE
        self._client = inspector(folder)
        self._started = time.time()

    def ask(self) -> None:
        """Update the status, if the node answers. Blocks."""
        if self.process.exit_code is None:
            with contextlib.suppress(NodeUnavailable, NodeRefused, ValueError):
                self.status = read(Status, self._client.inspect("status"))

    def stop(self) -> None:
        """Stop the node, and read the status that it stores at an orderly stop. Blocks."""
        self.process.stop()
        with contextlib.suppress(OSError, ValueError):
            if self._left.stat().st_mtime >= self._started:
                self.status = read(Status, json.loads(self._left.read_text()))

    @property
    def finished(self) -> bool:
        """True if its trainer has completed its rounds."""
        return (self.status.trainer or TrainerView()).state == "finished"

    def row(self) -> MemberRow:
        """Return its numbers."""
        status, code = self.status, self.process.exit_code
        trainer = status.trainer or TrainerView()
        return MemberRow(
            name=self.name,
            peer_id=status.peer_id,
            state=f"ended ({code})" if code else trainer.state or "starting",
            round=status.round or 0,
            reward_local=trainer.reward_local,
            reward_initial=trainer.reward_initial,
            groups_external_used=status.groups_external_used or 0,
            groups_published=status.groups_published or 0,
            groups_received=status.groups_received or 0,
            peers=status.peers,
        )


def members_table(members: Sequence[ChildNode], data_dir: Path) -> Table:
    """Return the table of all nodes."""
    table = Table(title=f"swarm in {data_dir}", title_justify="left")
    for column in ("node", "state"):
        table.add_column(column, no_wrap=True)
    for column in ("round", "start", "reward", "external", "sent", "received", "peers"):
        table.add_column(column, justify="right", no_wrap=True)
    table.caption = (
        "In the whole run: round; start and reward: mean reward on own fresh tasks in the first "
        "and latest 20 rounds; external: groups of other nodes trained on. Since this start: "
        "groups sent and received, peers connected."
    )
    table.caption_justify = "left"
    for row in (member.row() for member in members):
        rewards = number(row.reward_initial), number(row.reward_local)
        counts = row.groups_external_used, row.groups_published, row.groups_received, row.peers
        table.add_row(row.name, row.state, str(row.round), *rewards, *map(str, counts))
    return table


def progress_line(members: Sequence[ChildNode]) -> str:
    """Return the progress of all nodes in one line."""
    rows = [member.row() for member in members]
    return "  ".join(
        f"{row.name} round {row.round} reward {number(row.reward_local)}" for row in rows
    )
