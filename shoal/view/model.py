"""The view model of a node, shared by the page, `watch` and `--json`. No I/O of its own.

    debug views, metrics.jsonl ──build──▶ Shown ──▶ page · `shoal watch` · `--json`

Parts that one debug view answers are used unchanged; parts combined from several have types of
their own. Control characters in all text are escaped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from shoal.view.folder_follower import LatestAnswers
from shoal_ipc.answers.doctor import Finding
from shoal_ipc.answers.form import Versioned
from shoal_ipc.answers.held_out import Evaluation
from shoal_ipc.answers.learning import FamilyStats, LastHour, LearningFinding
from shoal_ipc.answers.node import Progress, Rollout, Status
from shoal_ipc.answers.peer import Connection, Refusals, SwarmView
from shoal_ipc.answers.tasks import OfferedTask

Kind = Literal["node", "bootstrap", "judge"]
Health = Literal["ok", "warn", "bad", "down"]
Reputation = Literal["fine", "doubted", "banned", "blocked", "me"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealth:
    """Is it healthy?"""

    state: Health
    message: str
    remedy: str
    findings: tuple[Finding, ...]
    phase: str
    """The phase of the trainer and how far it is; empty for none."""
    progress: Progress | None
    last_error: str
    """Error of the latest trainer that failed; empty for none."""
    uptime_s: float | None
    down_since_unix: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningShown:
    """Is it learning?"""

    state: str
    """early, ok, warn or bad; empty before the trainer reports."""
    message: str
    round: int
    reward_local: float | None
    reward_initial: float | None
    held_out: Evaluation | None
    """The latest held-out evaluation, and the first of the same questions."""
    held_out_initial: Evaluation | None
    findings: tuple[LearningFinding, ...]
    families: tuple[FamilyStats, ...]
    answer: str = ""
    """Yes, no or not clear, with its numbers; empty while it is too early."""
    reward_local_ci95: float | None = None
    """Half of the 95 % interval of `reward_local`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The speed of the latest rounds."""

    rounds_per_minute: float | None = None
    tokens_per_second: float | None = None
    """Tokens that it generates."""
    remaining_s: float | None = None
    """Estimated time until its last round; None without `--rounds`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherShown:
    """A row of "Publishers"; the node itself has one."""

    peer_id: str
    short: str
    name: str
    model: str
    is_local: bool
    connected: bool
    relayed: bool
    latency_ms: float | None
    reputation: Reputation
    received: int
    """Its groups stored in the buffer since the start; for this node, groups published."""
    sampled: int
    groups_trained: int
    """Groups trained on with an advantage, over the run."""
    signal: float
    """Sum of |advantage| over them."""
    reward: float | None
    """Mean reward by this node's own verifier."""
    banned_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A figure with its title, as every view shows it."""

    name: str
    value: str
    more: str = ""
    """Its qualification, such as the value at the start."""
    note: str = ""
    """The meaning of the figure, which the page adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benefit:
    """Is it worth it? Benefit from other nodes, and cost."""

    message: str
    last_hour: LastHour
    """Recent sums; for a node that is down, those at its last training."""
    gains: tuple[Fact, ...]
    costs: tuple[Fact, ...]
    """Cost up to its last answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """A row of "Next steps": a command to copy."""

    message: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPeer(Versioned):
    """One node, or another peer, at one moment: the seven questions in their order."""

    kind: Kind
    name: str
    peer_id: str
    short: str
    data_dir: str
    at_unix: float
    swarm: SwarmView
    health: NodeHealth
    learning: LearningShown
    publishers: tuple[PublisherShown, ...]
    benefit: Benefit
    rollouts: tuple[Rollout, ...]
    """Newest first, without texts, which the `rollouts` view has."""
    refused: Refusals = field(default_factory=Refusals)
    added_tasks: tuple[OfferedTask, ...] = ()
    """Tasks that members add to the running swarm."""
    next_steps: tuple[NextStep, ...] = ()
    join_addresses: tuple[str, ...] = ()
    """Join addresses of a bootstrap or judge, best first."""
    invitation: str = ""
    """Invitation to the swarm; empty if the peer has no address."""
    invitation_lacks: tuple[str, ...] = ()
    """Reasons why a friend cannot join with it, or not with it alone."""
    pace: Pace = field(default_factory=Pace)
    sandbox: str = ""
    """The layers that confine its task worker; empty before it runs."""
    settings: dict[str, str] = field(default_factory=dict)
    """Settings of its last start, by key; empty if they are not on record."""
    connections: tuple[Connection, ...] = ()
    """Connections of a bootstrap or judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A text with what a view may do with it; a cell of a table, or a line."""

    text: str = ""
    tone: str = ""
    """A state, such as `warn` or `banned`, which has a colour; `dim`, `lead` or `remedy`."""
    peer: str = ""
    """The peer that it names, whole: a page may know that peer by a name."""
    group: str = ""
    """The rollout group that it opens."""
    at_ms: int | None = None
    """The time that it states; a page shows it in the browser's time zone."""
    note: str = ""
    """The page's tooltip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures in a row, or in a list with a title."""

    facts: tuple[Fact, ...]
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells; the columns that matter most come first."""

    columns: tuple[Cell, ...]
    """The headings, a tone of `number` for figures; one without a text stands below its row."""
    rows: tuple[tuple[Cell, ...], ...]


Part = Cell | Figures | Table
"""A part of a block, from top to bottom: a line, figures, or a table."""


class NodeView(NamedTuple):
    """A peer's view model, with the answers from which it was built: the root of figures."""

    shown: ShownPeer
    answers: LatestAnswers

    @property
    def status(self) -> Status:
        """The latest status; an empty one before the first."""
        return self.answers.status or Status()

    def __getattr__(self, name: str) -> Any:
        """Return a block of the view model, or else an answer."""
        return getattr(self.shown if hasattr(self.shown, name) else self.answers, name)
