"""Finds the peers that a page shows: of the named folders, and of swarms' folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shoal_base.bounded import FEW
from shoal_ipc.client import SOCKET_NAME
from shoal_p2p.data_dir import IDENTITY_FILE


def peer_folders(named: Sequence[Path]) -> dict[str, Path]:
    """Return the folders of peers by a short name for each, no two alike.

    A folder that holds folders of peers, as that of `shoal swarm`, stands for those. Looks at the
    disk; a folder that is not there yet stands for itself.
    """
    found: dict[str, Path] = {}
    for folder in named:
        for one in _inside(folder) or [folder]:
            if len(found) < FEW and one not in found.values():
                found[_free_name(one.name or str(one), found)] = one
    return found


def _inside(folder: Path) -> list[Path]:
    if is_peer(folder):
        return []
    try:
        return sorted((one for one in folder.iterdir() if is_peer(one)), key=_order)[:FEW]
    except OSError:
        return []


def is_peer(folder: Path) -> bool:
    """Return whether a peer keeps, or has kept, its data there."""
    return any((folder / name).exists() for name in (IDENTITY_FILE, SOCKET_NAME))


def _order(folder: Path) -> tuple[str, int, str]:
    """Sort node-10 after node-9."""
    stem, _, number = folder.name.rpartition("-")
    return (stem, int(number), "") if number.isdigit() else (folder.name, 0, folder.name)


def _free_name(name: str, taken: dict[str, Path]) -> str:
    if name not in taken:
        return name
    return next(one for n in range(2, FEW + 2) if (one := f"{name} ({n})") not in taken)
