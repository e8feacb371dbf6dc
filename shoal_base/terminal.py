"""A terminal for `rich` on which text only stands: no markup in it, and nothing in it acts."""

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
    """A console. A string given to it, a table's cell among them, is text of one line.

    Styles come from `styled` or from a `style`, never out of a text.
    """

    def __init__(self, **how: Any) -> None:
        """`how` are rich's, but for what would read more into a text than stands there."""
        super().__init__(**how, markup=False, emoji=False, highlight=False)
        self.soft_wrap = not self.is_terminal  # in a pipe no line is broken: grep has it whole

    def print_lines(self, text: str, *, head: str = "") -> None:
        """Print a text as it stands, broken at its own ends of line; `head` begins the first."""
        for number, line in enumerate(text.split("\n")):
            self.print(line if number else f"{head}{line}", soft_wrap=True)

    def render_str(self, text: str, **how: Any) -> Text:
        """Return a string as what it is."""
        plain = {"markup": False, "emoji": False, "highlight": False, "highlighter": None}
        return super().render_str(visible(text), **{**how, **plain})

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield what is to be written; here nothing passes that came another way."""
        segments = map(_without_effect, super().render(renderable, options))
        yield from segments if self.is_terminal else _without_ends(segments)


def styled(*parts: Part) -> Text:
    """Return text whose parts are in their styles; each is made visible."""
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
    """Yield the same without the blanks at the end of a line, which rich fills up to its width."""
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
        yield Segment(blanks)  # of a line that goes on, as a prompt's


def _inert(text: str) -> str:
    return "".join(numbered(c) if acts(c) and c != "\n" else c for c in text)
