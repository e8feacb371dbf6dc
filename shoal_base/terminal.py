"""A terminal for `rich` on which text only stands: no markup in it, and nothing in it acts."""

from __future__ import annotations

from collections.abc import Iterable
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

    def render_str(self, text: str, **how: Any) -> Text:
        """Return a string as what it is."""
        plain = {"markup": False, "emoji": False, "highlight": False, "highlighter": None}
        return super().render_str(visible(text), **{**how, **plain})

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield what is to be written; here nothing passes that came another way."""
        for segment in super().render(renderable, options):
            text = segment.text
            if segment.control or text.isprintable() or text == "\n":
                yield segment
            else:
                yield Segment(_inert(text), segment.style)


def styled(*parts: Part) -> Text:
    """Return text whose parts are in their styles; each is made visible."""
    text = Text()
    for part in parts:
        words, style = (part, "") if isinstance(part, str) else part
        text.append(visible(words), style)
    return text


def _inert(text: str) -> str:
    return "".join(numbered(c) if acts(c) and c != "\n" else c for c in text)
