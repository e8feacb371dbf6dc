"""`shoal trainer`: the trainer process, usually started and watched by its node."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from policy.exchange import Exchange
from policy.metric_sinks import sink_names
from policy.narrator import Narrator, PeerCount
from shoal_ipc.client import SOCKET_NAME, NodeClient
from shoal_settings.loader import SettingsError, add_flags, describe, describe_text, load
from shoal_settings.schema import Settings
from shoal_tasks.families import PRESETS
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.swarm import families_of, specs_of
from shoal_wire.errors import ManifestError
from shoal_wire.manifest import Manifest, decode_manifest, make_manifest
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from policy.sapo import Means

log = logging.getLogger(__name__)

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
_LOCK_SECONDS = 30.0

DESCRIPTION = """\
Train a policy: draw tasks, answer them, share the answers through the node, learn from own and
others' answers (SAPO with GRPO updates). `shoal node` starts one by itself; start it by hand to
run it apart from a node that was started with --no-trainer."""


class StopFlag:
    """Set by a signal, or by the node's end; a second signal ends the process at once."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __call__(self) -> bool:
        """Whether to stop."""
        return self._event.is_set()

    def set(self) -> None:
        """Ask for a stop after the present step."""
        self._event.set()

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Signal handler."""
        if self._event.is_set():
            os._exit(130)
        self._event.set()

    def watch_parent(self) -> None:
        """Stop when standard input ends: the node that holds its other end is gone.

        The pipe closes however the node dies, kill -9 included.
        """

        def wait_for_end() -> None:
            with contextlib.suppress(OSError, ValueError):
                while os.read(0, 4096):
                    pass
            self._event.set()

        threading.Thread(target=wait_for_end, name="parent-watch", daemon=True).start()


def main(argv: Sequence[str] | None = None) -> int:
    """Run `shoal trainer`; return the exit code."""
    parser = argparse.ArgumentParser(prog="shoal trainer", description=DESCRIPTION)
    add_flags(parser, "trainer")
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    try:
        loaded = load("trainer", arguments, os.environ)
        sink_names(loaded.settings.log)
    except SettingsError as error:
        print(f"shoal trainer: {error}", file=sys.stderr)
        return EXIT_USAGE
    if arguments.print_config:
        as_json = loaded.settings.json_output
        shown = json.dumps(describe(loaded, "trainer")) if as_json else None
        print(shown or describe_text(loaded, "trainer"))
        return EXIT_OK
    stop = StopFlag()
    signal.signal(signal.SIGTERM, stop.on_signal)
    signal.signal(signal.SIGINT, stop.on_signal)
    if arguments.supervised:
        stop.watch_parent()
    logging.basicConfig(
        level=loaded.settings.log_level.upper(), format="%(levelname)s trainer: %(message)s"
    )
    return _run(loaded.settings, stop, arguments.supervised)


def _run(settings: Settings, stop: StopFlag, supervised: bool) -> int:
    # Late: torch takes seconds to import, and a wrong flag should be told at once.
    from policy.checkpoint import CheckpointError
    from policy.distributed import Leader, RankError, follow, join
    from policy.model import ModelError
    from policy.sapo import Means

    _quieten_libraries()
    try:
        _set_threads(settings)
        ranks = join()
        if ranks is not None and ranks.rank > 0:
            follow(settings, ranks)
            return EXIT_OK
        leader = None if ranks is None else Leader(ranks)
        means = Means(generate=leader.generate, update=leader.update) if leader else Means()
        with _only_trainer(settings.data_dir, stop):
            code = _train(settings, stop, supervised, means)
        if leader is not None:
            leader.close()
        return code
    except (ModelError, CheckpointError, ManifestError, SettingsError, RankError) as error:
        print(f"shoal trainer: {error}", file=sys.stderr)
        return EXIT_USAGE if isinstance(error, ModelError | SettingsError) else EXIT_FAILED


def _set_threads(settings: Settings) -> None:
    import torch

    if settings.threads:
        torch.set_num_threads(settings.threads)


def _train(settings: Settings, stop: StopFlag, supervised: bool, means: Means) -> int:
    from policy.tasks import TaskSource
    from policy.trainer import Trainer
    from shoal_tasks.client_sync import TaskWorker

    client = None if settings.alone else NodeClient(settings.data_dir / SOCKET_NAME)
    exchange = Exchange(client)
    manifest = _manifest(settings, client, stop)
    if manifest is None:
        return EXIT_OK
    families = specs_of(manifest)
    narrator = Narrator(settings, supervised=supervised, peers=PeerCount(client))
    limits = WorkerLimits(request_timeout_seconds=settings.verify_seconds)
    with TaskWorker(families, limits=limits) as worker:
        trainer = Trainer(
            settings,
            tasks=TaskSource(worker, families),
            exchange=exchange,
            rules=manifest.rules,
            seed=_seed(settings, client.peer_id if client else None),
            should_stop=stop,
            on_round=narrator,
            means=means,
        )
        try:
            trainer.run()
        finally:
            narrator.close()
    return EXIT_OK


def _manifest(settings: Settings, client: NodeClient | None, stop: StopFlag) -> Manifest | None:
    """Return the swarm's manifest, from the node; None when told to stop while waiting.

    The handshake happens before the checkpoint is loaded, so it states no leases; the client
    connects anew once the trainer knows them.
    """
    if client is None:
        return make_manifest(settings.swarm_name, families_of(PRESETS[settings.tasks]))
    said = False
    while not client.wait(0.5):
        if stop():
            return None
        if not said:
            log.info("waiting for the node at %s", settings.data_dir / SOCKET_NAME)
            said = True
    raw = client.manifest
    client.close()
    return decode_manifest(raw or b"")


def _seed(settings: Settings, peer_id: PeerId | None) -> int:
    """Return the seed; without one each node derives its own, so no two draw the same tasks."""
    if settings.seed or peer_id is None:
        return settings.seed
    return int.from_bytes(hashlib.sha256(peer_id.encode()).digest()[:4], "big") >> 1


@contextlib.contextmanager
def _only_trainer(data_dir: Path, stop: StopFlag) -> Iterator[None]:
    """Hold the data directory's trainer lock.

    A predecessor whose node was killed may still be writing its last checkpoint: wait for it.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"cannot use {data_dir} as a folder: {error.strerror}") from None
    deadline = time.monotonic() + _LOCK_SECONDS
    with (data_dir / "trainer.lock").open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if stop() or time.monotonic() > deadline:
                    raise SettingsError(
                        f"another trainer is using {data_dir}; choose another --data-dir"
                    ) from None
                time.sleep(0.1)
        yield


def _quieten_libraries() -> None:
    """Keep progress bars and advice of the libraries out of the trainer's own output."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


if __name__ == "__main__":
    sys.exit(main())
