"""What a tutorial tells its reader to do: the blocks of commands and what is seen after each. Pure.

A block is fenced as ```console. A line that begins with `$ ` is typed, `^C` is pressed, every other
line is seen, in this order. In what is seen `…` stands for anything, numbers for other numbers, a
line of `…` alone for any lines. A line that ends in `[y/N] ANSWER` is a question, and its answer is
typed once it is seen. A peer id, an address or an invitation stands for the reader's own:
later commands that have it are typed with what was seen in its place.

A comment before a block, `<!-- terminal: NAME -->`, says in which terminal it is typed;
`<!-- not played: REASON -->` that it is shown only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_FENCE = re.compile(r"((?:^<!-- .*? -->\n)*)^```console\n(.*?)^```$", re.M | re.S)
_NOTE = re.compile(r"<!-- ([\w ]+?): (.*?) -->")
_OWN = re.compile(r"/(?:ip4|ip6|dns4)/[^\s)]+|12D3KooW\w*…?|shoal1\w+…?")
_KINDS = {"12D3KooW": r"(12D3KooW\w+)", "shoal1": r"(shoal1\w+)", "/": r"(/(?:ip4|ip6|dns4)/\S+)"}
_ASKED = re.compile(r"(.*\[y/N\]) (\w+)")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
ANYTHING = "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command, and the lines that are seen after it."""

    terminal: str
    command: str
    """What is typed; empty where a key interrupts."""
    answers: bool = False
    """Whether it is typed into the command that runs."""
    seen: tuple[str, ...] = ()
    line: int
    """Where it stands in the page."""


@dataclass(slots=True)
class Own:
    """What of the reader's own took the place of what the page shows."""

    of: dict[str, str] = field(default_factory=dict)

    def typed(self, command: str) -> str:
        """Return a command as this reader types it."""
        for shown in sorted(self.of, key=len, reverse=True):
            command = command.replace(shown, self.of[shown])
        return command


def steps(page: str) -> Iterator[Step]:
    """Yield what is to be done. Raises ValueError where a block begins with no command."""
    for block in _FENCE.finditer(page):
        notes = dict(_NOTE.findall(block[1]))
        if "not played" in notes:
            continue
        first = page.count("\n", 0, block.start(2)) + 1
        yield from _of_block(block[2], first, notes)


def _of_block(text: str, first: int, notes: Mapping[str, str]) -> Iterator[Step]:
    terminal = notes.get("terminal", "main")
    command: str | None = None
    at, seen, answers = first, list[str](), False
    for number, line in enumerate(text.splitlines(), first):
        asked = None
        if not line.startswith("$ ") and line != "^C":
            if command is None:
                raise ValueError(f"line {number}: a block begins with a command, not {line!r}")
            asked = _ASKED.fullmatch(line)
            seen.append(asked[1] if asked else line)
            if not asked:
                continue
        if command is not None:
            yield Step(
                terminal=terminal, command=command, seen=tuple(seen), line=at, answers=answers
            )
        answers = asked is not None
        command, at, seen = asked[2] if asked else _typed(line), number, []
    if command is not None:
        yield Step(terminal=terminal, command=command, seen=tuple(seen), line=at, answers=answers)


def _typed(line: str) -> str:
    return line.removeprefix("$ ") if line != "^C" else ""


def find(step: Step, lines: list[str], own: Own) -> str | None:
    """Look for what should be seen in the lines that there are; return the first that is not there.

    Takes what is the reader's own into `own` once all is there.
    """
    at, loose, new = 0, False, dict[str, str]()
    for wanted in step.seen:
        if wanted.strip() == ANYTHING:
            loose = True
            continue
        pattern, names = _pattern(wanted, own.of | new)
        while at < len(lines):
            match = pattern.fullmatch(lines[at].rstrip())
            at += 1
            if match:
                new |= dict(zip(names, match.groups(), strict=True))
                break
            if not loose:
                return wanted
        else:
            return wanted
        loose = False
    own.of |= new
    return None


def _pattern(wanted: str, known: Mapping[str, str]) -> tuple[re.Pattern[str], list[str]]:
    """Return what a line is to look like, and what its groups are the reader's own of."""
    parts, names, end = [], list[str](), 0
    for own in _OWN.finditer(wanted):
        parts.append(_loosely(wanted[end : own.start()]))
        if own[0] in known:
            parts.append(re.escape(known[own[0]]))
        elif own[0] in names:
            parts.append(rf"\{names.index(own[0]) + 1}")
        else:
            parts.append(next(kind for start, kind in _KINDS.items() if own[0].startswith(start)))
            names.append(own[0])
        end = own.end()
    parts.append(_loosely(wanted[end:].rstrip()))
    return re.compile("".join(parts)), names


def _loosely(text: str) -> str:
    """Let numbers be others, anything be where `…` is, and runs of spaces be of any length."""
    parts, end = [], 0
    for number in _NUMBER.finditer(text):
        parts.append(re.escape(text[end : number.start()]) + r"\d[\d,]*(?:\.\d+)?")
        end = number.end()
    parts.append(re.escape(text[end:]))
    return re.sub(r"(?:\\ )+", r" +", "".join(parts)).replace(re.escape(ANYTHING), ".*?")
