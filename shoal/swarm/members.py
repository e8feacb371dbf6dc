"""The nodes of a local swarm, as table and as JSON."""

from __future__ import annotations

import contextlib
import json
import shlex
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from shoal.json_output import MemberRow
from shoal.layout import number
from shoal.started_peer import StartedPeer
from shoal.swarm.isolation import node_name
from shoal.view.folder_follower import inspector
from shoal_ipc.answers.form import read
from shoal_ipc.answers.node import Status, TrainerView
from shoal_ipc.client import NodeRefused, NodeUnavailable
from shoal_p2p.state_file import LAST_STATUS, STATE_FILE, read_state, state_written_at


class ChildNode:
    """One node of the swarm and its latest status."""

    def __init__(self, folder: Path, process: StartedPeer) -> None:
        self.name = folder.name
        self.process = process
        self.status = Status()
        self._left = folder / STATE_FILE
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
        with contextlib.suppress(sqlite3.Error, OSError, ValueError):
            if state_written_at(self._left, LAST_STATUS) >= self._started:
                self.status = read(Status, json.loads(read_state(self._left, LAST_STATUS) or b""))

    @property
    def finished(self) -> bool:
        """True if its trainer has completed its rounds."""
        return self.trainer.state == "finished"

    @property
    def trainer(self) -> TrainerView:
        """Return its trainer's report; an empty one before the first."""
        return self.status.trainer or TrainerView()

    def row(self) -> MemberRow:
        """Return its numbers."""
        status, trainer, code = self.status, self.trainer, self.process.exit_code
        return MemberRow(
            name=self.name,
            peer_id=status.peer_id,
            state=f"ended ({code})" if code else trainer.state or "starting",
            round=status.round or 0,
            held_out=trainer.held_out,
            held_out_initial=trainer.held_out_initial,
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
    for column in ("round", "held-out", "start", "own reward", "external"):
        table.add_column(column, justify="right", no_wrap=True)
    table.caption = (
        "held-out, start: share of right answers to the same questions, which no node trains on, "
        "in the latest and first evaluation (± 95 % over questions). own reward: mean reward on "
        "own training questions, latest 20 rounds. external: groups of other nodes trained on."
    )
    table.caption_justify = "left"
    for member in members:
        row, trainer = member.row(), member.trainer
        latest, initial = trainer.held_out, trainer.held_out_initial
        now = "-" if latest is None else latest.share_with_interval
        start = "-" if initial is None else initial.share
        own, external = number(row.reward_local), str(row.groups_external_used)
        table.add_row(row.name, row.state, str(row.round), now, start, own, external)
    return table


def next_commands(data_dir: Path, program: str) -> list[str]:
    """Return the last lines of a swarm: commands to see it again, to talk to it, and to go on."""
    swarm, first = (shlex.quote(str(one)) for one in (data_dir, data_dir / node_name(1)))
    return [
        f"see it again:       {program} page --data-dir {swarm}",
        f"talk to a node:     {program} chat --data-dir {first}",
        f"train one of yours: {program} node",
    ]


def progress_line(members: Sequence[ChildNode]) -> str:
    """Return the progress of all nodes in one line."""
    return "  ".join(map(_progress, members))


def _progress(member: ChildNode) -> str:
    row, trainer = member.row(), member.trainer
    latest = trainer.held_out
    figure = f"reward {number(row.reward_local)}" if latest is None else f"held-out {latest.share}"
    return f"{row.name} round {row.round} {figure}"
