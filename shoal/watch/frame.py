"""One screen of `shoal watch`: seven questions and their answers, as many lines as there is room.

    Shown ─▶ title, a block a question ─▶ lines shared out ─▶ exactly as wide and high as asked

No I/O of its own. In a wide terminal a question stands in full before its answer, in a narrow one
as a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from shoal.layout import duration
from shoal.view.model import Shown
from shoal.watch import blocks
from shoal_base.terminal import Terminal, styled

FULL_COLUMNS: Final = 72
"""From here on questions stand in full."""
_ENDLESS: Final = 1 << 16
"""Columns of a line that nobody breaks: into a pipe."""
_SPACE: Final = 2
_QUIET: Final = "dim"
_WRAPPER: Final = Terminal(file=None, force_terminal=False, width=80)

_ORDER: Final = (0, 2, 1, 2, 0, 3, 2, 4, 2, 5, 4, 3, 6, 4, 6)
"""Which block gets the next line, round and round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One question."""

    asks: str
    word: str
    """It, where there is little room."""
    lines: Sequence[Text]
    """At least one."""


def frame(shown: Shown, *, width: int, height: int | None, foot: str = "") -> Text:
    """Return a screen of at most `height` lines; None is as many as there are, none of them broken.

    `foot` is the last line, which people need to get away.
    """
    width = max(10, width)
    full = width >= FULL_COLUMNS
    asked = [(b.asks if full else b.word) for b in _blocks(shown, 0)]
    indent = max(map(cell_len, asked)) + _SPACE
    found = _blocks(shown, _ENDLESS if height is None else width - indent)
    foot_lines = [styled((foot, _QUIET))] if foot else []
    room = None if height is None else max(0, height - 1 - len(foot_lines))
    lines = [_title(shown, width)]
    for block, question, count in zip(found, asked, _shares(found, room), strict=True):
        for number, line in enumerate(block.lines[:count]):
            head = question if number == 0 else ""
            lines.append(Text.assemble((set_cell_size(head, indent), "bold"), line))
    lines += [] if height is None else [Text("")] * (room_left(room, lines) - len(foot_lines) + 1)
    return _joined([*lines, *foot_lines], width, height)


def room_left(room: int | None, lines: Sequence[Text]) -> int:
    """Return how many lines are left below those that stand there."""
    return 0 if room is None else max(0, room + 1 - len(lines))


def _joined(lines: Sequence[Text], width: int, height: int | None) -> Text:
    if height is not None:
        lines = lines[:height]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


def _shares(found: Sequence[Block], room: int | None) -> list[int]:
    """Share the lines out: one to each question in turn, more to those that have more to say."""
    wanted = [len(block.lines) for block in found]
    if room is None:
        return wanted
    shares = [0] * len(found)
    for index in range(len(found)):
        if sum(shares) < room:
            shares[index] = 1
    while sum(shares) < room and shares != wanted:
        for index in _ORDER:
            if sum(shares) < room and shares[index] < wanted[index]:
                shares[index] += 1
    return shares


def _title(shown: Shown, width: int) -> Text:
    up = shown.right.uptime_s
    left = f"shoal {shown.kind} {shown.name}" + (f"  …{shown.short}" if shown.short else "")
    rounds = f"round {shown.learning.round}" if shown.learning.round else ""
    right = "  ".join(filter(None, (rounds, "" if up is None else f"up {duration(up)}")))
    swarm = f"  swarm {shown.swarm.name} {shown.swarm.digest[:12]}" if shown.swarm.name else ""
    if cell_len(left) + cell_len(swarm) + cell_len(right) + 2 <= width:
        left += swarm
    gap = width - cell_len(left) - cell_len(right)
    return styled((left + " " * max(1, gap) + right, "bold reverse"))


def _blocks(shown: Shown, room: int) -> list[Block]:
    return [
        Block(asks=asks, word=word, lines=list(_wrapped(make(shown, room), room)) or [Text("-")])
        for asks, word, make in (
            ("Am I all right?", "right", blocks.right),
            ("Is it learning?", "learning", blocks.learning),
            ("From whom?", "from", blocks.publishers),
            ("Is it worth it?", "worth", blocks.worth),
            ("What was said?", "said", blocks.said),
            ("What was refused?", "refused", blocks.refused),
            ("What now?", "now", blocks.now),
        )
    ]


def _wrapped(lines: Iterator[Text], room: int) -> Iterator[Text]:
    """Break sentences between words; rows of a table, marked `no_wrap`, stay whole."""
    for line in lines:
        if line.no_wrap or room < 1:
            yield line
        else:
            yield from line.wrap(_WRAPPER, room)
