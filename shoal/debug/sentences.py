"""Prints the views `doctor` and `rollouts` as text instead of tables."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console

from shoal.layout import (
    MAX_CELL_CHARS,
    cut,
    number,
    print_wrapped,
)
from shoal.view.node import Answer, RunningNode, Tell
from shoal.view.text import COLOURS
from shoal_base.terminal import styled
from shoal_base.waits import RETRY_S
from shoal_ipc.answers.doctor import Doctor
from shoal_ipc.answers.form import MAX_NAME_CHARS
from shoal_ipc.answers.node import MAX_ROLLOUTS, CompletionRow, RolloutsView, TurnRow
from shoal_ipc.answers.words import duration
from shoal_settings.parser import whole

_MAX_TURNS_SHOWN: Final = 24
"""Messages of a game that are printed, of model and environment together."""


def doctor(console: Console, view: Doctor) -> None:
    """Print one line per finding, and below it the remedy."""
    for finding in view.findings:
        colour = COLOURS[finding.state]
        head = styled((f"{finding.state:<4}", colour), f"  {finding.check:<10}  ")
        print_wrapped(console, finding.message, head=head)
        if finding.remedy:
            print_wrapped(console, finding.remedy, head=f"{'':18}→ ")
    states = [finding.state for finding in view.findings]
    console.print(f"{states.count('bad')} errors, {states.count('warn')} warnings")


def add_follow(parser: argparse.ArgumentParser) -> None:
    """Add `--follow` and `--limit`."""
    parser.add_argument("--follow", action="store_true", help="print new ones until Ctrl-C")
    parser.add_argument(
        "--limit", type=whole(1), default=10, metavar="N", help="number of rollouts (10)"
    )


def latest(node: RunningNode, arguments: argparse.Namespace, _tell: Tell) -> Iterator[Answer]:
    """Yield the latest rollouts, and with `--follow` new ones as they arrive."""
    answer = node.ask("rollouts", limit=arguments.limit)
    yield answer
    after = 0
    while arguments.follow:
        after = max([after, *(rollout["number"] for rollout in answer["rollouts"])])
        time.sleep(RETRY_S)
        answer = node.ask("rollouts", after=after, limit=MAX_ROLLOUTS)
        if answer["rollouts"]:
            yield answer


def rollouts(console: Console, view: RolloutsView) -> None:
    """Print the latest rollouts."""
    for row in view.rollouts:
        who = "this node" if row.is_local else row.publisher
        summary = (
            f" {row.family} from {who}, round {row.round}, {duration(row.age_s)} ago, "
            f"reward {number(row.reward)}"
        )
        head = styled((f"#{row.number}", "bold"), summary)
        console.print(head, soft_wrap=not console.is_terminal)
        question = (row.question or "(question not available)").strip().replace("\n", " ")
        print_wrapped(console, cut(question, MAX_NAME_CHARS))
        best = max(row.completions, key=lambda one: one.reward or 0.0, default=None)
        for completion in row.completions:
            _completion(console, completion)
            if completion is best:
                _dialogue(console, completion.turns or ())
    if not view.rollouts:
        console.print("no rollouts yet")


def _completion(console: Console, row: CompletionRow) -> None:
    text = row.text or ""
    ending = "" if row.finish_reason == "stop" else " … cut"
    if row.turns is not None:
        text = " › ".join(turn.text for turn in row.turns if turn.role == "policy")
        ending = "" if row.finish_reason == "stop" else " … unfinished"
    text = cut(text.replace("\n", " "), MAX_CELL_CHARS)
    mark = "    ?" if row.reward is None else f"{row.reward:5.2f}"
    print_wrapped(console, f"{text}{ending}", head=f"  {mark}  ")


def _dialogue(console: Console, turns: Sequence[TurnRow]) -> None:
    """Print the whole best game of a group: `>` marks the policy's messages, as in `--play`."""
    number = 0
    for turn in turns[:_MAX_TURNS_SHOWN]:
        number += turn.role == "policy"
        text = cut(" ".join(turn.text.split()), MAX_CELL_CHARS)
        head = f"{number}. > " if turn.role == "policy" else ""
        print_wrapped(console, text, head=f"{head:>15}")
    if (left := len(turns) - _MAX_TURNS_SHOWN) > 0:
        console.print(f"{'':15}… and {left} more messages; --json has all")
