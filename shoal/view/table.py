"""The figures of a node: title, fields with their units, and the views. No I/O of its own.

    Row("buffer", "{status.buffer.groups} groups, {status.buffer.bytes}")

A template names fields from the root, a `NodeView`; the name of a field decides its unit. Text in
brackets, and the whole row, is absent if a field in it has no value. Text after `|` qualifies the
value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shoal.layout import local_time, number, size
from shoal.view.model import Fact
from shoal_ipc.answers.held_out import MIN_ITEMS
from shoal_ipc.answers.learning import Ledger
from shoal_ipc.answers.node import OutboxView
from shoal_ipc.answers.words import doing, duration, short_topic

ALL: Final = "page watch status"
"""The web page, `shoal watch` and `shoal status`."""
LIVE: Final = "page watch"

_OPTIONAL: Final = re.compile(r"\[([^\[\]]*)\]")
_NAMED: Final = re.compile(r"\{([\w.]+)\}")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, or one for each entry of a mapping or list."""

    title: str
    value: str | Callable[[Any], str | Mapping[str, str] | Iterable[str] | None]
    """A template, or a function of the root: a mapping has a fact for each of its keys."""
    views: str = ALL
    note: str = ""
    """The meaning of the figure, which the page adds."""


def as_text(name: str, value: Any) -> str:
    """Return a value as text, formatted by its type and its field's name; empty for none."""
    match value:
        case None | () | "":
            return ""
        case bool():
            return "yes" if value else ""
        case int() | float():
            return _quantity(name, value)
        case Mapping():
            found = ((key, as_text(name, one)) for key, one in value.items() if one)
            return ", ".join(f"{one} {key}" for key, one in found)
        case tuple():
            return ", ".join(as_text(name, one) for one in value)
        case _:
            return str(value)


def _quantity(name: str, value: float) -> str:
    if name == "at_ms":
        return local_time(value)
    for ending, show in _UNITS.items():
        if name.endswith(ending):
            return show(value)
    if "bytes" in name:
        return size(value)
    if "reward" in name or "score" in name.split("_")[1:]:
        return number(value)
    return str(value) if isinstance(value, int) else f"{value:.2f}"


_UNITS: Final[Mapping[str, Callable[[float], str]]] = {
    "_ms": lambda value: f"{value:.1f} ms",
    "per_s": lambda value: f"{value:g}",
    "bytes_in_s": lambda value: f"{value / 1000:.1f} KB/s",
    "bytes_out_s": lambda value: f"{value / 1000:.1f} KB/s",
    "per_second": lambda value: f"{value:.0f}",
    "per_minute": lambda value: f"{value:.1f}",
    "_s": duration,
    "share": lambda value: f"{value:.0%}",
    "cpu": lambda value: f"{value:.0%}",
}
"""Formats by the end of a field's name."""


def facts_of(rows: Iterable[Row], root: Any, view: str) -> tuple[Fact, ...]:
    """Return the figures of a view that have a value."""
    return tuple(
        Fact(name=title, value=value, more=more, note=row.note)
        for row in rows
        if view in row.views.split()
        for title, text in _texts(row, root)
        for value, _, more in (text.partition("|"),)
    )


def _texts(row: Row, root: Any) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each figure of a row."""
    found = _filled(row.value, root) if isinstance(row.value, str) else row.value(root)
    if isinstance(found, Mapping):
        yield from ((row.title or key, text) for key, text in found.items())
    elif isinstance(found, str):
        yield from ((row.title, text) for text in (found,) if text)
    else:
        yield from ((row.title, text) for text in found or ())


def _filled(template: str, root: Any) -> Iterable[str]:
    """Return a template's text; for a field that is a list or counts, one for each entry."""
    if (only := _NAMED.fullmatch(template)) is not None:
        value = field_of(root, only[1])
        if isinstance(value, Mapping):
            return [f"{count} {name}" for name, count in value.items()]
        if isinstance(value, tuple):
            return list(map(str, value))
    text = _OPTIONAL.sub(lambda part: _named(part[1], root) or "", template)
    return [found] if (found := _named(text, root)) else []


def _named(template: str, root: Any) -> str | None:
    """Return a template with its fields' values; None if one has none."""
    values = {
        path: as_text(path.rpartition(".")[2], field_of(root, path))
        for path in _NAMED.findall(template)
    }
    if not all(values.values()):
        return None
    return _NAMED.sub(lambda found: values[found[1]], template)


def field_of(root: Any, path: str) -> Any:
    """Return the field at a path of names; None where one on the way has no value."""
    for name in path.split("."):
        if root is None:
            return None
        root = root.get(name) if isinstance(root, Mapping) else getattr(root, name)
    return root


def in_words(facts: Iterable[Fact]) -> str:
    """Return facts as a line of a terminal."""
    return ", ".join(f"{one.name} {one.value}" for one in facts)


def _held_out(of: Any) -> str | None:
    first, one = of.learning.held_out_initial, of.learning.held_out
    if one is None:
        return None
    items = f"of {one.num_items} " if one.num_items >= MIN_ITEMS else ""
    start = "" if first is None or first.round == one.round else f"(start {first.share})"
    return f"{one.share_with_interval}|{items}{start}".rstrip()


def _learning(of: Any) -> str:
    one = of.learning
    return one.message + (": see shoal doctor" if one.state in ("warn", "bad") else "")


def _outbox(of: Any) -> str:
    outbox = of.status.outbox or OutboxView()
    if outbox.delivery_lag_s:
        return (
            f"the swarm is {outbox.delivery_lag_s:.0f} s behind: this node shares less until it has"
            " caught up, and the trainer queues the newest groups"
        )
    if not outbox.unsent:
        return ""
    if not outbox.batches_postponed:
        return f"{outbox.unsent} batches wait for a peer"
    return (
        f"{outbox.unsent} batches are queued: the trainer generates more groups than peers accept"
        " from one node, and queues the newest"
    )


def _last_end(of: Any) -> str:
    one = of.status.trainer
    if one is None or not one.last_exit or one.state == "finished":  # the node stopped it
        return ""
    when = "" if one.next_start_s is None else f"; next start in {duration(one.next_start_s)}"
    return f"exit {one.last_exit}: {one.last_error or '-'}{when}"


def _judge(of: Any) -> str:
    if (one := of.status.judge) is None:
        return ""
    if one.judged:
        latest = f"{number(one.score)} at round {one.round}"
        return f"{number(one.mean_score)}, mean of the last 20; {latest}"
    return one.error or "no question yet"


def _processes(of: Any) -> Mapping[str, str]:
    return {
        name: f"{one.cpu or 0.0:.0%} CPU and {size(one.rss_bytes or 0)}"
        for name, one in of.status.cost.processes.items()
        if one is not None
    }


def _last_hour(of: Any, name: str) -> str:
    last_hour = (of.ledger or Ledger()).last_hour
    known = last_hour.external_signal_share is not None
    return str(getattr(last_hour, name)) if known else ""


COST: Final = (
    Row("in", "{status.cost.bytes_in_s}"),
    Row("out", "{status.cost.bytes_out_s}"),
    Row("measured over", "{status.cost.window_s}"),
    Row("", _processes),
    Row("on disk", "{status.cost.disk_bytes}"),
)
"""The resources that a peer uses."""
GAINS: Final = (
    Row("groups with signal", lambda of: _last_hour(of, "groups_external")),
    Row("tokens saved", lambda of: _last_hour(of, "tokens_external")),
    Row("judge's score", "{status.judge.mean_score}"),
)
"""The benefit from other nodes."""
LEARNING: Final = (
    Row("held-out", _held_out, note="questions never trained on"),
    Row(
        "own reward",
        "{learning.reward_local}[ ± {learning.reward_local_ci95}]"
        "[|(start {learning.reward_initial})]",
        note="on training questions, latest 20 rounds",
    ),
    Row(
        "round",
        "{learning.round}|[at {pace.rounds_per_minute} a minute]"
        "[, {pace.tokens_per_second} tokens/s][, {pace.remaining_s} left]",
        LIVE,
    ),
)
"""Is it learning?"""
STATUS: Final = (
    Row("peer id", "{status.peer_id}"),
    Row("ed25519 key", "{status.public_key}"),
    Row("swarm", "{status.swarm.name}  {status.swarm.digest}"),
    Row("address", "{status.addresses}"),
    Row("up", "{status.uptime_s}"),
    Row(
        "peers",
        lambda of: (
            "alone: no peer is connected"
            if of.status.is_isolated
            else f"{of.status.peers} connected"
        ),
    ),
    Row("cost", lambda of: in_words(facts_of(COST, of, "status"))),
    Row("sandbox", "{status.worker.sandbox}"),
    Row(
        "disk",
        lambda of: (
            f"full: {size(of.status.disk.free_bytes or 0)} left" if of.status.disk.full else ""
        ),
    ),
    Row(
        "mesh",
        lambda of: [f"{num} in {short_topic(topic)}" for topic, num in of.status.mesh.items()],
    ),
    Row(
        "trainer",
        "{status.trainer.state}[, pid {status.trainer.pid}], {status.trainer.restarts} restarts",
    ),
    Row("paused", "{status.trainer.paused}: it continues when the disk has space"),
    Row(
        "phase",
        lambda of: (
            doing(of.status.trainer.phase, of.status.trainer.progress)
            if of.status.trainer and of.status.trainer.phase
            else ""
        ),
    ),
    Row("last end", _last_end),
    Row("round", "{status.round}"),
    *LEARNING,
    Row("learning", _learning),
    Row(
        "groups",
        "{status.groups_published} published, {status.groups_received} received,"
        " {status.groups_external_used} external trained on",
    ),
    Row("outbox", _outbox),
    Row(
        "buffer",
        "{status.buffer.groups} of {status.buffer.capacity_groups} groups, {status.buffer.bytes} of"
        " {status.buffer.capacity_bytes}, {status.buffer.evicted} evicted",
    ),
    Row("dropped", "{status.buffer.dropped}"),
    Row("judge", _judge),
    Row("judged", "{status.judged} since the start, {status.records} records"),
    Row("relayed", "{status.groups_relayed} groups"),
    Row("accepted", "{status.verdicts.accept}"),
    Row("ignored", "{status.verdicts.ignore}"),
    Row("rejected", "{status.verdicts.reject}"),
)
"""`shoal status`: the node at a glance."""
