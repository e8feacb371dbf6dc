"""The seven answers of `shoal watch`, most important lines first. No I/O of its own.

Text from peers comes from the view model, where control characters are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from shoal.layout import number
from shoal.view.model import PublisherShown, ShownPeer
from shoal.view.worth import in_words
from shoal_base.terminal import Part, styled
from shoal_ipc.answers.held_out import held_out_words
from shoal_ipc.answers.words import duration

COLOURS: Final = {
    "ok": "green",
    "early": "",
    "warn": "yellow",
    "bad": "red",
    "down": "magenta",
    "fine": "",
    "me": "",
    "doubted": "yellow",
    "banned": "red",
    "blocked": "red",
}
"""Colours of states. The word is always printed too."""
_WIDE: Final = 56
"""Terminal width from which tables have all their columns."""


def _row(*parts: Part) -> Text:
    """Return a line that is cut at the width, not wrapped."""
    line = styled(*parts)
    line.no_wrap = True
    return line


def right(shown: ShownPeer, _room: int) -> Iterator[Text]:
    """Is it healthy?"""
    one = shown.health
    yield styled((f"{one.state}: ", COLOURS[one.state]), one.message)
    if one.phase:
        yield styled(one.phase)
    if one.remedy:
        yield styled(f"→ {one.remedy}")
    if one.last_error:
        yield styled(f"the last trainer ended: {one.last_error}")


def learning(shown: ShownPeer, _room: int) -> Iterator[Text]:
    """Is it learning?"""
    one = shown.learning
    if one.reward_local is None and not one.message:
        yield styled(("no report of a trainer yet", "dim"))
        return
    if one.answer:
        yield styled(one.answer)
    held_out = held_out_words(one.held_out_initial, one.held_out)
    own = f"own reward {number(one.reward_local)} (start {number(one.reward_initial)})"
    yield styled(f"held-out {held_out}  {own}" if held_out else own)
    if one.message:
        yield styled((f"{one.state}: ", COLOURS.get(one.state, "")), one.message)
    for finding in one.findings:
        yield styled(f"→ {finding.remedy}")
        if finding.example:
            yield styled(finding.example)
    for family in one.families:
        start = number(family.reward_initial)
        yield _row(f"{number(family.reward)} (start {start})  {family.name}")


def publishers(shown: ShownPeer, room: int) -> Iterator[Text]:
    """Show publishers; for a bootstrap or judge, connected peers and join addresses."""
    if shown.kind != "node" and (shown.connections or shown.join_addresses):
        yield from _here(shown)
        return
    if not shown.publishers:
        yield styled(("no publisher yet", "dim"))
        return
    wide = room >= _WIDE
    heads = _columns("", ("groups", "signal", "reward"), wide)
    yield _row((f"{heads}reputation", "dim"))
    for one in shown.publishers:
        figures = (str(one.groups_trained), f"{one.signal:.0f}", number(one.reward))
        reputation = (_reputation(one), COLOURS[one.reputation])
        model = f"  {one.model}" if wide and one.model else ""
        yield _row(_columns(one.name or f"…{one.short}", figures, wide), reputation, model)


def _columns(name: str, figures: Sequence[str], wide: bool) -> str:
    """Return a row without its last column; a narrow one has two numbers."""
    shown = "".join(f" {one:>6}" for one in figures[: 3 if wide else 2])
    return f"{name:<11}{shown}{'  ' if wide else ' '}"


def _here(shown: ShownPeer) -> Iterator[Text]:
    for one in shown.connections:
        relayed = ", relay" if one.relayed else ""
        yield _row(f"…{one.peer_id[-10:]}  for {duration(one.connected_s)}{relayed}")
    if not shown.connections:
        yield styled(("no peer is connected", "dim"))
    for address in shown.join_addresses:
        yield styled(f"join address {address}")


def _reputation(one: PublisherShown) -> str:
    if one.is_local:
        return "me"
    away = "" if one.connected else ", disconnected"
    banned = "" if one.banned_s is None else f" {duration(one.banned_s)}"
    return f"{one.reputation}{banned}{', relay' if one.relayed else ''}{away}"


def worth(shown: ShownPeer, _room: int) -> Iterator[Text]:
    """Is it worth it?"""
    one = shown.benefit
    for line in (one.message, in_words(one.costs), in_words(one.gains)):
        if line:
            yield styled(line)


def rollouts(shown: ShownPeer, _room: int) -> Iterator[Text]:
    """Show rollouts, scored ones first."""
    if not shown.rollouts:
        stopped = "rollouts are shown while the node runs; `shoal export data` writes those on disk"
        yield styled((stopped if shown.health.state == "down" else "nothing yet", "dim"))
    for one in sorted(shown.rollouts, key=lambda one: one.reward is None):
        by = "this node" if one.is_local else f"…{one.publisher[-10:]}"
        used = {True: "trained on", False: one.skip_reason, None: ""}[one.used]
        yield _row(f"{number(one.reward):>5}  {by:<11} {one.family}", f"  {used}" if used else "")


def refused(shown: ShownPeer, _room: int) -> Iterator[Text]:
    """Show refusals."""
    counts = shown.refused.counts
    if not counts:
        nothing = "nothing is on record" if shown.health.state == "down" else "nothing"
        yield styled((nothing, "dim"))
        return
    yield _row(", ".join(f"{one.count} {one.reason}" for one in counts))
    for one in shown.refused.recent:
        ago = duration(max(0.0, shown.at_unix - one.at_ms / 1000))
        family = f" ({one.family})" if one.family else ""
        times = f" {one.count} times" if one.count > 1 else ""
        yield styled(f"{ago} ago{times}, from …{one.forwarder[-10:]}: {one.message}{family}")
        yield styled(f"→ {one.remedy}")


def now(shown: ShownPeer, room: int) -> Iterator[Text]:
    """Show advice."""
    for one in shown.next_steps:
        fits = cell_len(one.command) + cell_len(one.message) + 2 <= room
        yield styled(one.command, (f"  {one.message}" if fits else "", "dim"))
