"""Sends metrics, beside `metrics.jsonl`, to TensorBoard, Weights & Biases or trackio.

A sink never stops the training: one that fails later is closed with a warning, but where the disk
is full it only misses what was played meanwhile. One that cannot be
opened although it was named is the user's to know: one line, and the trainer ends.

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
FIRST_EVENTS = 1000  # points of a chart that are told apart on a wide screen; a guess
SECONDS_AN_EVENT = 5.0
"""Seconds an event takes after the first ones, and after which TensorBoard writes one out: a small
model plays twenty rounds a second."""


class Sink(Protocol):
    """Takes figures; `write` may raise anything, and is then not called again."""

    def write(self, round_number: int, figures: Mapping[str, float]) -> None:
        """Record the figures of a round."""

    def close(self) -> None:
        """Write out what waits."""


def sink_names(log_setting: str) -> tuple[str, ...]:
    """Return the sinks that `--log` asks for, each once.

    Raises SettingsError, one line, when the package of one that was named is not installed.
    """
    asked = dict.fromkeys(name for name in log_setting.split(",") if name != "none")
    if "auto" in asked:
        del asked["auto"]
        if _installed("tensorboard"):
            asked["tensorboard"] = None
    for name in asked:
        if not _installed(name):
            raise SettingsError(
                f"log = {log_setting!r}: the package {name!r} is not installed; "
                f"install it with: pip install {name}"
            )
    return tuple(asked)


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


class MetricSinks:
    """All sinks of a run."""

    def __init__(self, settings: Settings) -> None:
        """Open what `settings.log` names.

        Raises SettingsError, one line, for a sink that does not open.
        """
        self._sinks: dict[str, Sink] = {}
        self._paces: dict[str, _Pace] = {}
        """The pace of each kind of event."""
        for name in sink_names(settings.log):
            try:
                self._sinks[name] = _OPENERS[name](settings)
            # The packages are not ours: whatever they raise, the user reads one line.
            except Exception as error:
                self.close()
                text = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise SettingsError(f"log = {settings.log!r}: {name}: {text}") from error

    @property
    def names(self) -> Sequence[str]:
        """The sinks that are open."""
        return tuple(self._sinks)

    def write(self, event: Mapping[str, Any]) -> None:
        """Give an event's figures to all sinks; what is no number is left out.

        Of rounds that follow one another fast, the sinks get some: `metrics.jsonl` has them all.
        """
        kinds = {name.partition("/")[0] for name in event} & {"held_out", "judge"}
        pace = self._paces.setdefault(min(kinds, default="round"), _Pace())
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
        """Write out what waits and let go of the sinks."""
        for name in list(self._sinks):
            self._try(name, lambda sink: sink.close())
        self._sinks.clear()

    def _try(self, name: str, action: Callable[[Sink], None]) -> None:
        try:
            action(self._sinks[name])
        except Exception as error:  # noqa: BLE001 - a broken dashboard must not end a training
            if is_full(error):  # training waits until there is room, and then there is for this
                return
            log.warning("no more metrics to %s: %s", name, error)
            self._sinks.pop(name, None)


class _Pace:
    """Lets the first events pass, and then one every few seconds."""

    def __init__(self) -> None:
        self._left = float(FIRST_EVENTS)
        self._at: float | None = None

    def take(self, now: float) -> bool:
        """Return whether an event may pass; it counts then."""
        passed = 0.0 if self._at is None else now - self._at
        self._at = now
        self._left = min(FIRST_EVENTS, self._left + passed / SECONDS_AN_EVENT)
        if self._left < 1:
            return False
        self._left -= 1
        return True


class _TensorBoard:
    """TensorBoard's own files, in the data directory's `tensorboard/`, begun with figures."""

    def __init__(self, settings: Settings) -> None:
        # Imported by name: torch takes seconds to import, and may be missing here.
        board: Any = importlib.import_module("torch.utils.tensorboard")
        self._begin = lambda round_number: board.SummaryWriter(
            settings.data_dir / TENSORBOARD_FOLDER,
            # Hides what an earlier run wrote of rounds that are played again.
            purge_step=round_number,
            flush_secs=int(SECONDS_AN_EVENT),
        )
        self._writer: Any = None

    def write(self, round_number: int, figures: Mapping[str, float]) -> None:
        writer = self._writer or self._begin(round_number)
        self._writer = None  # one that failed is of no use any more: the next begins another file
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
            # Steps of its own: it refuses to go back, and a resumed run plays rounds again.
            self._package.define_metric("round")
            self._package.define_metric("*", step_metric="round")

    def write(self, round_number: int, figures: Mapping[str, float]) -> None:
        self._package.log({**figures, "round": round_number})

    def close(self) -> None:
        self._package.finish()


def run_name(data_dir: Path) -> str:
    """Return the run's name: of the data directory, so that a resumed run is the same run.

    One that started over is another: its number follows.
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
