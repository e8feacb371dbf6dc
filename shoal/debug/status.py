"""`shoal debug status` and `id`: who a peer is and how it fares."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from shoal.debug.node import Answer, RunningNode, Tell
from shoal.layout import duration, number, pairs, short_topic, size
from shoal_base.visible import visible_name


def add_last(parser: argparse.ArgumentParser) -> None:
    """Add `--last`."""
    parser.add_argument("--last", action="store_true", help="what a node left when it ended")


def present_or_last(
    node: RunningNode, arguments: argparse.Namespace, _tell: Tell
) -> Iterator[Answer]:
    """Ask the node, or with `--last` the folder of one that has ended."""
    yield node.last_status() if arguments.last else node.ask("status")


def status(console: Console, view: dict[str, Any]) -> None:
    """The node at a glance."""
    rows = pairs()
    rows.add_row("peer id", view["peer_id"])
    rows.add_row("swarm", f"{visible_name(view['swarm']['name'])}  {view['swarm']['digest'][:12]}")
    for address in view["addresses"]:
        rows.add_row("address", address)
    rows.add_row("up", duration(view["uptime_s"]))
    where = "alone: nobody else is connected" if view["solo"] else f"{view['peers']} connected"
    rows.add_row("peers", where)
    if view.get("cost"):
        rows.add_row("cost", _cost(view["cost"]))
    if view.get("disk", {}).get("full"):
        rows.add_row("disk", f"full: {size(view['disk']['free_bytes'])} left")
    for topic, members in view["mesh"].items():
        rows.add_row("mesh", f"{members} in {short_topic(topic)}")
    if "trainer" in view:
        _trainer_rows(rows, view)
        _buffer_rows(rows, view)
    if view.get("judge") is not None:
        rows.add_row("judge", _judged(view["judge"]))
    if view.get("role") == "judge":
        rows.add_row("judged", f"{view['judged']} since the start, {view['records']} records")
    if "groups_relayed" in view:
        rows.add_row("relayed", f"{view['groups_relayed']} groups")
    verdicts = view["verdicts"]
    rows.add_row("accepted", str(verdicts["accept"]))
    for outcome, said in (("ignore", "ignored"), ("reject", "rejected")):
        for reason, count in verdicts[outcome].items():
            rows.add_row(said, f"{count} {reason}")
    console.print(rows)


def _cost(cost: dict[str, Any]) -> str:
    flows = [
        f"{cost[f'bytes_{way}_s'] / 1000:.1f} KB/s {way}"
        for way in ("in", "out")
        if cost[f"bytes_{way}_s"] is not None
    ]
    if flows and cost.get("window_s"):
        flows = [f"{', '.join(flows)} (last {duration(cost['window_s'])})"]
    of_processes = [
        f"{name} {100 * (used['cpu'] or 0):.0f} % of a core and {size(used['rss_bytes'])}"
        for name, used in cost["processes"].items()
        if used is not None
    ]
    return ", ".join([*flows, *of_processes, f"{size(cost['disk_bytes'])} on disk"])


def _judged(judge: dict[str, Any]) -> str:
    if judge["judged"]:
        latest = f"{number(judge['score'])} at round {judge['round']}"
        return f"{number(judge['mean_score'])}, mean of the last 20; {latest}"
    return judge["error"] or "not asked yet"


def _trainer_rows(rows: Table, view: dict[str, Any]) -> None:
    trainer = view["trainer"]
    pid = f", pid {trainer['pid']}" if trainer["pid"] else ""
    rows.add_row("trainer", f"{trainer['state']}{pid}, {trainer['restarts']} restarts")
    if trainer.get("paused"):
        rows.add_row("paused", f"{trainer['paused']}: it goes on by itself when there is room")
    for label, text in _doing(trainer):
        rows.add_row(label, text)
    rows.add_row("round", str(view["round"]))
    rows.add_row(
        "own reward",
        f"{number(trainer['reward_local'])}  (start {number(trainer['reward_start'])})",
    )
    learning = trainer.get("learning")
    if learning:
        more = "" if learning["state"] in ("ok", "early") else ": see shoal debug doctor"
        rows.add_row("learning", learning["says"] + more)
    rows.add_row(
        "groups",
        f"{view['groups_published']} published, {view['groups_received']} received, "
        f"{view['groups_external_used']} of others trained on",
    )
    latest = trainer.get("last_round") or {}
    if latest.get("groups_looked_at"):
        rows.add_row(
            "looked at",
            f"{latest['groups_looked_at']} groups in the last round, "
            f"{latest['own_groups']} of them its own",
        )
    if view["outbox"]["unsent"]:
        rows.add_row("outbox", _outbox(view["outbox"]))


def _outbox(outbox: dict[str, Any]) -> str:
    if not outbox.get("batches_put_off"):
        return f"{outbox['unsent']} batches wait for a peer"
    return (
        f"{outbox['unsent']} batches wait for their turn: the trainer makes more groups than peers"
        " take of one node, and keeps the newest"
    )


def _doing(trainer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What the trainer does, and how the last one that failed ended."""
    progress = trainer.get("progress")
    if trainer.get("phase"):
        counted = f", {progress['done']} of {progress['of']}" if progress and progress["of"] else ""
        since = f", for {duration(progress['seconds'])}" if progress else ""
        left = progress["left_s"] if progress else None
        yield (
            "phase",
            f"{trainer['phase']}{counted}{since}"
            + ("" if left is None else f", ~{duration(left)} left"),
        )
    if trainer.get("last_exit") and trainer["state"] != "finished":  # then the node ended it
        wait = trainer["next_start_s"]
        when = "" if wait is None else f"; next start in {duration(wait)}"
        yield "last end", f"exit {trainer['last_exit']}: {trainer['last_error'] or '-'}{when}"


def _buffer_rows(rows: Table, view: dict[str, Any]) -> None:
    buffered = view["buffer"]
    rows.add_row(
        "buffer",
        f"{buffered['groups']} of {buffered['capacity_groups']} groups, "
        f"{size(buffered['bytes'])} of {size(buffered['capacity_bytes'])}, "
        f"{buffered['evicted']} evicted",
    )
    for cause, count in buffered["dropped"].items():
        rows.add_row("dropped", f"{count} {cause}")


def identity(console: Console, view: dict[str, Any]) -> None:
    """Peer id, key and addresses."""
    rows = pairs()
    rows.add_row("peer id", view["peer_id"])
    rows.add_row("ed25519 key", view["public_key"])
    rows.add_row("swarm", f"{visible_name(view['swarm']['name'])}  {view['swarm']['digest']}")
    for address in view["addresses"]:
        rows.add_row("address", address)
    console.print(rows)
