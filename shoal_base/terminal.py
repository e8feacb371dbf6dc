"""A `rich` console that prints untrusted text literally: no markup, no control characters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from shoal_base.visible import acts, numbered, visible

Part = str | tuple[str, str]
"""Text, or text and its style."""


class Terminal(Console):
    """A console on which every string, also a table's cell, is plain text of one line.

    Styles come from `styled` or a `style`, never from the text itself.
    """

    def __init__(self, **how: Any) -> None:
        """`how` are rich's options, except those that interpret text."""
        super().__init__(**how, markup=False, emoji=False, highlight=False)
        self.soft_wrap = not self.is_terminal  # a pipe gets whole lines, for grep

    def print_lines(self, text: str, *, head: str = "") -> None:
        """Print a text with its own line breaks; `head` precedes the first line."""
        for number, line in enumerate(text.split("\n")):
            self.print(line if number else f"{head}{line}", soft_wrap=True)

    def render_str(self, text: str, **how: Any) -> Text:
        """Return a string as plain text."""
        plain = {"markup": False, "emoji": False, "highlight": False, "highlighter": None}
        return super().render_str(visible(text), **{**how, **plain})

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments to write; also escapes text that did not come through `render_str`."""
        segments = map(_without_effect, super().render(renderable, options))
        yield from segments if self.is_terminal else _without_ends(segments)


def styled(*parts: Part) -> Text:
    """Return text of styled parts, each with control characters escaped."""
    text = Text()
    for part in parts:
        words, style = (part, "") if isinstance(part, str) else part
        text.append(visible(words), style)
    return text


def _without_effect(segment: Segment) -> Segment:
    if segment.control or segment.text.isprintable() or segment.text == "\n":
        return segment
    return Segment(_inert(segment.text), segment.style)


def _without_ends(segments: Iterable[Segment]) -> Iterator[Segment]:
    """Yield the segments without trailing blanks, with which rich pads lines to its width."""
    blanks = ""
    for segment in segments:
        if segment.control or segment.text == "\n":
            blanks = ""
            yield segment
            continue
        text = blanks + segment.text
        kept = text.rstrip(" ")
        blanks = text[len(kept) :]
        if kept:
            yield Segment(kept, segment.style)
    if blanks:
        yield Segment(blanks)  # of a line that continues, such as a prompt


def _inert(text: str) -> str:
    return "".join(numbered(c) if acts(c) and c != "\n" else c for c in text)
