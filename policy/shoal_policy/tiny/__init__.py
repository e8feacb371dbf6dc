"""The models that ship with shoal: small folders that any `from_pretrained` loads.

Cheap to import: nothing here needs torch. `shoal_lab.warmstart` makes the folders.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

ASSETS: Final = Path(__file__).parent / "assets"


class Profile(StrEnum):
    """The shipped models, by their skill before reinforcement learning."""

    DENSE = "dense"
    """About one answer in eight is right: a node alone visibly learns within minutes."""
    SPARSE = "sparse"
    """About one answer in a hundred is right: where sharing rollouts matters most."""
    GAMES = "games"
    """Wins about three in ten games of the preset `games-1`, and answers nothing else."""


PLAYER: Final = "tiny-games"
"""The name of the embedded model that plays the preset `games-1`."""

MODEL_NAMES: Final[Mapping[str, Profile]] = {
    "tiny": Profile.DENSE,
    "tiny-sparse": Profile.SPARSE,
    PLAYER: Profile.GAMES,
}
"""The names of the embedded models in `--model`."""


def assets_path(profile: Profile | str = Profile.DENSE) -> Path:
    """Return the folder of a shipped model. Raises ValueError for an unknown profile."""
    return ASSETS / Profile(profile)


def embedded_folder(name: str) -> Path | None:
    """Return the folder of the embedded model called `name`; None if it is not one."""
    profile = MODEL_NAMES.get(name)
    return None if profile is None else assets_path(profile)
