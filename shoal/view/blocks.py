"""The blocks of a node's view, as parts that the page and the terminal render. No I/O of its own.

NodeView ──blocks_of──▶ name ─▶ lines, figures, tables ─┬─▶ `shoal.view.text`: watch, debug
                                                        └─▶ JSON ─▶ static/blocks.js
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from shoal.layout import number
from shoal.view.model import (
    Cell,
    Fact,
    Figures,
    NodeView,
    Part,
    PublisherShown,
    ShownPeer,
    Table,
)
from shoal.view.publishers import short
from shoal.view.table import LEARNING, as_text, facts_of
from shoal_ipc.answers.node import Rollout
from shoal_ipc.answers.peer import Connection, Refused
from shoal_ipc.answers.tasks import OfferedTask
from shoal_ipc.answers.words import duration

_TOO_EARLY: Final = "too early to say: the second held-out evaluation answers"

Block = Callable[[NodeView, str], Iterator[Part]]
"""Yields the parts of a block for a view, `page` or `watch`."""


def _health(of: NodeView, view: str) -> Iterator[Part]:
    one = of.shown.health
    yield Cell(text=one.message, tone=one.state)
    yield Cell(text=one.phase)
    yield Cell(text=one.remedy, tone="remedy")
    if one.last_error:
        yield Cell(text=f"the last trainer ended: {one.last_error}")
    if one.uptime_s is not None and view == "page":  # the title of a screen has it
        yield Cell(text=f"up {duration(one.uptime_s)}")


def _learning(of: NodeView, view: str) -> Iterator[Part]:
    one = of.shown.learning
    if of.shown.kind != "node" or (one.reward_local is None and not one.message):
        yield Cell(text="no report of a trainer yet", tone="dim")
        return
    yield Cell(text=one.answer or _TOO_EARLY, tone="lead")
    yield Figures(facts=facts_of(LEARNING, of, view))
    if not one.findings and (one.state != "ok" or view == "watch"):
        yield Cell(text=one.message, tone="dim")
    for finding in one.findings:
        yield Cell(text=f"{finding.message}, since round {finding.since_round}", tone=finding.state)
        yield Cell(text=finding.remedy, tone="remedy")
        yield Cell(text=finding.example)
    if one.families and view == "watch":  # the page draws a curve of each
        yield _table(
            ("family", "#own reward", "#start"),
            (
                (Cell(text=row.name), _figure(row.reward), _figure(row.reward_initial))
                for row in one.families
            ),
        )


def _peers(of: NodeView, _view: str) -> Iterator[Part]:
    """Yield the publishers; for a bootstrap or judge, connected peers and join addresses."""
    shown = of.shown
    if shown.kind != "node":
        yield from _connections(shown)
        return
    if not shown.publishers:
        yield Cell(text="no publisher yet", tone="dim")
        return
    total = sum(one.signal for one in shown.publishers)
    yield _table(
        (
            "publisher",
            "#signal: share of the sum of |advantage| over what was trained on",
            "reputation",
            "#trained: groups trained on",
            "#reward: mean by this node's verifier",
            "model",
            "#received: groups received; for this node, groups published",
            "#latency",
        ),
        (tuple(_publisher(one, total, shown)) for one in shown.publishers),
    )
    if all(one.is_local for one in shown.publishers):
        is_down = shown.health.state == "down"
        none = "no other publisher is recorded here" if is_down else "no rollouts of others yet"
        yield Cell(text=none, tone="dim")


def _publisher(one: PublisherShown, total: float, shown: ShownPeer) -> Iterator[Cell]:
    banned = "" if one.banned_s is None else f" {_minutes(one.banned_s + 59)}"
    is_known = one.received > 0 or shown.health.state != "down"  # after its end it is not recorded
    away = "" if one.is_local or one.connected else "gone"
    yield _peer(one.peer_id, is_local=one.is_local)
    yield Cell(
        text=as_text("share", one.signal / total) if one.signal > 0 else "",
        note=f"{one.signal:.1f} in total",
    )
    yield Cell(text=f"{one.reputation}{banned}", tone=one.reputation)
    yield Cell(text=str(one.groups_trained))
    yield _figure(one.reward)
    yield Cell(text=one.model)
    yield Cell(text=str(one.received) if is_known else "")
    yield _latency(one, away)


def _connections(shown: ShownPeer) -> Iterator[Part]:
    if shown.connections:
        yield _table(
            ("peer", "since", "#latency", "address", "program"),
            (
                (
                    _peer(one.peer_id),
                    Cell(text=_minutes(one.connected_s)),
                    _latency(one),
                    Cell(text=one.address.split("/p2p/")[0]),
                    Cell(text=one.agent),
                )
                for one in shown.connections
            ),
        )
    else:
        yield Cell(text="no peer is connected", tone="dim")
    for address in shown.join_addresses:
        yield Cell(text=f"join address {address}")


def _latency(one: PublisherShown | Connection, away: str = "") -> Cell:
    latency = away if one.latency_ms is None else f"{one.latency_ms:.0f} ms"
    return Cell(text=f"{latency}{' relay' if one.relayed else ''}".strip())


def _minutes(seconds: float) -> str:
    """Return a time in whole minutes, so that a row changes seldom."""
    return "under a minute" if seconds < 60 else duration(60 * (seconds // 60)).replace(" 0 s", "")


def _worth(of: NodeView, _view: str) -> Iterator[Part]:
    one = of.shown.benefit
    yield Cell(text=one.message)
    if one.gains:
        yield Figures(title="Benefit", facts=one.gains)
    is_down = of.shown.health.state == "down"
    yield Figures(title="Cost, before it stopped" if is_down else "Cost", facts=one.costs)


def _rollouts(of: NodeView, view: str) -> Iterator[Part]:
    shown = of.shown
    if not shown.rollouts:
        stopped = "rollouts are shown while the node runs; `shoal export data` writes those on disk"
        yield Cell(text=stopped if shown.health.state == "down" else "none yet", tone="dim")
        return
    # Few rows fit a terminal: those that are scored come first.
    shown_first = sorted(shown.rollouts, key=lambda one: view == "watch" and one.reward is None)
    yield _table(
        ("family", "#reward", "by", "used", "#round"),
        (tuple(_rollout(one)) for one in shown_first),
    )


def _rollout(one: Rollout) -> Iterator[Cell]:
    used = {True: "trained on", False: "skipped", None: "queued"}[one.used]
    yield Cell(text=one.family, group=one.group_id)
    yield _figure(one.reward)
    yield _peer(one.publisher, is_local=one.is_local)
    yield Cell(text=one.skip_reason if one.used is False and one.skip_reason else used)
    yield Cell(text=str(one.round))


def _refused(of: NodeView, view: str) -> Iterator[Part]:
    counts = of.shown.refused.counts
    if not counts and not of.shown.refused.recent:
        is_down = of.shown.health.state == "down"
        nothing = "nothing is on record" if is_down else "nothing was refused since the start"
        yield Cell(text=nothing, tone="dim")
        return
    names = (one.reason if view == "watch" else f"{one.reason}: {one.message}" for one in counts)
    yield Figures(
        facts=tuple(
            Fact(name=name, value=str(one.count)) for name, one in zip(names, counts, strict=True)
        )
    )
    if of.shown.refused.recent:
        yield _table(
            ("when", "reason", "delivered by", "signed by", "family", ""),
            (tuple(_refusal(one)) for one in of.shown.refused.recent),
        )


def _refusal(one: Refused) -> Iterator[Cell]:
    yield Cell(at_ms=one.at_ms)
    yield Cell(text=f"{one.message} × {one.count}" if one.count > 1 else one.message)
    yield _peer(one.forwarder)
    yield _peer(one.signer)
    yield Cell(text=one.family)
    yield Cell(text=one.remedy, tone="remedy")


def _tasks(of: NodeView, _view: str) -> Iterator[Part]:
    """Yield what members add to the running swarm, and this node's decision about each."""
    if not of.shown.added_tasks:
        return
    yield Cell(text="shoal tasks add NAME fetches one, shows it, and asks", tone="dim")
    yield _table(
        (
            "task",
            "title",
            "kind",
            "offered by",
            "#nodes: connected nodes that train on it",
            "#reward there: by their own word",
            "#here",
            "state",
        ),
        (tuple(_added_task(one)) for one in of.shown.added_tasks),
    )


def _added_task(one: OfferedTask) -> Iterator[Cell]:
    kind = "game" if one.questions is None else f"{one.questions:,} questions"
    yield Cell(text=one.name)
    yield Cell(text=one.title)
    yield Cell(text=f"{kind}, code" if one.has_code else kind)
    more = len(one.offered_by) - 1
    who = _peer(one.offered_by[0]) if one.offered_by else Cell(text="this node")
    yield replace(who, text=f"{who.text} and {more} more") if more > 0 else who
    yield Cell(text=str(one.nodes))
    yield _figure(one.reward_peers)
    yield _figure(one.reward_local)
    yield Cell(text=f"{one.state}: {one.why}" if one.why else one.state)


def _next(of: NodeView, _view: str) -> Iterator[Part]:
    for one in of.shown.next_steps:
        yield Cell(text=one.command, note=one.message, tone="command")


def _settings(of: NodeView, _view: str) -> Iterator[Part]:
    if of.shown.sandbox:
        yield Cell(text=f"sandbox in force: {of.shown.sandbox}")
    if of.shown.settings:
        found = of.shown.settings.items()
        yield Figures(facts=tuple(Fact(name=key, value=value or "-") for key, value in found))


def _overview(of: NodeView, _view: str) -> Iterator[Part]:
    """Yield the peer's row in a table of several."""
    one, is_node = of.shown.learning, of.shown.kind == "node"
    shares = ("" if each is None else each.share for each in (one.held_out, one.held_out_initial))
    left_s = of.shown.pace.remaining_s
    figures = (
        str(one.round),
        *shares,
        "" if one.reward_local is None else number(one.reward_local),
        duration(left_s) if left_s else "",
    )
    state = of.shown.health.state
    yield _table(
        (
            "peer",
            "health",
            "#round",
            "#held-out: right answers to questions that no node trains on",
            "#start",
            "#own: mean reward on own training questions, latest 20 rounds",
            "#left",
        ),
        [
            (
                Cell(text=of.shown.name, tone="link"),
                Cell(text=state, tone=state),
                *(Cell(text=text if is_node else "") for text in figures),
            )
        ],
    )


BLOCKS: Final[Mapping[str, Block]] = {
    "overview": _overview,
    "health": _health,
    "learning": _learning,
    "peers": _peers,
    "worth": _worth,
    "rollouts": _rollouts,
    "refused": _refused,
    "tasks": _tasks,
    "next": _next,
    "settings": _settings,
}
"""The blocks by name, in their order."""


def parts_of(name: str, of: NodeView, view: str) -> tuple[Part, ...]:
    """Return the parts of a block, without those that say nothing."""
    return tuple(one for one in BLOCKS[name](of, view) if _says_something(one))


def _says_something(part: Part) -> bool:
    return bool(part.text if isinstance(part, Cell) else getattr(part, "facts", True))


def _table(columns: Iterable[str], rows: Iterable[tuple[Cell, ...]]) -> Table:
    """Return a table; `#` begins the heading of a figure, and a colon ends a title."""
    heads = (one.partition(": ") for one in columns)
    return Table(
        columns=tuple(
            Cell(text=title.lstrip("#"), tone="number" if title.startswith("#") else "", note=note)
            for title, _, note in heads
        ),
        rows=tuple(rows),
    )


def _peer(peer_id: str, *, is_local: bool = False) -> Cell:
    if is_local:
        return Cell(text="this node", tone="me")
    return Cell(text=f"…{short(peer_id)}" if peer_id else "", peer=peer_id)


def _figure(value: float | None) -> Cell:
    return Cell(text="" if value is None else number(value))
