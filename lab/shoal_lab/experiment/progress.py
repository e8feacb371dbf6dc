"""Progress of an experiment: rounds of all its jobs."""

from __future__ import annotations

from shoal.counted import Counted
from shoal_lab.experiment.plan import Job


class JobProgress:
    """Called with a job and the rounds that it has run."""

    def __init__(self, counted: Counted) -> None:
        """`counted` has the rounds still to run, all jobs together."""
        self._counted = counted
        self._done: dict[str, int] = {}

    def __call__(self, job: Job, rounds: int) -> None:
        """Record the number of rounds that a job has run."""
        self._done[job.file_name] = rounds
        self._counted.update(sum(self._done.values()), f"{job.arm.name} seed {job.seed}")
