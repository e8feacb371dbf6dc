"""`shoal debug buffer`, `contributions`, `fetch` and `rollouts`: what became of whose groups."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from shoal.debug.node import Answer, RunningNode, Tell
from shoal.layout import (
    age,
    cut,
    duration,
    local_time,
    number,
    pairs,
    peer_name,
    print_table,
    print_wrapped,
    size,
    table,
)
from shoal_base.terminal import styled
from shoal_base.visible import visible, visible_name
from shoal_settings.parser import whole

_QUESTION_CHARS = 2000
_TEXT_CHARS = 60
_FOLLOW_SECONDS = 0.5
_MOST_AT_ONCE = 200


def buffer(console: Console, view: dict[str, Any]) -> None:
    """The buffer by publisher."""
    rows = table(
        *("publisher", "groups", "bytes", "oldest", "newest", "draws", "received"),
        below=("received", "draws", "bytes"),
    )
    for row in view["publishers"]:
        rows.add_row(
            "this node" if row["own"] else peer_name(console, row["peer_id"]),
            str(row["groups"]),
            size(row["bytes"]),
            age(row["oldest_s"]),
            age(row["newest_s"]),
            str(row["draws"]),
            str(row["received"]),
        )
    print_table(console, rows, "the buffer is empty")
    console.print(
        f"{view['groups']} of {view['capacity_groups']} external groups, "
        f"{size(view['bytes'])} of {size(view['capacity_bytes'])}; {view['own_groups']} own; "
        f"{view['leased']} leased, {view['evicted']} evicted"
    )


def ledger(console: Console, view: dict[str, Any]) -> None:
    """From whom the trainer has learnt, then how its own answers to each family fare."""
    rows = table(
        *("learnt from", "model", "groups", "of", "signal", "10 min", "reward", "last"),
        below=("model", "last"),
    )
    for row in view["publishers"]:
        rows.add_row(
            "this node" if row["own"] else peer_name(console, row["peer_id"]),
            visible_name(row["model"]) or "-",
            str(row["trained"]),
            str(row["looked_at"]),
            f"{row['signal']:.1f}",
            str(row["trained_10m"]),
            number(row["reward"]),
            age(row["last_s"]),
        )
    print_table(console, rows, "no trainer has said yet what it learnt from")
    families = table("family", "own groups", "reward", "at first")
    for row in view["families"]:
        families.add_row(
            visible_name(row["name"]),
            str(row["groups"]),
            number(row["reward"]),
            number(row["reward_start"]),
        )
    if view["families"]:
        print_table(console, families)
    lately = view["lately"]
    received = lately.get("bytes_in")
    if lately["others_signal_share"] is not None:
        console.print(
            f"in the last {duration(lately['window_s'])}: {lately['others_signal_share']:.0%} of "
            f"the signal came from others, {lately['groups_others']} groups of "
            f"{lately['tokens_others']} tokens"
            + ("" if received is None else f"; {size(received)} came in over the network")
        )


def present_or_left(
    node: RunningNode, arguments: argparse.Namespace, tell: Tell
) -> Iterator[Answer]:
    """Ask the node, or with `--last` the folder of one that has ended."""
    if not arguments.last:
        yield node.ask("ledger")
        return
    left = node.last_ledger()
    if left["at_ms"]:
        tell(f"as it was when the node trained last, {local_time(left['at_ms'])}")
    yield left


def contributions(console: Console, view: dict[str, Any]) -> None:
    """Draws against contributions."""
    rows = table(
        *("peer", "contributed", "share", "drawn", "useful", "weight", "connected"),
        below=("connected", "weight", "share"),
    )
    for row in view["peers"]:
        rows.add_row(
            peer_name(console, row["peer_id"]),
            str(row["contributed"]),
            f"{row['share']:.0%}",
            str(row["drawn"]),
            "-" if row["useful"] is None else f"{row['useful']:.2f}",
            f"{row['weight']:.2f}",
            "yes" if row["connected"] else "no",
        )
    print_table(console, rows, "nobody has contributed anything yet")
    own = view["own"]
    ratio = "" if own["ratio"] is None else f", {own['ratio']:.1f} for each one contributed"
    console.print(
        f"this node: {own['contributed']} groups contributed, {own['drawn']} drawn{ratio}; "
        f"{view['silent']} connected peers have contributed nothing"
    )


def fetch(console: Console, view: dict[str, Any]) -> None:
    """How batches came, what became of gaps, and what was given to others."""
    rows = table("came by", "batches", "groups", "bytes")
    for source, count in view["batches"].items():
        num_bytes = view["bytes_in"].get(source)
        shown = "-" if num_bytes is None else size(num_bytes)
        rows.add_row(source, str(count), str(view["groups"][source]), shown)
    print_table(console, rows)
    gaps, announced = view["gaps"], view["announced"]
    facts = pairs()
    facts.add_row(
        "missed",
        f"{gaps['seen']} seen, {gaps['mended']} mended, {gaps['given_up']} given up, "
        f"{gaps['open']} open",
    )
    facts.add_row(
        "announced",
        f"{announced['taken_up']} taken up, {announced['given_up']} given up, "
        f"{announced['waiting']} waiting, {announced['running']} being pulled",
    )
    facts.add_row("asked", f"{view['asked']} times, {view['backfill_rounds']} rounds of backfill")
    for cause, count in view["failures"].items():
        facts.add_row("in vain", f"{count} {cause}")
    facts.add_row("on the shelf", f"{view['shelf_batches']} batches for others")
    for kind, count in view["served"].items():
        facts.add_row("served", f"{count} {kind}")
    facts.add_row("given away", size(view["bytes_out"]))
    for cause, count in view["refused"].items():
        facts.add_row("refused", f"{count} {cause}")
    console.print(facts)


def add_follow(parser: argparse.ArgumentParser) -> None:
    """Add `--follow` and `--limit`."""
    parser.add_argument("--follow", action="store_true", help="go on as new ones come")
    parser.add_argument("--limit", type=whole(1), default=10, metavar="N", help="how many (10)")


def latest(node: RunningNode, arguments: argparse.Namespace, _tell: Tell) -> Iterator[Answer]:
    """The latest rollouts, and with `--follow` new ones whenever there are any."""
    answer = node.ask("rollouts", limit=arguments.limit)
    yield answer
    after = 0
    while arguments.follow:
        after = max([after, *(rollout["number"] for rollout in answer["rollouts"])])
        time.sleep(_FOLLOW_SECONDS)
        answer = node.ask("rollouts", after=after, limit=_MOST_AT_ONCE)
        if answer["rollouts"]:
            yield answer


def rollouts(console: Console, view: dict[str, Any]) -> None:
    """The latest rollouts."""
    for row in view["rollouts"]:
        who = "this node" if row["own"] else row["publisher"]
        told = (
            f" {visible_name(row['family'])} from {who}, round {row['round']}, "
            f"{duration(row['age_s'])} ago, reward {number(row['reward'])}"
        )
        head = styled((f"#{row['number']}", "bold"), told)
        console.print(head, soft_wrap=not console.is_terminal)
        question = (row["question"] or "(question not available)").strip().replace("\n", " ")
        print_wrapped(console, cut(visible(question), _QUESTION_CHARS))
        for completion in row["completions"]:
            text = cut(visible(completion["text"].replace("\n", " ")), _TEXT_CHARS)
            ending = "" if completion["finish_reason"] == "stop" else " … cut"
            reward = completion["reward"]
            mark = "    ?" if reward is None else f"{reward:5.2f}"
            print_wrapped(console, f"{text}{ending}", head=f"  {mark}  ")
    if not view["rollouts"]:
        console.print("no rollouts yet")
