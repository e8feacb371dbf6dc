"""How commands lay out what they show to people: tables, and values as people say them."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

_WIDE = 140
"""Columns from which tables show whole peer ids."""


def pairs() -> Table:
    """Return a table of names and values."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def table(*columns: str) -> Table:
    """Return a table with these columns; long cells fold."""
    made = Table(box=box.SIMPLE, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def print_table(console: Console, made: Table, rows: Sequence[object], if_none: str) -> None:
    """Print a table, or what to say of one without rows."""
    console.print(made if rows else if_none)


def duration(seconds: float) -> str:
    """Return seconds as people say them."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def age(seconds: float | None) -> str:
    """Return an age, or a dash where there is none."""
    return "-" if seconds is None else duration(seconds)


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


def cut(text: str, limit: int) -> str:
    """Return a text, or as much of it as fits with a mark that there is more."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def peer_name(console: Console, peer_id: str) -> str:
    """Return a peer id, in a narrow terminal only its end; `--json` has all of it."""
    return peer_id if console.width >= _WIDE else f"…{peer_id[-10:]}"


def short_topic(topic: str) -> str:
    """Return a topic with the swarm's digest cut to what tells swarms apart."""
    parts = topic.split("/")
    return "/".join(part[:12] if len(part) == 64 else part for part in parts)
