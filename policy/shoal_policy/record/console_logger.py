"""Prints progress for people, a line every few seconds. Programs read `MetricsFile`."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.text import Text

from shoal_base.log_file import IN_FILE_ALONE
from shoal_base.terminal import Terminal
from shoal_base.waits import MINUTE_S
from shoal_ipc.answers.node import WINDOW
from shoal_ipc.client import NodeClient, NodeRefused, NodeUnavailable
from shoal_policy.record.phases import PhaseProgress
from shoal_policy.record.progress import RoundRecord, RunCounters
from shoal_settings.schema import Settings

log = logging.getLogger(__name__)

ROUND_INTERVAL_S = 2.0  # keeps a log readable; a guess
OPTIONAL_PARTS = ("start", "external reward", "share", "pace", "interval")
"""Parts that are omitted one after the other until a line fits the terminal."""
PHASE_INTERVAL_S = 10.0  # a guess: a person sees progress, and a log stays short


class ConsoleLogger:
    """Prints a line after a round. Called after every round."""

    def __init__(
        self,
        settings: Settings,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
        peers: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`peers` returns the node's number of peers, None if unknown."""
        self._settings = settings
        self._console = console or Terminal(file=sys.stdout, soft_wrap=True)
        self._clock = clock
        self._peers = peers
        self._next = self._next_logged = float("-inf")
        self._pace: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        """Tokens and seconds of the latest rounds."""
        self._groups: deque[tuple[int, int]] = deque(maxlen=WINDOW)
        """External and all groups of the latest rounds."""
        self._next_phase = float("-inf")
        self._has_run = False

    def __call__(self, record: RoundRecord, progress: RunCounters) -> None:
        """Print a line about a round if the last one is old enough."""
        self._has_run = True
        if self._settings.json_output:
            return
        self._pace.append((record.tokens_generated + record.num_tokens, record.seconds))
        self._groups.append((record.groups_external, record.groups_external + record.groups_local))
        is_last = record.round == self._settings.rounds
        if self._clock() >= self._next_logged or is_last:
            # The trainer's log file remains when the terminal is gone.
            self._next_logged = self._clock() + MINUTE_S
            log.info("%s", self._line(record, progress), extra=IN_FILE_ALONE)
        if self._clock() < self._next and not is_last:
            return
        self._next = self._clock() + ROUND_INTERVAL_S
        self._console.print(self._line(record, progress))

    def on_phase(self, phase: PhaseProgress) -> None:
        """Print a line about a long phase if the last one is old enough."""
        seconds = phase.progress.elapsed_s or 0.0
        if self._settings.json_output or seconds < PHASE_INTERVAL_S:
            return
        if self._clock() < self._next_phase:
            return
        self._next_phase = self._clock() + PHASE_INTERVAL_S
        self._console.print(Text(str(phase)))

    def log_if_complete(self) -> None:
        """Print a hint if an earlier run completed all requested rounds."""
        rounds = self._settings.rounds
        if rounds and not self._has_run and not self._settings.json_output:
            self._console.print(f"{rounds} rounds are done: continue with --rounds {2 * rounds}")

    def _line(self, record: RoundRecord, progress: RunCounters) -> Text:
        """Return a round's line, truncated to the terminal's width."""
        parts = list(self._parts(record, progress))
        line = Text.assemble(*(part for _, part in parts))
        if not self._console.is_terminal:
            return line
        width = max(20, self._console.width - 1)
        for optional in OPTIONAL_PARTS:
            if line.cell_len > width:
                parts = [(name, part) for name, part in parts if name != optional]
                line = Text.assemble(*(part for _, part in parts))
        line.truncate(width, overflow="ellipsis")
        return line

    def _parts(
        self, record: RoundRecord, progress: RunCounters
    ) -> Iterator[tuple[str, str | tuple[str, str]]]:
        """Yield the parts of a line, each with its name in `OPTIONAL_PARTS` or an empty one."""
        total = f"/{self._settings.rounds}" if self._settings.rounds else ""
        yield "", "round "
        yield "", (f"{record.round}{total}", "bold")
        initial, latest = progress.evaluations()
        if latest is not None:
            yield "", "  held-out "
            yield "", (latest.share, "bold green")
            yield "interval", str(latest).removeprefix(latest.share)
            if initial is not None and initial.round != latest.round:
                yield "", f" (start {initial.share})"
        yield "", f"  own reward {_show(progress.reward_now)}"
        yield "start", f" (start {_show(progress.reward_initial)})"
        external, groups = (sum(column) for column in zip(*self._groups, strict=True))
        yield "", (f"  external {record.groups_external}/{self._settings.external}", "cyan")
        if groups:
            yield "share", (f" ({external / groups:.0%})", "cyan")
        if record.reward_external is not None:
            yield "external reward", (f" reward {record.reward_external:.2f}", "cyan")
        tokens, seconds = (sum(column) for column in zip(*self._pace, strict=True))
        yield "pace", f"  {tokens / max(seconds, 1e-9):,.0f} tok/s"
        if (peers := self._peers()) is not None:
            yield "", f"  {peers} peer{'s' * (peers != 1)}"


def _show(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def num_peers(client: NodeClient | None) -> int | None:
    """Return the number of peers of the client's node; None if it does not answer."""
    try:
        return None if client is None else int(client.inspect("status")["peers"])
    except (NodeUnavailable, NodeRefused, ValueError, KeyError, TypeError):
        return None
