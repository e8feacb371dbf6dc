"""Debug views for people: the same values as `--json`, laid out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

_QUESTION_CHARS = 160
_TEXT_CHARS = 60
_WIDE = 140
"""Columns from which tables show whole peer ids."""


def status(console: Console, view: dict[str, Any]) -> None:
    """The node at a glance."""
    table = _pairs()
    table.add_row("peer id", view["peer_id"])
    table.add_row("swarm", f"{view['swarm']['name']}  {view['swarm']['digest'][:12]}")
    for address in view["addresses"]:
        table.add_row("address", address)
    table.add_row("up", duration(view["uptime_s"]))
    where = "alone: nobody else is connected" if view["solo"] else f"{view['peers']} connected"
    table.add_row("peers", where)
    for topic, members in view["mesh"].items():
        table.add_row("mesh", f"{members} in {short_topic(topic)}")
    if "trainer" in view:
        _trainer_rows(table, view)
        _buffer_rows(table, view)
    if view.get("judge") is not None:
        table.add_row("judge", _judged(view["judge"]))
    if view.get("role") == "judge":
        table.add_row("judged", f"{view['judged']} since the start, {view['records']} records")
    if "groups_relayed" in view:
        table.add_row("relayed", f"{view['groups_relayed']} groups")
    verdicts = view["verdicts"]
    table.add_row("accepted", str(verdicts["accept"]))
    for outcome in ("ignore", "reject"):
        for reason, count in verdicts[outcome].items():
            table.add_row(f"{outcome}ed" if outcome == "reject" else "ignored", f"{count} {reason}")
    console.print(table)


def _judged(judge: dict[str, Any]) -> str:
    if judge["judged"]:
        latest = f"{number(judge['score'])} at round {judge['round']}"
        return f"{number(judge['mean_score'])}, mean of the last 20; {latest}"
    return judge["error"] or "not asked yet"


def _trainer_rows(table: Table, view: dict[str, Any]) -> None:
    trainer = view["trainer"]
    pid = f", pid {trainer['pid']}" if trainer["pid"] else ""
    table.add_row("trainer", f"{trainer['state']}{pid}, {trainer['restarts']} restarts")
    table.add_row("round", str(view["round"]))
    table.add_row(
        "own reward",
        f"{number(trainer['reward_local'])}  (start {number(trainer['reward_start'])})",
    )
    table.add_row(
        "groups",
        f"{view['groups_published']} published, {view['groups_received']} received, "
        f"{view['groups_external_used']} of others trained on",
    )
    if view["outbox"]["unsent"]:
        table.add_row("outbox", f"{view['outbox']['unsent']} batches wait for a peer")


def _buffer_rows(table: Table, view: dict[str, Any]) -> None:
    buffered = view["buffer"]
    table.add_row(
        "buffer",
        f"{buffered['groups']} of {buffered['capacity_groups']} groups, "
        f"{size(buffered['bytes'])} of {size(buffered['capacity_bytes'])}, "
        f"{buffered['evicted']} evicted",
    )
    for cause, count in buffered["dropped"].items():
        table.add_row("dropped", f"{count} {cause}")


def identity(console: Console, view: dict[str, Any]) -> None:
    """Peer id, key and addresses."""
    table = _pairs()
    table.add_row("peer id", view["peer_id"])
    table.add_row("ed25519 key", view["public_key"])
    table.add_row("swarm", f"{view['swarm']['name']}  {view['swarm']['digest']}")
    for address in view["addresses"]:
        table.add_row("address", address)
    console.print(table)


def peers(console: Console, view: dict[str, Any]) -> None:
    """Connections, then what discovery is trying."""
    table = _table("peer", "address", "way", "ms", "agent", "topics", "score", "connected")
    for row in view["peers"]:
        latency = row["latency_ms"]
        table.add_row(
            peer_name(console, row["peer_id"]),
            row["address"],
            row["direction"],
            "-" if latency is None else f"{latency:.1f}",
            row["agent"] or "-",
            str(len(row["topics"])),
            f"{row['score']:g}",
            duration(row["connected_s"]),
        )
    _print(console, table, view["peers"], "nobody is connected")
    waiting = [target for target in view["targets"] if target["state"] != "connected"]
    if waiting:
        tried = _table("looking for", "known from", "state", "tries", "last error")
        for target in waiting:
            tried.add_row(
                target["address"],
                target["kind"],
                target["state"],
                str(target["attempts"]),
                _cut(_cause(target), _TEXT_CHARS),
            )
        console.print(tried)


def mesh(console: Console, view: dict[str, Any]) -> None:
    """Who is in each topic's mesh and since when."""
    for topic, members in view["topics"].items():
        console.print(f"[bold]{topic}[/bold]", soft_wrap=True)
        since = {row["peer_id"]: row["since_s"] for row in members["mesh"]}
        table = _table("peer", "in the mesh for")
        for peer_id in sorted({*since, *members["peers"]}):
            known = since.get(peer_id)
            table.add_row(peer_id, "not in the mesh" if known is None else duration(known))
        _print(console, table, members["peers"] or members["mesh"], "  nobody else is subscribed")


def topics(console: Console, view: dict[str, Any]) -> None:
    """The topics listened to or published on."""
    table = _table("topic", "listens", "peers", "in mesh", "groups/s", "publishes here")
    for row in view["topics"]:
        table.add_row(
            row["topic"],
            "yes" if row["subscribed"] else "",
            str(row["peers"]),
            str(row["mesh"]),
            f"{row['groups_per_s']:g}",
            "yes" if row["publishes"] else "",
        )
    console.print(table)
    if view["shards"] > 1:
        console.print(f"listens to {len(view['subscribed'])} of {view['shards']} shards")


def buffer(console: Console, view: dict[str, Any]) -> None:
    """The buffer by publisher."""
    table = _table("publisher", "groups", "bytes", "oldest", "newest", "draws", "received")
    for row in view["publishers"]:
        table.add_row(
            "this node" if row["own"] else peer_name(console, row["peer_id"]),
            str(row["groups"]),
            size(row["bytes"]),
            _age(row["oldest_s"]),
            _age(row["newest_s"]),
            str(row["draws"]),
            str(row["received"]),
        )
    _print(console, table, view["publishers"], "the buffer is empty")
    console.print(
        f"{view['groups']} of {view['capacity_groups']} external groups, "
        f"{size(view['bytes'])} of {size(view['capacity_bytes'])}; {view['own_groups']} own; "
        f"{view['leased']} leased, {view['evicted']} evicted"
    )


def contributions(console: Console, view: dict[str, Any]) -> None:
    """Draws against contributions."""
    table = _table("peer", "contributed", "share", "drawn", "useful", "weight", "connected")
    for row in view["peers"]:
        table.add_row(
            peer_name(console, row["peer_id"]),
            str(row["contributed"]),
            f"{row['share']:.0%}",
            str(row["drawn"]),
            "-" if row["useful"] is None else f"{row['useful']:.2f}",
            f"{row['weight']:.2f}",
            "yes" if row["connected"] else "no",
        )
    _print(console, table, view["peers"], "nobody has contributed anything yet")
    own = view["own"]
    ratio = "" if own["ratio"] is None else f", {own['ratio']:.1f} for each one contributed"
    console.print(
        f"this node: {own['contributed']} groups contributed, {own['drawn']} drawn{ratio}; "
        f"{view['silent']} connected peers have contributed nothing"
    )


def fetch(console: Console, view: dict[str, Any]) -> None:
    """How batches came, what became of gaps, and what was given to others."""
    table = _table("came by", "batches", "groups", "bytes")
    for source, count in view["batches"].items():
        came = view["bytes_in"].get(source)
        table.add_row(
            source, str(count), str(view["groups"][source]), "-" if came is None else size(came)
        )
    console.print(table)
    gaps, announced = view["gaps"], view["announced"]
    rows = _pairs()
    rows.add_row(
        "missed",
        f"{gaps['seen']} seen, {gaps['mended']} mended, {gaps['given_up']} given up, "
        f"{gaps['open']} open",
    )
    rows.add_row(
        "announced",
        f"{announced['taken_up']} taken up, {announced['given_up']} given up, "
        f"{announced['waiting']} waiting, {announced['running']} being pulled",
    )
    rows.add_row("asked", f"{view['asked']} times, {view['backfill_rounds']} rounds of backfill")
    for cause, count in view["failures"].items():
        rows.add_row("in vain", f"{count} {cause}")
    rows.add_row("on the shelf", f"{view['shelf_batches']} batches for others")
    for kind, count in view["served"].items():
        rows.add_row("served", f"{count} {kind}")
    rows.add_row("given away", size(view["bytes_out"]))
    for cause, count in view["refused"].items():
        rows.add_row("refused", f"{count} {cause}")
    console.print(rows)


def rollouts(console: Console, view: dict[str, Any]) -> None:
    """The latest rollouts."""
    for row in view["rollouts"]:
        who = "this node" if row["own"] else row["publisher"]
        console.print(
            f"[bold]#{row['number']}[/bold] {row['family']} from {who}, round {row['round']}, "
            f"{duration(row['age_s'])} ago, reward {number(row['reward'])}",
            soft_wrap=True,
        )
        question = (row["question"] or "(question not available)").strip().replace("\n", " ")
        console.print(f"  {_cut(question, _QUESTION_CHARS)}", markup=False, soft_wrap=True)
        for completion in row["completions"]:
            text = _cut(completion["text"].replace("\n", " "), _TEXT_CHARS)
            ending = "" if completion["finish_reason"] == "stop" else " … cut"
            reward = completion["reward"]
            mark = "    ?" if reward is None else f"{reward:5.2f}"
            console.print(f"  {mark}  {text}{ending}", markup=False, soft_wrap=True)
    if not view["rollouts"]:
        console.print("no rollouts yet")


def duration(seconds: float) -> str:
    """Return seconds as people say them."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def size(count: float) -> str:
    """Return bytes in binary units."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def number(value: float | None) -> str:
    """Return a reward, or a dash where there is none."""
    return "-" if value is None else f"{value:.3f}"


def peer_name(console: Console, peer_id: str) -> str:
    """Return a peer id, in a narrow terminal only its end; `--json` has all of it."""
    return peer_id if console.width >= _WIDE else f"…{peer_id[-10:]}"


def short_topic(topic: str) -> str:
    """Return a topic with the swarm's digest cut to what tells swarms apart."""
    parts = topic.split("/")
    return "/".join(part[:12] if len(part) == 64 else part for part in parts)


def _cause(target: dict[str, Any]) -> str:
    """Return why a dial failed, without the address that stands beside it."""
    error: str = target["last_error"]
    return error.rpartition(f"{target['peer_id']}: ")[2] or "-"


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _pairs() -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _print(console: Console, table: Table, rows: Sequence[object], if_none: str) -> None:
    console.print(table if rows else if_none)
