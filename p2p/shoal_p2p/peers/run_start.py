"""Checks, before a peer starts, whether its settings continue the run of its folder.

Without a bootstrap, the swarm of the settings is compared with the folder's. With a bootstrap, the
folder's swarm applies (`manifest_source`), and the files of its families must not differ.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from shoal_base.node_folders import swarm_in
from shoal_p2p.peers.manifest_source import manifest_of_settings
from shoal_settings.schema import Settings
from shoal_tasks.run_check import (
    other_checkpoint,
    refuse_edited_files,
    refuse_other_name,
    refuse_other_swarm,
)
from shoal_tasks.run_memory import RunMemory, forget_manifest, load_memory
from shoal_tasks.swarm import families_here
from shoal_wire.manifest import Manifest
from shoal_wire.types import PeerId

log = logging.getLogger(__name__)

_NOT_SET = ("default", "default for these tasks")


def check_run(settings: Settings, origins: Mapping[str, str], me: PeerId) -> None:
    """Refuse a start that would mix another run into the folder's; then nothing is changed.

    With `--new-run` or `--no-resume`, a start in another swarm removes the folder's manifest.
    `origins` is where each setting comes from.

    Raises:
        RunMismatchError: the folder has another run.
        ManifestError: a task file that cannot be used.
    """
    folder, memory = settings.data_dir, load_memory(settings.data_dir)
    accepts = settings.new_run or not settings.resume
    if settings.swarm_id != "none":
        if not accepts:
            refuse_other_name(folder, memory, settings.swarm_id)
            refuse_edited_files(folder, memory, settings.task_files)
        return
    is_joined = memory.manifest is not None and not memory.is_founded
    if is_joined and (settings.bootstrap or not _names_swarm(settings, origins, memory)):
        if not accepts:
            refuse_edited_files(folder, memory, settings.task_files)
        return
    if memory.manifest is None and settings.bootstrap:
        return
    own = manifest_of_settings(settings, me=me)
    if not accepts:
        if memory.manifest is None:
            if (then := swarm_in(folder)) not in ("", own.digest.hex()):
                raise other_checkpoint(folder, then, own.digest.hex())
        elif not _is_same(memory, own):
            refuse_other_swarm(folder, memory, own, settings.task_files)
    elif memory.manifest is not None and not _is_same(memory, own):
        _log_if_same(memory.manifest, own, new_run=settings.new_run)
        forget_manifest(folder)


def _names_swarm(settings: Settings, origins: Mapping[str, str], memory: RunMemory) -> bool:
    """Return whether the settings name a swarm, or tasks that the folder's swarm does not have.

    Plain `shoal node` continues in the swarm that its folder joined, and so does one that is given
    the task files of that swarm.
    """
    if origins["swarm_name"] not in _NOT_SET:
        return True
    if origins["tasks"] in _NOT_SET or memory.manifest is None:
        return False
    known = {family.name for family in memory.manifest.families}
    is_known = all(spec.name in known for spec in families_here(settings.task_files))
    return settings.task_preset != "none" or not settings.task_files or not is_known


def _is_same(memory: RunMemory, own: Manifest) -> bool:
    """Return whether the settings name exactly the tasks of the swarm that this folder joined.

    Its rules are not compared: the founder has set them."""
    then = memory.manifest
    if then is None or memory.is_founded:
        return False
    return (then.swarm_name, then.families) == (own.swarm_name, own.families)


def _log_if_same(then: Manifest, own: Manifest, *, new_run: bool) -> None:
    if new_run and then.digest == own.digest:
        log.info("--new-run: swarm and tasks are those of the last run here, which continues")
