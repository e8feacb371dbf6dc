"""The families that tests go through: every preset's."""

from __future__ import annotations

from shoal_tasks.chat import CHAT_1, CHAT_2, CHAT_3
from shoal_tasks.families import EASY, EASY_PAPER, PAPER

ALL_FAMILIES = EASY + EASY_PAPER + PAPER + CHAT_1 + CHAT_2 + CHAT_3
