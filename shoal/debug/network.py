"""`shoal debug peers`, `mesh`, `topics` and `addresses`: whom a peer is connected to, and where."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from shoal.layout import cut, duration, peer_name, print_table, size, table, topic_name
from shoal_base.visible import visible, visible_name

_ERROR_CHARS = 60


def peers(console: Console, view: dict[str, Any]) -> None:
    """Connections, then what discovery is trying."""
    counted = ("in", "out") if any("bytes_in" in row for row in view["peers"]) else ()
    rows = table(
        *("peer", "address", "way", "ms", "agent", "topics", "score", "connected", *counted),
        below=("address", "agent"),
    )
    for row in view["peers"]:
        latency = row["latency_ms"]
        rows.add_row(
            peer_name(console, row["peer_id"]),
            row["address"],
            row["direction"] + ", relay" * bool(row.get("relayed")),
            "-" if latency is None else f"{latency:.1f}",
            visible_name(row["agent"]) or "-",
            str(len(row["topics"])),
            f"{row['score']:g}",
            duration(row["connected_s"]),
            *(size(row.get(f"bytes_{way}", 0)) for way in counted),
        )
    print_table(console, rows, "nobody is connected")
    waiting = [target for target in view["targets"] if target["state"] != "connected"]
    if waiting:
        tried = table(
            *("looking for", "known from", "state", "tries", "last error"), below=("last error",)
        )
        for target in waiting:
            tried.add_row(
                target["address"],
                target["kind"],
                target["state"],
                str(target["attempts"]),
                cut(visible(_cause(target)), _ERROR_CHARS),
            )
        print_table(console, tried)


def refusals(console: Console, view: dict[str, Any]) -> None:
    """What was not taken: how often for each reason, then the latest, each with what to do."""
    for row in view["counts"]:
        console.print(f"{row['count']:>6}  {row['reason']}: {row['says']}", soft_wrap=True)
    if not view["counts"]:
        console.print("nothing was refused since the start")
    for row in view["ring"]:
        ago = duration(max(0.0, view["at_ms"] - row["at_ms"]) / 1000)
        times = f", {row['times']} times" if row["times"] > 1 else ""
        family = f" ({visible_name(row['family'])})" if row["family"] else ""
        signer = peer_name(console, row["signer"]) if row["signer"] else "nobody known"
        forwarder = peer_name(console, row["forwarder"])
        by = (
            f"from {forwarder}"
            if row["signer"] == row["forwarder"]
            else (f"of {signer}, brought by {forwarder}")
        )
        console.print()
        console.print(f"{ago} ago{times}: {row['says']}{family}; {by}", soft_wrap=True)
        console.print(f"  → {row['do']}", soft_wrap=True)


def mesh(console: Console, view: dict[str, Any]) -> None:
    """Who is in each topic's mesh and since when."""
    for topic, members in view["topics"].items():
        console.print(topic, style="bold", soft_wrap=True)
        since = {row["peer_id"]: row["since_s"] for row in members["mesh"]}
        rows = table("peer", "in the mesh for", below=("in the mesh for",))
        for peer_id in sorted({*since, *members["peers"]}):
            known = since.get(peer_id)
            rows.add_row(peer_id, "not in the mesh" if known is None else duration(known))
        print_table(console, rows, "  nobody else is subscribed")


def topics(console: Console, view: dict[str, Any]) -> None:
    """The topics listened to or published on."""
    rows = table(
        *("topic", "listens", "peers", "in mesh", "groups/s", "publishes here"),
        below=("publishes here", "groups/s", "in mesh"),
    )
    for row in view["topics"]:
        rows.add_row(
            topic_name(console, row["topic"]),
            "yes" if row["subscribed"] else "",
            str(row["peers"]),
            str(row["mesh"]),
            f"{row['groups_per_s']:g}",
            "yes" if row["publishes"] else "",
        )
    print_table(console, rows)
    if view["shards"] > 1:
        console.print(f"listens to {len(view['subscribed'])} of {view['shards']} shards")


def _cause(target: dict[str, Any]) -> str:
    """Return why a dial failed, without the address that stands beside it."""
    error: str = target["last_error"]
    return error.rpartition(f"{target['peer_id']}: ")[2] or "-"


def addresses(console: Console, view: dict[str, Any]) -> None:
    """Where others find it, the best first."""
    rows = table("address", "for", "known", "whose", below=("address",))
    for row in view["addresses"]:
        known = {"reached": "reached", "failed": "not reached"}.get(row["tried"], "not tried")
        way = "relay, " if row["relayed"] else ""
        rows.add_row(row["address"], _WHO_IS_THERE[row["scope"]], way + known, row["whose"])
    print_table(console, rows, "it listens nowhere")


_WHO_IS_THERE = {"public": "everybody", "private": "its network", "loopback": "this machine"}
