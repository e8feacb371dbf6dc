"""A folder's memory of its run: the swarm's manifest, and the task files of its families.

    manifest.bin       the manifest, as sent on the network
    task-files.json    who defined it; and each task file's path, family, and a digest of each key

A damaged or missing file counts as no memory: nothing here raises for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shoal_base.files import SMALL_FILE_BYTES, read_at_most, write_atomically
from shoal_base.toml_file import read_toml
from shoal_tasks.spec import FamilySpec
from shoal_wire.errors import ManifestError
from shoal_wire.limits import MAX_MANIFEST_BYTES
from shoal_wire.manifest import Manifest, decode_manifest

log = logging.getLogger(__name__)

MANIFEST_FILE: Final = "manifest.bin"
TASK_FILES_FILE: Final = "task-files.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTaskFile:
    """A task file with which a run was started."""

    path: str
    family: str = ""
    keys: Mapping[str, str]
    """A digest of each key's value in the file, to detect which ones changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMemory:
    """The memory of one folder's run."""

    manifest: Manifest | None = None
    is_founded: bool = False
    """True if the folder's own settings defined the manifest; False if peers did."""
    files: tuple[SavedTaskFile, ...] = ()
    had: frozenset[str] = frozenset()
    """Digests, in hexadecimal, of the families that this machine could use in the last run."""


def load_memory(data_dir: Path) -> RunMemory:
    """Load what a folder remembers."""
    noted = _read_notes(data_dir)
    return RunMemory(
        manifest=load_manifest(data_dir),
        is_founded=noted.get("founded") is True,
        files=_files_in(noted),
        had=frozenset(_texts(noted.get("had"))),
    )


def save_memory(
    data_dir: Path,
    manifest: Manifest,
    task_files: Sequence[str],
    *,
    families: Sequence[FamilySpec],
    is_founded: bool,
) -> None:
    """Save a run that begins or continues here with these `families`. Raises OSError."""
    had = [spec.digest.hex() for spec in families]
    save_task_files(data_dir, task_files, had=had, is_founded=is_founded)
    save_manifest(data_dir, manifest)


def forget_manifest(data_dir: Path) -> None:
    """Delete the folder's manifest, for a start that the user allowed to be another swarm."""
    with contextlib.suppress(FileNotFoundError):
        (data_dir / MANIFEST_FILE).unlink()


def load_manifest(data_dir: Path) -> Manifest | None:
    """Return the manifest of the folder's last run, if it is usable."""
    try:
        return decode_manifest(read_at_most(data_dir / MANIFEST_FILE, MAX_MANIFEST_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, ManifestError) as error:
        log.warning("ignoring the saved manifest: %s", error)
        return None


def save_manifest(data_dir: Path, manifest: Manifest) -> None:
    """Save a manifest for the next start. Raises OSError."""
    write_atomically(data_dir / MANIFEST_FILE, manifest.raw)


def save_task_files(
    data_dir: Path,
    files: Sequence[str],
    *,
    had: Sequence[str] = (),
    is_founded: bool = False,
) -> None:
    """Save the paths of a run's task files, for commands that score like it. Raises OSError."""
    noted = [
        {"path": one.path, "family": one.family, "keys": dict(one.keys)}
        for one in map(read_for_saving, files)
    ]
    content = json.dumps({"founded": is_founded, "had": list(had), "files": noted})
    write_atomically(data_dir / TASK_FILES_FILE, content.encode())


def saved_task_files(data_dir: Path) -> tuple[str, ...]:
    """Return the paths of the run's task files; empty if no run has saved any."""
    return tuple(one.path for one in _files_in(_read_notes(data_dir)))


def read_for_saving(file: str) -> SavedTaskFile:
    """Return what to remember of a task file, whether or not it can be used."""
    path = str(Path(file).resolve())
    try:
        table = read_toml(Path(file))
    except (OSError, ValueError):
        return SavedTaskFile(path=path, keys={})
    keys = {key: _short_digest(value) for key, value in table.items()}
    return SavedTaskFile(path=path, family=str(table.get("name", "")), keys=keys)


def _short_digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _read_notes(data_dir: Path) -> Mapping[str, object]:
    try:
        found = json.loads(read_at_most(data_dir / TASK_FILES_FILE, SMALL_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _files_in(noted: Mapping[str, object]) -> tuple[SavedTaskFile, ...]:
    files = noted.get("files")
    return tuple(
        SavedTaskFile(path=str(one["path"]), family=str(one.get("family")), keys=_keys_in(one))
        for one in (files if isinstance(files, list) else ())
        if isinstance(one, dict) and "path" in one
    )


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _keys_in(noted: Mapping[str, object]) -> Mapping[str, str]:
    keys = noted.get("keys")
    return {str(key): str(value) for key, value in keys.items()} if isinstance(keys, dict) else {}
