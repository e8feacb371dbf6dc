"""Locations of this repository's packages: the root, or a folder of its own."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOLDERS = ("p2p", "policy", "bootstrap", "proto", "lab")


def package_folders(tree: Path = ROOT) -> tuple[Path, ...]:
    """Return the folders in which Python must look for a tree's packages."""
    return (tree, *(tree / name for name in HOLDERS))


def python_path(tree: Path = ROOT) -> str:
    """Return `package_folders` as a value of PYTHONPATH."""
    return os.pathsep.join(map(str, package_folders(tree)))
