"""Why a round did not train on a group that it had: the words of trainer and node. Pure."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Unused(StrEnum):
    """Why not."""

    NO_REWARD = "no_reward"
    ALL_SAME = "all_same"
    UNREAD = "unread"
    RESERVED = "reserved"
    REFUSED = "refused"
    UNJUDGED = "unjudged"
    COPY = "copy"
    SPOILT = "spoilt"
    NOT_NEEDED = "not_needed"


UNUSED_SAYS: Final = MappingProxyType(
    {
        Unused.NO_REWARD: "no signal: no answer earned anything",
        Unused.ALL_SAME: "no signal: all answers scored the same",
        Unused.UNREAD: "its right answers are too long, or not the same text in own tokens",
        Unused.RESERVED: "its question is kept for evaluation",
        Unused.REFUSED: "the strategy left it out",
        Unused.UNJUDGED: "this node's judge took too long, or graded none of its answers",
        Unused.COPY: "a copy of what was trained on",
        Unused.SPOILT: "a step with it gave numbers that are not finite",
        Unused.NOT_NEEDED: "there were enough own groups",
    }
)
"""The reasons in words for people."""


def unused_says(word: str) -> str:
    """Return a word for people; empty for one of another version."""
    return next((says for code, says in UNUSED_SAYS.items() if code == word), "")
