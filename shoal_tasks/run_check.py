"""One run per folder: refuses a start whose swarm or tasks differ from the folder's run.

memory of the folder ─┐
manifest of the start ┴─▶ equal: it resumes
                        └▶ different: one line with the differences, and two ways to continue
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shoal_base.visible import visible_name
from shoal_tasks.run_differences import (
    SWARM,
    Differences,
    differences,
    family_differences,
    shown,
)
from shoal_tasks.run_memory import RunMemory, read_for_saving
from shoal_tasks.spec import digest_of
from shoal_tasks.swarm import families_here, families_of
from shoal_wire.errors import ManifestError
from shoal_wire.manifest import Manifest, TaskFamily

WAYS: Final = (
    "use another folder (--data-dir), or --new-run here, which keeps the weights and starts new "
    "statistics"
)


_OTHERS_CHARS: Final = 100
"""Maximum characters of a list of differences after two swarms' names."""


class RunMismatchError(ManifestError):
    """A start in the folder of another run; one line with the differences and how to continue."""


def refuse_other_swarm(
    data_dir: Path, memory: RunMemory, own: Manifest, task_files: Sequence[str]
) -> None:
    """Refuse to start the swarm `own` if the folder remembers another one.

    Raises RunMismatchError.
    """
    then = memory.manifest
    if then is None or then.digest == own.digest:
        return
    found = differences(then, own, changed_keys(memory, task_files))
    raise RunMismatchError(_of_edits(data_dir, found) or _of_others(data_dir, then, own, found))


def other_checkpoint(data_dir: Path, then: str, now: str) -> RunMismatchError:
    """Return the error for a checkpoint of another swarm; both are named by hex digests."""
    return RunMismatchError(
        f"{data_dir} holds a checkpoint of swarm {then[:12]}, and this start is of swarm "
        f"{now[:12]}; {WAYS}"
    )


def refuse_other_name(data_dir: Path, memory: RunMemory, wanted: str) -> None:
    """Refuse to join a swarm named by its digest if the folder remembers another one.

    Raises RunMismatchError.
    """
    then = memory.manifest
    if then is not None and then.digest.hex() != wanted:
        raise RunMismatchError(
            f"{data_dir} holds a run of swarm {_named(then)}, and this start is of swarm "
            f"{wanted[:12]}; {WAYS}"
        )


def refuse_edited_files(data_dir: Path, memory: RunMemory, task_files: Sequence[str]) -> None:
    """Refuse task files that changed since the last run, in a swarm defined by peers.

    Raises:
        RunMismatchError: a file's family has the name of the swarm's, but differs from it.
        ManifestError: a task file cannot be used.
    """
    if memory.manifest is None:
        return
    changed = changed_keys(memory, task_files)
    for family, phrases in edited_families(memory.manifest, task_files, changed):
        if digest_of(family.generator, family.config_json).hex() in memory.had:
            raise RunMismatchError(
                f"{shown(phrases)}, and changed since the last run in {data_dir}; restore it, or "
                "start a swarm of another name (--swarm-name) in another folder (--data-dir), or "
                "here with --new-run"
            )


def edited_families(
    manifest: Manifest,
    task_files: Sequence[str],
    changed: dict[str, frozenset[str]] | None = None,
) -> list[tuple[TaskFamily, list[str]]]:
    """Return the swarm's families that differ from a local file of the same name, and how.

    Raises:
        ManifestError: a task file cannot be used.
    """
    stated = {family.name: family for family in manifest.families}
    found = []
    for own in families_of(families_here(task_files)):
        theirs = stated.get(own.name)
        if theirs is not None and theirs.config_json != own.config_json:
            keys = (changed or {}).get(own.name, frozenset())
            found.append((theirs, family_differences(theirs, own, keys, SWARM)))
    return found


def changed_keys(memory: RunMemory, task_files: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return, by family, the keys of task files whose values changed since the last run."""
    before = {one.family: one.keys for one in memory.files if one.family}
    found = {}
    for now in map(read_for_saving, task_files):
        then = before.get(now.family)
        if then is not None:
            keys = {*then, *now.keys}
            found[now.family] = frozenset(k for k in keys if then.get(k) != now.keys.get(k))
    return found


def _of_edits(data_dir: Path, found: Differences) -> str:
    """Return the line for edited families, if nothing else differs; otherwise an empty one."""
    if found.others or not found.edits:
        return ""
    return f"{shown(found.edits)} in {data_dir}; restore it, or {WAYS}"


def _of_others(data_dir: Path, then: Manifest, own: Manifest, found: Differences) -> str:
    return (
        f"{data_dir} holds a run of swarm {_named(then)}, not of {own.short_name} "
        f"({shown([*found.others, *found.edits], most=_OTHERS_CHARS)}); {WAYS}"
    )


def _named(manifest: Manifest) -> str:
    return f"{visible_name(manifest.swarm_name)} {manifest.short_name}"
