"""`shoal.start`: a node that trains, controlled by a program or a notebook.

    start ─▶ `shoal node` (or `shoal join`), which has its trainer and its task worker
      Run ◀── status, rollouts ── the node's socket      rounds, curve ◀── its metrics.jsonl

The node is a child process. It ends with `Run.stop`, and with this program however that ends.
"""

from __future__ import annotations

import html
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from shoal.api.curve import curve_svg
from shoal.api.groups import SwarmError
from shoal.api.started_node import start_node
from shoal.started_peer import StartedPeer
from shoal.view.folder_follower import inspector, left_behind
from shoal.view.run import RunReader, events
from shoal_base.node_folders import METRICS_FILE
from shoal_base.visible import visible, visible_name
from shoal_base.waits import AT_ONCE_S, POLL_S
from shoal_ipc.answers.held_out import held_out_words
from shoal_ipc.client import NodeRefused, NodeUnavailable
from shoal_settings.schema import TASK_PRESETS
from shoal_wire.invite import InviteError, decode_invite

_ROUND: Final = "round"
_LOADING: Final = ("", "starting", "loading")
_FAILED: Final = ("waiting", "broken", "misconfigured")
"""States of a trainer, before its first round and after a failure."""


def start(
    model: str = "tiny",
    tasks: str | Path | Sequence[str | Path] | None = None,
    swarm: str | None = None,
    *,
    data_dir: str | Path | None = None,
    node_flags: Sequence[str] = (),
) -> Run:
    """Start a node that trains `model`, and return once the model is loaded.

    Args:
        model: A model, by the names that `--model` of `shoal node` takes.
        tasks: A preset, task files of your own (`FILE.toml`), or several, as `--tasks`. A swarm
            that is joined has its tasks: name the task files of its families.
        swarm: An invitation (`shoal1…`) to the swarm to join; without it a new one is started.
        data_dir: The node's folder. A later run in it continues this one. Without it,
            the command's own choice in the current folder's `.shoal`.
        node_flags: Further flags of `shoal node`, such as `["--rounds", "200"]`.

    Raises:
        SwarmError: one line that says what to do: a flag is wrong, or the model cannot be loaded.
    """
    invitation = (swarm or "").strip()
    named = [tasks] if isinstance(tasks, str | Path) else list(tasks or ())
    if invitation and (presets := [one for one in named if one in TASK_PRESETS]):
        raise SwarmError(f"a swarm that is joined has its tasks: leave {presets[0]!r} out")
    if invitation:
        try:
            decode_invite(invitation)
        except InviteError as error:
            raise SwarmError(str(error)) from None
    flags = [f"--model={model}", *(f"--tasks={one}" for one in named)]
    if data_dir is not None:
        flags.append(f"--data-dir={Path(data_dir)}")
    run = Run(start_node(invitation, [*flags, *node_flags]))
    try:
        run._wait_until_loaded()
    except BaseException:
        run.stop()
        raise
    return run


class Run:
    """A node that trains, from `shoal.start`. A context manager, and a chart in a notebook."""

    def __init__(self, node: StartedPeer) -> None:
        """Wrap a node that is ready."""
        self._node = node
        self.data_dir = Path(node.ready()["data_dir"])
        """The node's folder: `shoal.connect` and every command of shoal take it."""
        self._client = inspector(self.data_dir)

    @property
    def running(self) -> bool:
        """True while the node's process runs; False after its last round."""
        return self._node.why_ended is None

    @property
    def error(self) -> str | None:
        """Why the node failed, in one line; None while it runs, and if it ended in order."""
        return self._node.why_ended or None

    def wait(self, rounds: int | None = None, *, timeout: float | None = None) -> Self:
        """Wait until the node has trained so many rounds in all, or has ended; return this run.

        Args:
            rounds: Rounds of the folder, earlier runs included. Without it, wait for the end.
            timeout: Seconds to wait at most. Without it, as long as it takes.

        Raises:
            SwarmError: the node failed, ended before that round, or took too long.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while rounds is None or len(self.rounds()) < rounds:
            if (ended := self._node.why_ended) is not None:
                break
            if time.monotonic() >= deadline:
                raise SwarmError(f"waited {timeout:g} s; {len(self.rounds())} rounds are trained")
            time.sleep(POLL_S)
        else:
            return self
        if ended:
            raise SwarmError(f"the node has ended: {ended}")
        if rounds is not None and len(self.rounds()) < rounds:
            raise SwarmError(f"the node has ended after {len(self.rounds())} rounds")
        return self

    def status(self) -> dict[str, Any]:
        """Return the node's status: the keys of `shoal status --json`. After an end in order, it
        is the last one.

        Raises:
            SwarmError: the node has failed, or does not answer now.
        """
        if self._node.why_ended == "" and (last := left_behind(self.data_dir).status) is not None:
            return last
        return self._inspect("status")

    def rollouts(self, count: int = 20) -> list[dict[str, Any]]:
        """Return the latest rollouts, newest first: those of `shoal debug rollouts --json`.

        Raises:
            SwarmError: the node has ended, or does not answer now.
        """
        found: list[dict[str, Any]] = self._inspect("rollouts", limit=count)["rollouts"]
        return found

    def rounds(self) -> list[dict[str, Any]]:
        """Return the metrics of every round so far, oldest first (docs/metrics.md).

        They are read from the node's folder, so they outlive the node.
        """
        try:
            lines = (self.data_dir / METRICS_FILE).read_bytes().splitlines(keepends=True)
        except OSError:  # before the first round
            return []
        # A line that is still being written is read later.
        found = events(line for line in lines if line.endswith(b"\n"))
        return [one for one in found if one.get("event") == _ROUND]

    def stop(self) -> None:
        """Stop the node in order: its trainer writes a checkpoint, and queued batches are sent."""
        self._client.close()
        self._node.stop()

    def _wait_until_loaded(self) -> None:
        """Wait until the trainer has loaded the model. Raises SwarmError if it fails."""
        trainer: Mapping[str, Any] = {}
        while trainer.get("state", "") in _LOADING:
            time.sleep(POLL_S)
            try:
                trainer = self._trainer_of(self._inspect("status"))
            except SwarmError:
                if not self.running:
                    raise
                # A node on a busy machine answers later.
        if trainer.get("state") in _FAILED:
            raise SwarmError(str(trainer.get("last_error") or "the trainer does not start"))

    @staticmethod
    def _trainer_of(status: Mapping[str, Any]) -> Mapping[str, Any]:
        return status.get("trainer") or {}

    def _inspect(self, view: str, **options: Any) -> dict[str, Any]:
        try:
            return self._client.inspect(view, **options)
        except (NodeUnavailable, NodeRefused) as error:
            # It may be about to end, and then that is the reason.
            ended = self._node.ended_within(AT_ONCE_S)
            why = str(error) if ended is None else f"the node has ended{ended and f': {ended}'}"
            raise SwarmError(why) from None

    def _reader(self) -> RunReader:
        reader = RunReader(self.data_dir / METRICS_FILE)
        reader.refresh()
        return reader

    def _facts(self) -> Mapping[str, str]:
        """Return the text of a notebook cell; for a node that has ended, from its folder."""
        ended = self._node.why_ended
        run = self._reader().facts()
        facts = {}
        if words := held_out_words(run.held_out_initial, run.held_out):
            facts["held-out"] = words
        if run.reward_local is not None:
            facts["own reward"] = f"{run.reward_local:.3f}"
        facts["folder"] = visible(str(self.data_dir))
        if ended is not None:
            return {**facts, "state": f"ended: {visible(ended)}" if ended else "finished"}
        try:
            status = self.status()
        except SwarmError as error:
            return {**facts, "state": visible(str(error))}
        trainer = self._trainer_of(status)
        facts["state"] = visible(str(trainer.get("state")))
        if trainer.get("last_error"):
            facts["error"] = visible(str(trainer["last_error"]))
        return {
            **facts,
            "model": visible_name(str(trainer.get("model") or "loading")),
            "swarm": visible_name(str(status["swarm"]["name"])),
            "peers": str(status["peers"]),
            "external groups used": str(status["groups_external_used"]),
        }

    def __repr__(self) -> str:
        facts = "; ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"<shoal.Run: {facts}; {len(self.rounds())} rounds>"

    def _repr_html_(self) -> str:
        """Return the HTML of a run for a notebook."""
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in self._facts().items()
        )
        curve = curve_svg(self._reader().curves()["points"])
        return f"<div><table>{rows}</table>{curve}</div>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()
