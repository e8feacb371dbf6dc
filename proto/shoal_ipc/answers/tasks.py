"""The answer on tasks that members add to a running swarm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shoal_ipc.answers.form import Lines, Name, Versioned, labelled


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTask:
    """One task that the swarm's manifest does not have."""

    name: Name = ""
    digest: str = ""
    """The family's digest, in hexadecimal."""
    title: str = ""
    questions: int | None = None
    """Number of different questions; None for a game."""
    has_code: bool = False
    """True if the author's Python code would run here, or runs."""
    offered_by: tuple[Name, ...] = ()
    """Members that share its files, without this node."""
    nodes: int = 0
    """Connected peers that train on it, and this node if it does."""
    reward_peers: float | None = None
    """Their mean reward, by their own word."""
    reward_local: float | None = None
    """Mean reward of this node's own latest groups; None before the first."""
    state: Literal["offered", "fetching", "asking", "checking", "accepted", "refused"] = "offered"
    """`asking` waits for `shoal tasks add` to accept it."""
    description: Lines = ""
    """Lines that `shoal tasks add` shows before it asks."""
    why: str = ""
    """Why it was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks(Versioned):
    """Tasks that members add to the swarm, and this node's decision about each."""

    tasks: tuple[OfferedTask, ...] = labelled("task", "name")
