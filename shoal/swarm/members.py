"""The nodes of a local swarm as people and programs see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from shoal.layout import number
from shoal.swarm.local_process import LocalProcess


@dataclass(slots=True)
class ChildNode:
    """One node of the swarm and its latest status."""

    name: str
    process: LocalProcess
    status: dict[str, Any] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """True if its trainer has completed its rounds."""
        return bool(self.status.get("trainer", {}).get("state") == "finished")

    def row(self) -> dict[str, Any]:
        """Its numbers, for programs."""
        status = self.status
        trainer = status.get("trainer", {})
        state = trainer.get("state", "starting")
        if self.process.exit_code:
            state = f"ended ({self.process.exit_code})"
        return {
            "name": self.name,
            "peer_id": status.get("peer_id", ""),
            "state": state,
            "round": status.get("round", 0),
            "reward_local": trainer.get("reward_local"),
            "reward_start": trainer.get("reward_start"),
            "groups_external_used": status.get("groups_external_used", 0),
            "groups_published": status.get("groups_published", 0),
            "groups_received": status.get("groups_received", 0),
            "peers": status.get("peers", 0),
        }


def members_table(members: Sequence[ChildNode], data_dir: Path) -> Table:
    """Lay the nodes' numbers out for people."""
    table = Table(title=f"swarm in {data_dir}", title_justify="left")
    for column in ("node", "state"):
        table.add_column(column, no_wrap=True)
    for column in ("round", "start", "reward", "others", "sent", "heard", "peers"):
        table.add_column(column, justify="right", no_wrap=True)
    table.caption = (
        "In the whole run: round; start and reward: mean reward on own fresh tasks in the first "
        "and latest 20 rounds; others: groups of other nodes trained on. Since this start: groups "
        "sent and heard, peers connected."
    )
    table.caption_justify = "left"
    for member in members:
        row = member.row()
        table.add_row(
            member.name,
            row["state"],
            str(row["round"]),
            number(row["reward_start"]),
            number(row["reward_local"]),
            str(row["groups_external_used"]),
            str(row["groups_published"]),
            str(row["groups_received"]),
            str(row["peers"]),
        )
    return table


def progress_line(members: Sequence[ChildNode]) -> str:
    """Say in one line how far each is."""
    rows = [member.row() for member in members]
    return "  ".join(
        f"{row['name']} round {row['round']} reward {number(row['reward_local'])}" for row in rows
    )
