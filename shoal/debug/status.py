"""`shoal debug status`: how a peer fares, in a screen."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from shoal.layout import duration, number, pairs, print_pairs, short_topic, size
from shoal.view.node import Answer, RunningNode, Tell
from shoal.view.worth import flows, on_disk, used
from shoal_ipc.answers.node import JudgedView, OutboxView, Status, TrainerView


def add_last(parser: argparse.ArgumentParser) -> None:
    """Add `--last`."""
    parser.add_argument("--last", action="store_true", help="what a node left when it ended")


def present_or_left(
    node: RunningNode, arguments: argparse.Namespace, tell: Tell
) -> Iterator[Answer]:
    """Ask the node, or with `--last` the folder of one that has ended."""
    yield node.left(arguments.view, tell) if arguments.last else node.ask(arguments.view)


def show(console: Console, view: Status) -> None:
    """The node at a glance."""
    rows = pairs()
    rows.add_row("peer id", view.peer_id)
    rows.add_row("ed25519 key", view.public_key)
    rows.add_row("swarm", f"{view.swarm.name}  {view.swarm.digest}")
    for address in view.addresses:
        rows.add_row("address", address)
    rows.add_row("up", duration(view.uptime_s or 0.0))
    where = "alone: nobody else is connected" if view.solo else f"{view.peers} connected"
    rows.add_row("peers", where)
    cost = (flows(view.cost), used(view.cost), on_disk(view.cost))
    rows.add_row("cost", ", ".join(filter(None, cost)))
    if view.disk.full:
        rows.add_row("disk", f"full: {size(view.disk.free_bytes or 0)} left")
    for topic, members in view.mesh.items():
        rows.add_row("mesh", f"{members} in {short_topic(topic)}")
    if view.trainer is not None:
        _trainer_rows(rows, view, view.trainer)
    if view.judge is not None:
        rows.add_row("judge", _judged(view.judge))
    if view.role == "judge":
        rows.add_row("judged", f"{view.judged} since the start, {view.records} records")
    if view.groups_relayed is not None:
        rows.add_row("relayed", f"{view.groups_relayed} groups")
    rows.add_row("accepted", str(view.verdicts.accept or 0))
    for said, counts in (("ignored", view.verdicts.ignore), ("rejected", view.verdicts.reject)):
        for reason, count in counts.items():
            rows.add_row(said, f"{count} {reason}")
    print_pairs(console, rows)


def _judged(judge: JudgedView) -> str:
    if judge.judged:
        latest = f"{number(judge.score)} at round {judge.round}"
        return f"{number(judge.mean_score)}, mean of the last 20; {latest}"
    return judge.error or "not asked yet"


def _trainer_rows(rows: Table, view: Status, trainer: TrainerView) -> None:
    pid = f", pid {trainer.pid}" if trainer.pid else ""
    rows.add_row("trainer", f"{trainer.state}{pid}, {trainer.restarts} restarts")
    if trainer.paused:
        rows.add_row("paused", f"{trainer.paused}: it goes on by itself when there is room")
    for label, text in _doing(trainer):
        rows.add_row(label, text)
    rows.add_row("round", str(view.round or 0))
    start = number(trainer.reward_start)
    rows.add_row("own reward", f"{number(trainer.reward_local)}  (start {start})")
    if trainer.learning is not None and trainer.learning.says:
        is_well = trainer.learning.state in ("ok", "early")
        more = "" if is_well else ": see shoal debug doctor"
        rows.add_row("learning", trainer.learning.says + more)
    rows.add_row(
        "groups",
        f"{view.groups_published} published, {view.groups_received} received, "
        f"{view.groups_external_used} of others trained on",
    )
    latest = trainer.last_round or {}
    if looked_at := latest.get("groups_looked_at"):
        own = latest.get("own_groups") or 0
        rows.add_row(
            "looked at", f"{looked_at:.0f} groups in the last round, {own:.0f} of them its own"
        )
    if view.outbox is not None and (view.outbox.unsent or view.outbox.late_s):
        rows.add_row("outbox", _outbox(view.outbox))
    if (buffered := view.buffer) is not None:
        rows.add_row(
            "buffer",
            f"{buffered.groups} of {buffered.capacity_groups} groups, "
            f"{size(buffered.bytes)} of {size(buffered.capacity_bytes)}, "
            f"{buffered.evicted} evicted",
        )
        for cause, count in buffered.dropped.items():
            rows.add_row("dropped", f"{count} {cause}")


def _outbox(outbox: OutboxView) -> str:
    if outbox.late_s:
        return (
            f"the swarm is {outbox.late_s:.0f} s behind: this node shares less until it has"
            " caught up, and the trainer keeps the newest groups"
        )
    if not outbox.batches_put_off:
        return f"{outbox.unsent} batches wait for a peer"
    return (
        f"{outbox.unsent} batches wait for their turn: the trainer makes more groups than peers"
        " take of one node, and keeps the newest"
    )


def _doing(trainer: TrainerView) -> Iterator[tuple[str, str]]:
    """Yield the trainer's phase, and how the last one that failed ended."""
    progress = trainer.progress
    if trainer.phase:
        counted = f", {progress.done} of {progress.of}" if progress and progress.of else ""
        since = f", for {duration(progress.seconds or 0.0)}" if progress else ""
        left = progress.left_s if progress else None
        more = "" if left is None else f", ~{duration(left)} left"
        yield "phase", f"{trainer.phase}{counted}{since}{more}"
    if trainer.last_exit and trainer.state != "finished":  # then the node ended it
        wait = trainer.next_start_s
        when = "" if wait is None else f"; next start in {duration(wait)}"
        yield "last end", f"exit {trainer.last_exit}: {trainer.last_error or '-'}{when}"
