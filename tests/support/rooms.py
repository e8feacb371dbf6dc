"""Where the packages of this repository lie: in the root, or in the folder of their room."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOLDERS = ("p2p", "policy", "bootstrap", "proto", "lab")


def package_folders(tree: Path = ROOT) -> tuple[Path, ...]:
    """Return the folders that Python has to look in for the packages of a tree."""
    return (tree, *(tree / name for name in HOLDERS))


def python_path(tree: Path = ROOT) -> str:
    """Return `package_folders` as the variable PYTHONPATH has them."""
    return os.pathsep.join(map(str, package_folders(tree)))
