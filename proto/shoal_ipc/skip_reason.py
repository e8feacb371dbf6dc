"""The reasons why a round skips a group, shared by trainer and node. Pure."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final


class SkipReason(StrEnum):
    """Why a round did not train on a group."""

    NO_REWARD = "no_reward"
    ALL_SAME = "all_same"
    UNTOKENIZABLE = "untokenizable"
    HELD_OUT = "held_out"
    OVER_QUOTA = "over_quota"
    UNSCORED = "unscored"
    TASK_ENDED = "task_ended"
    DUPLICATE = "duplicate"
    NONFINITE = "nonfinite"
    NOT_NEEDED = "not_needed"


SKIP_REASON_TEXTS: Final = MappingProxyType(
    {
        SkipReason.NO_REWARD: "no signal: no answer earned anything",
        SkipReason.ALL_SAME: "no signal: all answers scored the same",
        SkipReason.UNTOKENIZABLE: "its right answers are too long, or change when this "
        "model's tokenizer re-encodes them",
        SkipReason.HELD_OUT: "its question is held out for evaluation",
        SkipReason.OVER_QUOTA: "its source has used its share",
        SkipReason.UNSCORED: "this node's judge took too long, or graded none of its answers",
        SkipReason.TASK_ENDED: "its task was removed from this node",
        SkipReason.DUPLICATE: "a copy of a group that was trained on",
        SkipReason.NONFINITE: "the loss or gradient of its step was not finite",
        SkipReason.NOT_NEEDED: "there were enough local groups",
    }
)
"""The reasons as text for people."""


def skip_reason_text(word: str) -> str:
    """Return a reason as text for people; empty for an unknown one of another version."""
    return next((says for code, says in SKIP_REASON_TEXTS.items() if code == word), "")
