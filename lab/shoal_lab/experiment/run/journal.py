"""A job's results so far, from which it resumes at the round where it was ended.

    round ─▶ samples, update statistics, lines ─────▶ journal.jsonl      (a line a round)
             weights and optimisers of all nodes ───▶ weights.pt         (the latest, whole or not)

    On resuming, the swarm runs its rounds again from the same seed, which gives the same questions,
    batches and samples, and looks up the expensive results. At the last stored round it restores
    the weights and continues.

A swarm in memory follows from its seed, so its nodes have no state to save. A stored result is
checked against the request, which can differ in another version of this program.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import TypeAdapter

from shoal_base.files import write_atomically
from shoal_lab.experiment.plan import Job, same_job
from shoal_policy.backend import Backend
from shoal_policy.generation.local import generate
from shoal_policy.rollouts import Answer
from shoal_policy.sapo import TrainState
from shoal_policy.update.grpo import UpdateStats, update
from shoal_policy.update.rows import TrainGroup

SAVE_S: Final = 60.0
"""Least seconds between two saves of the weights. An interruption costs at most this and a
round."""
_JOURNAL, _WEIGHTS = "journal.jsonl", "weights.pt"
_UNREADABLE: Final = (
    *(OSError, ValueError, LookupError, TypeError, RuntimeError),
    *(EOFError, pickle.UnpicklingError),  # torch's reader, of an empty file and of any other
)
_SAMPLES: Final = TypeAdapter(list[list[Answer]])
_STATS: Final = TypeAdapter(UpdateStats)


class JournalError(Exception):
    """The stored state belongs to another run than the job's; the text is one line."""


class Journal:
    """One job's. Rounds are counted from 1; round 0 is what comes before the first."""

    def __init__(
        self, folder: Path, job: Job, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read what an earlier run of the same job has stored in `folder`; otherwise begin
        there."""
        self._folder, self._job, self._clock = folder, job, clock
        self._kept: list[dict[str, Any]] = []
        self._weights: dict[str, Any] | None = None
        self._nodes: dict[str, dict[str, Any]] = {}
        self._number = 0
        self._read()
        self._saved_at = clock()
        self._file = self._begin()

    @property
    def rounds(self) -> int:
        """The last round that need not be computed again; -1 if there is none, not even round 0."""
        return len(self._kept) - 1

    def is_kept(self, number: int) -> bool:
        """Return whether a round is looked up."""
        return number <= self.rounds

    def lines_of(self, number: int) -> list[dict[str, Any]]:
        """Return the lines that a stored round has emitted."""
        lines: list[dict[str, Any]] = self._kept[number]["lines"]
        return lines

    def backend(self, index: int) -> Backend:
        """Return an object that does a node's heavy work, or looks it up."""

        def answer(policy: Any, prompts: Sequence[Sequence[int]], **how: Any) -> list[list[Answer]]:
            request = _digest(prompts)
            if (found := self._found(index, "samples", request)) is not None:
                return _SAMPLES.validate_python(found)
            samples = generate(policy, prompts, **how)
            self._note(index, "samples", request, _SAMPLES.dump_python(samples, mode="json"))
            return samples

        def learn(
            policy: Any, optimizer: Any, groups: Sequence[TrainGroup], *how: Any
        ) -> UpdateStats:
            request = _digest([(one.prompt_ids, one.completions, one.advantages) for one in groups])
            if (found := self._found(index, "stats", request)) is not None:
                return _STATS.validate_python(found)
            stats = update(policy, optimizer, groups, *how)
            self._note(index, "stats", request, _STATS.dump_python(stats, mode="json"))
            return stats

        return Backend(generate=answer, update=learn)

    def begin(self, number: int) -> None:
        """Begin a round: everything computed or looked up from here on belongs to it."""
        self._number, self._nodes = number, {}

    def end(self, lines: Sequence[Mapping[str, Any]], learners: Mapping[int, TrainState]) -> None:
        """Store the round with its emitted lines; restore the weights after the last stored one."""
        if self._number < self.rounds:
            return
        if self._number == self.rounds:
            self._put_back(learners)
            return
        kept = {"round": self._number, "lines": list(lines), "nodes": self._nodes}
        self._file.write(json.dumps(kept) + "\n")
        self._file.flush()
        if self._clock() - self._saved_at >= SAVE_S or self._number == 0:
            self.save(learners)

    def save(self, learners: Mapping[int, TrainState]) -> None:
        """Save the rounds so far, so that the next run resumes after them."""
        states = {
            str(index): {"weights": _weights(one), "optimizer": one.optimizer.state_dict()}
            for index, one in learners.items()
        }
        content = io.BytesIO()
        torch.save({"round": self._number, "nodes": states}, content)
        write_atomically(self._folder / _WEIGHTS, content.getvalue())
        self._saved_at = self._clock()

    def close(self, *, done: bool) -> None:
        """Close the file; delete it if the job is done."""
        self._file.close()
        if done:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self) -> None:
        try:
            first, *lines = (self._folder / _JOURNAL).read_text().splitlines()
            if not same_job(first, self._job):
                return
            self._weights = torch.load(self._folder / _WEIGHTS, weights_only=True)
            until = int(self._weights["round"])
            kept = [json.loads(line) for line in lines[: until + 1]]
            if [one["round"] for one in kept] == list(range(until + 1)):
                self._kept = kept
        except _UNREADABLE:
            return  # missing or damaged: it is computed again

    def _begin(self) -> Any:
        self._folder.mkdir(parents=True, exist_ok=True)
        first = json.dumps(self._job.to_json())
        text = "\n".join([first, *map(json.dumps, self._kept)]) + "\n"
        write_atomically(self._folder / _JOURNAL, text.encode())
        return (self._folder / _JOURNAL).open("a")

    def _found(self, index: int, what: str, request: str) -> Any:
        if not self.is_kept(self._number):
            return None
        kept = self._kept[self._number]["nodes"].get(str(index), {}).get(what)
        if kept is None or kept["asked"] != request:
            raise JournalError(
                f"{self._folder} is of another course than this one (round {self._number}): "
                "remove it, and the job is played from its start"
            )
        return kept["found"]

    def _note(self, index: int, what: str, request: str, found: Any) -> None:
        self._nodes.setdefault(str(index), {})[what] = {"asked": request, "found": found}

    def _put_back(self, learners: Mapping[int, TrainState]) -> None:
        states = self._weights["nodes"] if self._weights else {}
        for index, one in learners.items():
            state = states[str(index)]
            with torch.no_grad():
                for weight, saved in zip(_weights(one), state["weights"], strict=True):
                    weight.copy_(saved)
            one.optimizer.load_state_dict(state["optimizer"])
        self._weights = None


def _weights(learner: TrainState) -> list[torch.Tensor]:
    """The weights that are trained, in their order."""
    return [one.data for one in learner.policy.model.parameters() if one.requires_grad]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, default=list).encode()).hexdigest()[:16]
