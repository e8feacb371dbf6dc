"""One screen of `shoal watch`: seven headings and their blocks, cut to the height.

    Shown ─▶ title and blocks ─▶ lines distributed ─▶ exactly the requested size

No I/O of its own. A wide terminal shows headings in full, a narrow one keywords.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, cycle
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from shoal.layout import PIPE_CELLS
from shoal.view.blocks import parts_of
from shoal.view.model import NodeView, ShownPeer
from shoal.view.text import lines_of
from shoal_base.terminal import Terminal, styled
from shoal_ipc.answers.words import duration

FULL_COLUMNS: Final = 72
"""Width in columns from which headings are shown in full."""
_SPACE: Final = 2
_WRAPPER: Final = Terminal(file=None, force_terminal=False, width=80)
_BLOCKS: Final = (
    ("Is it healthy?", "health"),
    ("Is it learning?", "learning"),
    ("Publishers", "peers"),
    ("Is it worth it?", "worth"),
    ("Rollouts", "rollouts"),
    ("Refusals", "refused"),
    ("Next steps", "next"),
)
"""Headings, each with the name of its block, which is its keyword for narrow terminals."""
_ORDER: Final = (0, 2, 1, 2, 0, 3, 2, 4, 2, 5, 4, 3, 6, 4, 6)
"""Order in which blocks get the next line, cyclically."""


def frame(of: NodeView, *, width: int, height: int | None, foot: str = "") -> Text:
    """Return a screen of at most `height` lines; None prints all lines, unwrapped.

    `foot` is the last line: how to quit.
    """
    width = max(10, width)
    headings = [full if width >= FULL_COLUMNS else name for full, name in _BLOCKS]
    indent = max(map(cell_len, headings)) + _SPACE
    room = PIPE_CELLS if height is None else width - indent
    found = [list(_wrapped(_lines(name, of, room), room)) or [Text("-")] for _, name in _BLOCKS]
    lines = [_title(of.shown, width)]
    most = None if height is None else max(0, height - 1 - bool(foot))
    for block, heading, count in zip(found, headings, _shares(found, most), strict=True):
        heads = [heading, *[""] * len(block)]
        for head, line in zip(heads, block[:count], strict=False):
            lines.append(Text.assemble((set_cell_size(head, indent), "bold"), line))
    last = [styled((foot, "dim"))] if foot else []
    if height is not None:
        lines = [*lines, *[Text("")] * (height - len(lines) - len(last)), *last][:height]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


def _lines(name: str, of: NodeView, room: int) -> Iterator[Text]:
    return lines_of(parts_of(name, of, "watch"), room, at_unix=of.shown.at_unix)


def _shares(found: Sequence[Sequence[Text]], room: int | None) -> list[int]:
    """Distribute the lines: one to each block in turn, while it has more."""
    wanted, shares = [len(block) for block in found], [0] * len(found)
    left = sum(wanted) if room is None else min(room, sum(wanted))
    for index in chain(range(len(found)), cycle(_ORDER)):
        if not left:
            break
        if shares[index] < wanted[index]:
            shares[index] += 1
            left -= 1
    return shares


def _title(shown: ShownPeer, width: int) -> Text:
    up = shown.health.uptime_s
    left = f"shoal {shown.kind} {shown.name}" + (f"  …{shown.short}" if shown.short else "")
    rounds = f"round {shown.learning.round}" if shown.learning.round else ""
    right = "  ".join(filter(None, (rounds, "" if up is None else f"up {duration(up)}")))
    swarm = f"  swarm {shown.swarm.name} {shown.swarm.digest[:12]}" if shown.swarm.name else ""
    if cell_len(left) + cell_len(swarm) + cell_len(right) + 2 <= width:
        left += swarm
    gap = width - cell_len(left) - cell_len(right)
    return styled((left + " " * max(1, gap) + right, "bold reverse"))


def _wrapped(lines: Iterator[Text], room: int) -> Iterator[Text]:
    """Wrap sentences between words, but not table rows, which have `no_wrap`."""
    for line in lines:
        if line.no_wrap or room < 1:
            yield line
        else:
            yield from line.wrap(_WRAPPER, room)
