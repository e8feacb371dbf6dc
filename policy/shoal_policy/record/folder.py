"""The folder of a trainer without a node: it remembers its run as a node's does. No tensors."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from shoal_settings.schema import Settings
from shoal_tasks.run_check import refuse_other_swarm
from shoal_tasks.run_memory import load_memory, save_memory
from shoal_tasks.spec import FamilySpec
from shoal_wire.manifest import Manifest

log = logging.getLogger(__name__)


def enter_folder(settings: Settings, manifest: Manifest, families: Sequence[FamilySpec]) -> None:
    """Remember the run that resumes or begins in the folder of these settings.

    Raises RunMismatchError where the folder's run is another one, and nobody has allowed that.
    """
    folder, files = settings.data_dir, settings.task_files
    memory = load_memory(folder)
    if settings.resume and not settings.new_run:
        refuse_other_swarm(folder, memory, manifest, files)
    then = memory.manifest
    is_founded = memory.is_founded or then is None or then.digest != manifest.digest
    try:
        save_memory(folder, manifest, files, families=families, is_founded=is_founded)
    except OSError as error:  # the checkpoint names its swarm, too
        log.warning("the run's swarm is not saved in %s: %s", folder, error.strerror)
