"""Sends metrics to TensorBoard, Weights & Biases or trackio, in addition to `metrics.jsonl`.

A sink never stops the training: one that fails later is closed with a warning; on a full disk it
only misses some events. A named sink that cannot be opened is an error for the user: one line, and
the trainer ends.

Names here are `shoal_settings.schema.LOGS`.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from shoal_base.files import is_full
from shoal_base.visible import visible_name
from shoal_policy.record.earlier_runs import TENSORBOARD_FOLDER, num_earlier_runs
from shoal_settings.loader import SettingsError
from shoal_settings.schema import Settings

log = logging.getLogger(__name__)

PROJECT = "shoal"
FIRST_EVENTS = 1000  # points that a wide screen can show separately; a guess
SECONDS_AN_EVENT = 5.0
"""Seconds per event after the first ones, and TensorBoard's flush interval: a small model runs
twenty rounds per second."""


class Sink(Protocol):
    """Receives metrics; `write` may raise anything, and is then not called again."""

    def write(self, round_number: int, figures: Mapping[str, float]) -> None:
        """Record the metrics of a round."""

    def close(self) -> None:
        """Write out pending data."""


def sink_names(log_setting: str) -> tuple[str, ...]:
    """Return the sinks that `--log` names, each once.

    Raises SettingsError, one line, if the package of a named one is not installed.
    """
    names = dict.fromkeys(name for name in log_setting.split(",") if name != "none")
    if "auto" in names:
        del names["auto"]
        if _installed("tensorboard"):
            names["tensorboard"] = None
    for name in names:
        if not _installed(name):
            raise SettingsError(
                f"log = {log_setting!r}: the package {name!r} is not installed; "
                f"install it with: pip install {name}"
            )
    return tuple(names)


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


class MetricSinks:
    """All sinks of a run."""

    def __init__(self, settings: Settings) -> None:
        """Open the sinks of `settings.log`.

        Raises SettingsError, one line, for a sink that does not open.
        """
        self._sinks: dict[str, Sink] = {}
        self._limits: dict[str, _TokenBucket] = {}
        """A rate limit for each kind of event."""
        for name in sink_names(settings.log):
            try:
                self._sinks[name] = _OPENERS[name](settings)
            # Third-party packages may raise anything; the user reads one line.
            except Exception as error:
                self.close()
                text = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise SettingsError(f"log = {settings.log!r}: {name}: {text}") from error

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the open sinks."""
        return tuple(self._sinks)

    def write(self, event: Mapping[str, Any]) -> None:
        """Send an event's numbers to all sinks.

        Fast rounds are rate-limited here; `metrics.jsonl` has all of them.
        """
        kinds = {name.partition("/")[0] for name in event} & {"held_out", "judge"}
        pace = self._limits.setdefault(min(kinds, default="round"), _TokenBucket())
        if not pace.take(time.monotonic()):
            return
        number = int(event["round"])
        figures = {
            visible_name(name): float(value)  # a family's name is in it
            for name, value in event.items()
            if name != "round" and isinstance(value, int | float) and not isinstance(value, bool)
        }
        for name in list(self._sinks):
            self._try(name, lambda sink: sink.write(number, figures))

    def close(self) -> None:
        """Write out pending data and close the sinks."""
        for name in list(self._sinks):
            self._try(name, lambda sink: sink.close())
        self._sinks.clear()

    def _try(self, name: str, action: Callable[[Sink], None]) -> None:
        try:
            action(self._sinks[name])
        except Exception as error:  # noqa: BLE001 - a broken dashboard must not end a training
            if is_full(error):  # training pauses until there is space
                return
            log.warning("no more metrics to %s: %s", name, error)
            self._sinks.pop(name, None)


class _TokenBucket:
    """Lets the first events pass, then one every few seconds."""

    def __init__(self) -> None:
        self._left = float(FIRST_EVENTS)
        self._at: float | None = None

    def take(self, now: float) -> bool:
        """Return whether an event may pass, and count it if so."""
        passed = 0.0 if self._at is None else now - self._at
        self._at = now
        self._left = min(FIRST_EVENTS, self._left + passed / SECONDS_AN_EVENT)
        if self._left < 1:
            return False
        self._left -= 1
        return True


class _TensorBoard:
    """TensorBoard's own files, in the data directory's `tensorboard/`."""

    def __init__(self, settings: Settings) -> None:
        # Imported dynamically: torch takes seconds to import, and may be missing.
        board: Any = importlib.import_module("torch.utils.tensorboard")
        self._begin = lambda round_number: board.SummaryWriter(
            settings.data_dir / TENSORBOARD_FOLDER,
            # Hides an earlier run's points of rounds that are repeated.
            purge_step=round_number,
            flush_secs=int(SECONDS_AN_EVENT),
        )
        self._writer: Any = None

    def write(self, round_number: int, figures: Mapping[str, float]) -> None:
        writer = self._writer or self._begin(round_number)
        self._writer = None  # after an error it is unusable: the next write opens another file
        for name, value in figures.items():
            writer.add_scalar(name, value, round_number)
        self._writer = writer

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _Dashboard:
    """Weights & Biases or trackio, which has the same interface."""

    def __init__(self, package: str, settings: Settings) -> None:
        self._package = importlib.import_module(package)
        name = run_name(settings.data_dir)
        options: dict[str, Any] = {"project": PROJECT, "name": name, "resume": "allow"}
        if package == "wandb":
            options |= {"dir": str(settings.data_dir), "id": name}
        self._package.init(config=settings.model_dump(mode="json"), **options)
        if package == "wandb":
            # Own step metric: wandb refuses to go back, and a resumed run repeats rounds.
            self._package.define_metric("round")
            self._package.define_metric("*", step_metric="round")

    def write(self, round_number: int, figures: Mapping[str, float]) -> None:
        self._package.log({**figures, "round": round_number})

    def close(self) -> None:
        self._package.finish()


def run_name(data_dir: Path) -> str:
    """Return the run's name, from the data directory, so that a resumed run keeps it.

    A run that started over gets a number.
    """
    parts = [*data_dir.resolve().parts[-2:]]
    if earlier := num_earlier_runs(data_dir):
        parts.append(str(earlier + 1))
    return "-".join("".join(c if c.isalnum() else "-" for c in part).strip("-") for part in parts)


_OPENERS: Mapping[str, Callable[[Settings], Sink]] = {
    "tensorboard": _TensorBoard,
    "wandb": partial(_Dashboard, "wandb"),
    "trackio": partial(_Dashboard, "trackio"),
}
