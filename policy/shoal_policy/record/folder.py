"""Records the run in the data directory of a trainer without a node. No tensors."""

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
    """Record the run that resumes or begins in the data directory.

    Raises RunMismatchError if the directory's run is another one and the settings do not allow
    that.
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
