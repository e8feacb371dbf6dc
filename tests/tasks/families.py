"""The families that tests go through: every preset, and the generators whose scorers evaluate."""

from __future__ import annotations

from shoal_tasks.chat import CHAT_1, CHAT_2, CHAT_3
from shoal_tasks.families import EASY, EASY_PAPER, PAPER
from shoal_tasks.generators import TEXT_EVALUATING
from shoal_tasks.spec import FamilySpec

ALL_FAMILIES = EASY + EASY_PAPER + PAPER + CHAT_1 + CHAT_2 + CHAT_3

EVALUATED_FAMILIES = tuple(
    FamilySpec(name=f"{generator}_default", generator=generator)
    for generator in sorted(TEXT_EVALUATING)
)
"""The generators whose own scorer evaluates text, as the library configures them."""
