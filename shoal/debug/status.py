"""Prints the view `status`: a peer at a glance."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from rich.console import Console

from shoal.layout import number, pairs, print_pairs, size
from shoal.view.node import Answer, RunningNode, Tell
from shoal.view.worth import costs_of, in_words
from shoal_ipc.answers.held_out import held_out_words
from shoal_ipc.answers.node import JudgedView, OutboxView, Status, TrainerView
from shoal_ipc.answers.words import doing, duration, short_topic


def add_last(parser: argparse.ArgumentParser) -> None:
    """Add `--last`."""
    parser.add_argument(
        "--last", action="store_true", help="show the last status of a node that has stopped"
    )


def present_or_left(
    node: RunningNode, arguments: argparse.Namespace, tell: Tell
) -> Iterator[Answer]:
    """Request a view; with `--last`, read what a stopped node stored in its folder."""
    yield node.left(arguments.view, tell) if arguments.last else node.ask(arguments.view)


def show(console: Console, view: Status) -> None:
    """Print the node at a glance."""
    rows = pairs()
    for name, text in _rows(view):
        rows.add_row(name, text)
    print_pairs(console, rows)


def _rows(view: Status) -> Iterator[tuple[str, str]]:
    yield "peer id", view.peer_id
    yield "ed25519 key", view.public_key
    yield "swarm", f"{view.swarm.name}  {view.swarm.digest}"
    yield from (("address", address) for address in view.addresses)
    yield "up", duration(view.uptime_s or 0.0)
    yield (
        "peers",
        "alone: no peer is connected" if view.is_isolated else f"{view.peers} connected",
    )
    yield "cost", in_words(costs_of(view.cost))
    if view.worker.sandbox:
        yield "sandbox", view.worker.sandbox
    if view.disk.full:
        yield "disk", f"full: {size(view.disk.free_bytes or 0)} left"
    for topic, members in view.mesh.items():
        yield "mesh", f"{members} in {short_topic(topic)}"
    if view.trainer is not None:
        yield from _trainer(view, view.trainer)
    if view.judge is not None:
        yield "judge", _judged(view.judge)
    if view.role == "judge":
        yield "judged", f"{view.judged} since the start, {view.records} records"
    if view.groups_relayed is not None:
        yield "relayed", f"{view.groups_relayed} groups"
    yield "accepted", str(view.verdicts.accept or 0)
    for verdict, counts in (("ignored", view.verdicts.ignore), ("rejected", view.verdicts.reject)):
        yield from ((verdict, f"{count} {reason}") for reason, count in counts.items())


def _judged(judge: JudgedView) -> str:
    if judge.judged:
        latest = f"{number(judge.score)} at round {judge.round}"
        return f"{number(judge.mean_score)}, mean of the last 20; {latest}"
    return judge.error or "no question yet"


def _trainer(view: Status, trainer: TrainerView) -> Iterator[tuple[str, str]]:
    pid = f", pid {trainer.pid}" if trainer.pid else ""
    yield "trainer", f"{trainer.state}{pid}, {trainer.restarts} restarts"
    if trainer.paused:
        yield "paused", f"{trainer.paused}: it continues when the disk has space"
    yield from _doing(trainer)
    yield "round", str(view.round or 0)
    if words := held_out_words(trainer.held_out_initial, trainer.held_out):
        yield "held-out", words
    start = number(trainer.reward_initial)
    yield "own reward", f"{number(trainer.reward_local)} (start {start})"
    if (learning := trainer.learning) is not None and learning.message:
        more = "" if learning.state in ("ok", "early") else ": see shoal doctor"
        yield "learning", learning.message + more
    groups = f"{view.groups_published} published, {view.groups_received} received"
    yield "groups", f"{groups}, {view.groups_external_used} external trained on"
    if view.outbox is not None and (view.outbox.unsent or view.outbox.delivery_lag_s):
        yield "outbox", _outbox(view.outbox)
    if (buffer := view.buffer) is not None:
        usage = f"{size(buffer.bytes)} of {size(buffer.capacity_bytes)}, {buffer.evicted} evicted"
        yield "buffer", f"{buffer.groups} of {buffer.capacity_groups} groups, {usage}"
        yield from (("dropped", f"{count} {cause}") for cause, count in buffer.dropped.items())


def _outbox(outbox: OutboxView) -> str:
    if outbox.delivery_lag_s:
        return (
            f"the swarm is {outbox.delivery_lag_s:.0f} s behind: this node shares less until it has"
            " caught up, and the trainer queues the newest groups"
        )
    if not outbox.batches_postponed:
        return f"{outbox.unsent} batches wait for a peer"
    return (
        f"{outbox.unsent} batches are queued: the trainer generates more groups than peers accept"
        " from one node, and queues the newest"
    )


def _doing(trainer: TrainerView) -> Iterator[tuple[str, str]]:
    """Yield the trainer's phase, and the exit of the last trainer that failed."""
    if trainer.phase:
        yield "phase", doing(trainer.phase, trainer.progress)
    if trainer.last_exit and trainer.state != "finished":  # otherwise the node stopped it
        wait = trainer.next_start_s
        when = "" if wait is None else f"; next start in {duration(wait)}"
        yield "last end", f"exit {trainer.last_exit}: {trainer.last_error or '-'}{when}"
