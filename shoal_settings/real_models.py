"""Training defaults of large models. Pure.

The settings' own defaults are for the embedded models. This table has those that differ for larger
models; docs/models.md shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shoal_settings.schema import Settings, public_name

LARGE_RATE: Final = 1e-5
ADAPTERS_RATE: Final = 10 * LARGE_RATE
EVAL_EVERY: Final = 50
EXTERNAL: Final = 4
TOKENS: Final = 64
"""Default length limit of a completion, in tokens."""
_TOKENS_WORKED_OUT: Final = 4 * TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class RealDefault:
    """A setting with another default for large models."""

    setting: str
    of: Callable[[Settings], Any]
    """Returns the value, given the other settings."""
    text: str
    """The value and its conditions, as text."""
    why: str
    """One sentence; a full stop ends it."""


REAL_DEFAULTS: Final = (
    RealDefault(
        setting="learning_rate",
        of=lambda settings: ADAPTERS_RATE if settings.lora_rank else LARGE_RATE,
        text="1e-5; 1e-4 for adapters",
        why="At the embedded models' 4e-4 one round spoils every answer.",
    ),
    RealDefault(
        setting="max_new_tokens",
        of=lambda settings: _TOKENS_WORKED_OUT if settings.task_preset == "paper" else TOKENS,
        text="64; 256 with `tasks` = paper",
        why="An answer that is cut earns nothing in a plain family and at most half in a tagged "
        "one; with worked examples most end within ten.",
    ),
    RealDefault(
        setting="external",
        of=lambda _settings: EXTERNAL,
        text="4",
        why="What was measured. With short answers the update is most of a round, and every group "
        "of others is one more to update by.",
    ),
    RealDefault(
        setting="eval_every",
        of=lambda _settings: EVAL_EVERY,
        text="50",
        why="Own reward jumps with the questions: only the same held-out ones show a course, and "
        "so seldom they cost under a tenth of the answers.",
    ),
)


def fill_in(settings: Settings, given: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """Return settings with these defaults for fields not `given`, and the names of these fields."""
    missing = [one for one in REAL_DEFAULTS if one.setting not in given]
    values = {one.setting: one.of(settings) for one in missing}
    return settings.model_copy(update=values), list(values)


def sentence(settings: Settings, fields: list[str]) -> str:
    """Return a line that names the defaults in use."""
    named = ", ".join(
        f"--{public_name(one).replace('_', '-')} {getattr(settings, one):g}" for one in fields
    )
    return f"defaults for a model of this size: {named} (docs/models.md says why)"
