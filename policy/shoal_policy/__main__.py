"""`shoal trainer`: the trainer process, usually started and supervised by its node.

The trainer itself is imported after flags are parsed, so that a wrong flag is reported at once.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from shoal_base.collector import spare_collector
from shoal_base.extras import missing_for_trainer
from shoal_base.files import is_full, locked
from shoal_base.lines import guard_process, say_json, say_lines
from shoal_base.log_file import LogLines, log_to_console, log_to_file
from shoal_base.output import end_with_the_reader, outlive_the_terminal
from shoal_base.private import private
from shoal_base.waits import MINUTE_S, RETRY_S
from shoal_settings.default_folder import default_folder, default_folders
from shoal_settings.early import early_refusal
from shoal_settings.exits import (
    EXIT_DIVERGED,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    fail,
)
from shoal_settings.groups import ALWAYS_FIRST, FIRST
from shoal_settings.loader import (
    Loaded,
    SettingsError,
    add_flags,
    defaults_line_of,
    describe,
    describe_text,
    load,
)
from shoal_settings.parser import Parser
from shoal_settings.schema import Settings
from shoal_tasks.errors import ServerUnavailable
from shoal_wire.errors import ManifestError

if TYPE_CHECKING:
    from shoal_ipc.client import NodeClient
    from shoal_policy.generation.generator import Generator
    from shoal_policy.model.loading import Policy
    from shoal_policy.record.phases import ProgressTracker
    from shoal_wire.manifest import Manifest
    from shoal_wire.types import PeerId

log = logging.getLogger(__name__)

LOG_FILE = "trainer.log"

DESCRIPTION = """\
Train a policy: sample tasks, generate completions, share them through the node, train on own and
external ones (SAPO with GRPO updates). `shoal node` starts one by itself; start it by hand to
run it apart from a node that was started with --role observe.

  shoal trainer --alone --rounds 100   with no node at all"""


class StopFlag:
    """A stop request by a signal or by the node's end; a second signal ends the process at once."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __call__(self) -> bool:
        """Return whether to stop."""
        return self._event.is_set()

    def set(self) -> None:
        """Request a stop after the current step."""
        self._event.set()

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Signal handler."""
        if self._event.is_set():
            os._exit(EXIT_INTERRUPTED)
        self._event.set()

    def watch_parent(self) -> None:
        """Stop when standard input ends: the node at its other end is gone.

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
    end_with_the_reader()
    first = (*FIRST["trainer"], *ALWAYS_FIRST)
    parser = Parser(prog="shoal trainer", description=DESCRIPTION, first=first)
    add_flags(parser, "trainer")
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--node-run", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    try:
        loaded = load("trainer", arguments, os.environ)
        if not arguments.print_config:
            from shoal_policy.record.sinks import sink_names

            sink_names(loaded.settings.log)
    except SettingsError as error:
        return fail("trainer", str(error)).code
    if arguments.print_config:
        if loaded.settings.json_output:
            say_json({"schema_version": 1, **describe(loaded, "trainer")})
        else:
            say_lines(describe_text(loaded, "trainer"))
        return EXIT_OK
    guard_process()
    stop = StopFlag()
    signal.signal(signal.SIGTERM, stop.on_signal)
    signal.signal(signal.SIGINT, stop.on_signal)
    if arguments.supervised:
        stop.watch_parent()
    log_to_console(loaded.settings.log_level, _lines(loaded.settings))
    outlive_the_terminal()
    if note := defaults_line_of(loaded):
        log.info("%s", note)
    settings = _in_its_folder(loaded)
    supervision = Supervision(by_node=arguments.supervised, node_run=arguments.node_run)
    return _run(settings, stop, supervision)


def _in_its_folder(loaded: Loaded) -> Settings:
    """Return the settings with the default data directory filled in.

    Next to a node it is the node's: a node started without a trainer has none per model.
    """
    from shoal_ipc.client import SOCKET_NAME

    settings = loaded.settings
    if loaded.origins["data_dir"] != "default":
        return settings
    own = next(iter(default_folders(settings)), default_folder(settings))
    plain = default_folder(settings, by_model=False)
    has_node = not settings.alone and (plain / SOCKET_NAME).exists()
    has_its_node = (own / SOCKET_NAME).exists()
    chosen = plain if has_node and not has_its_node else own
    return settings.model_copy(update={"data_dir": chosen})


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """The run of the node that started this process, if one did."""

    by_node: bool = False
    """True if a node started this process and supervises it."""
    node_run: str = ""
    """Identifies the node's run; the same for every trainer that it starts."""


def _run(settings: Settings, stop: StopFlag, supervision: Supervision) -> int:
    from shoal_policy.record.earlier_runs import StartOverError
    from shoal_tasks.errors import FamilyError
    from shoal_tasks.lint.start import lint_at_start
    from shoal_tasks.run_check import RunMismatchError
    from shoal_tasks.swarm import families_here
    from shoal_tasks.worker.process import accept_weak_sandbox

    _quieten_libraries()
    if settings.weak_sandbox:
        accept_weak_sandbox()
    try:
        served = settings.role == "generate" and settings.generator == "openai"
        if (missing := missing_for_trainer(served=served)) is not None:
            raise SettingsError(missing)
        if not supervision.by_node:  # a node checks before it starts a trainer
            if (why := early_refusal(settings)) is not None:
                raise SettingsError(why)
            families_here(settings.task_files)
            lint_at_start(settings.task_files)
        if settings.role == "generate":
            with _only_trainer(settings, stop):
                return _generate_only(settings, stop, supervision)
        return _run_policy(settings, stop, supervision)
    except (FamilyError, ManifestError, SettingsError, StartOverError) as error:
        is_failure = isinstance(error, ManifestError) and not isinstance(error, RunMismatchError)
        return _end(str(error), EXIT_FAILED if is_failure else EXIT_USAGE)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # rich ends a program this way, silently
            return _end("its standard output is closed", EXIT_FAILED)
        raise
    except ImportError as error:
        log.debug("not importable", exc_info=True)
        return _end(f"a package is missing from this installation: {error}", EXIT_USAGE)


def _end(why: str, code: int) -> int:
    return fail("trainer", why, code).code


def _run_policy(settings: Settings, stop: StopFlag, supervision: Supervision) -> int:
    # Imported late: torch takes seconds, and a wrong flag must be reported at once.
    from shoal_policy.checkpoint.saved import CheckpointError
    from shoal_policy.distributed import RankError
    from shoal_policy.model.loading import ModelError
    from shoal_policy.record.earlier_runs import StartOverError
    from shoal_policy.record.phases import ProgressTracker
    from shoal_policy.refusals import startup_error
    from shoal_policy.rollback import DivergedError

    phases = ProgressTracker()
    try:
        return _run_ranks(settings, stop, supervision, phases)
    except DivergedError as error:
        return _end(str(error), EXIT_DIVERGED)
    except (ManifestError, SettingsError, StartOverError, ImportError):
        raise
    except Exception as error:
        if not phases.has_generated and (why := startup_error(error, settings)):
            log.debug("refused", exc_info=True)
            return _end(why, EXIT_USAGE)
        if isinstance(error, ModelError | CheckpointError | RankError | ServerUnavailable):
            return _end(str(error), EXIT_USAGE if isinstance(error, ModelError) else EXIT_FAILED)
        raise


def _run_ranks(
    settings: Settings, stop: StopFlag, supervision: Supervision, phases: ProgressTracker
) -> int:
    """Train as rank 0, or work for rank 0."""
    import torch

    from shoal_policy.backend import Backend
    from shoal_policy.distributed import init_process_group
    from shoal_policy.model.from_settings import refuse_wrong_model
    from shoal_policy.sharded import ShardedBackend, run_worker
    from shoal_policy.trainer import Trainer

    if settings.threads:
        torch.set_num_threads(settings.threads)
    ranks = init_process_group()
    if ranks is not None and ranks.rank > 0:
        run_worker(settings, ranks)
        return EXIT_OK
    generator, loading = _server(settings, stop), settings
    backend = Backend(generator=generator)
    if ranks is not None:
        backend = ShardedBackend(ranks, settings, generator)
        loading = settings.model_copy(
            update={"device": "cpu"}
        )  # no single device must hold all of it
    with _only_trainer(settings, stop):
        # Before waiting for a node and starting a worker.
        refuse_wrong_model(settings, parts=ranks.size if ranks is not None else 1)
        make = partial(Trainer, backend=backend)
        code = _with_tasks(loading, stop, supervision, phases, make)
    backend.close()
    return code


def _server(settings: Settings, stop: StopFlag) -> Callable[[Policy], Generator] | None:
    """Return a factory of the round's generator; None if the policy itself generates."""
    from shoal_policy.generation.openai_generator import OpenAIGenerator
    from shoal_policy.generation.remote import build_remote_generator
    from shoal_policy.generation.requests import ServerRefusedError
    from shoal_policy.generation.vllm_generator import build_vllm_generator

    try:
        match settings.generator:
            case "openai":
                static = OpenAIGenerator(build_remote_generator(settings, stop))
                return lambda _policy: static
            case "vllm":
                return build_vllm_generator(settings, stop)
            case "self":
                return None
    except ServerRefusedError as error:
        raise SettingsError(str(error)) from None


def _generate_only(settings: Settings, stop: StopFlag, supervision: Supervision) -> int:
    from shoal_policy.generate_only import GenerateOnly
    from shoal_policy.generation.remote import build_remote_generator
    from shoal_policy.generation.requests import ServerRefusedError
    from shoal_policy.record.phases import ProgressTracker

    if settings.generator != "openai":
        raise SettingsError("--role generate needs --generator openai and a server's --base-url")
    phases = ProgressTracker()
    try:
        remote = build_remote_generator(settings, stop)
        make = partial(
            GenerateOnly,
            answer=lambda questions, play: remote.generate(questions, phases.step, play),
            failure=lambda: remote.failure,
            author=remote.author,
        )
        return _with_tasks(settings, stop, supervision, phases, make)
    except ServerRefusedError as error:
        raise SettingsError(str(error)) from None


def _with_tasks(
    settings: Settings,
    stop: StopFlag,
    supervision: Supervision,
    phases: ProgressTracker,
    make: Callable[..., Any],
) -> int:
    """Run what `make` returns, with its own task worker and the swarm of a node."""
    from shoal_ipc.client import SOCKET_NAME, NodeClient
    from shoal_policy.node.link import NodeLink
    from shoal_policy.record.console_logger import ConsoleLogger, num_peers
    from shoal_policy.record.earlier_runs import mark_started_over
    from shoal_policy.record.folder import enter_folder
    from shoal_policy.tasks import TaskSource
    from shoal_policy.trainer_context import TrainerContext
    from shoal_tasks.bundle import with_accepted
    from shoal_tasks.swarm import specs_of
    from shoal_tasks.worker.sync import SyncTaskWorker

    client = None if settings.alone else NodeClient(settings.data_dir / SOCKET_NAME)
    link = NodeLink(client)
    manifest = _manifest(settings, client, stop)
    if manifest is None:
        return EXIT_OK
    families = specs_of(manifest, with_accepted(settings.task_files, settings.data_dir))
    for family, note in [(spec.name, note) for spec in families for note in spec.notes]:
        log.info("%s: %s", family, note)
    if supervision.by_node:  # its node has checked that the run may change
        settings = settings.model_copy(update={"new_run": True})
    elif settings.alone:
        enter_folder(settings, manifest, families)
    console_logger = ConsoleLogger(settings, peers=partial(num_peers, client))
    phases.add_listener(console_logger.on_phase)
    worker = SyncTaskWorker(families)  # started by its first request
    runner = make(
        _unless_started_over(settings, supervision.node_run),
        TrainerContext(
            tasks=TaskSource(worker, families),
            link=link,
            rules=manifest.rules,
            should_stop=stop,
            phases=phases,
            swarm=manifest.digest.hex(),
        ),
        seed=_seed(settings, client.peer_id if client else None),
        on_round=console_logger,
    )
    if not settings.resume:
        mark_started_over(settings.data_dir, supervision.node_run)
    spare_collector()
    with worker:
        runner.run()
    if not supervision.by_node:
        console_logger.log_if_complete()
    return EXIT_OK


def _unless_started_over(settings: Settings, node_run: str) -> Settings:
    """Return settings that resume if a trainer of the same node's run has already started over."""
    from shoal_policy.record.earlier_runs import has_started_over

    if settings.resume or not node_run or not has_started_over(settings.data_dir, node_run):
        return settings
    return settings.model_copy(update={"resume": True})


def _manifest(settings: Settings, client: NodeClient | None, stop: StopFlag) -> Manifest | None:
    """Return the swarm's manifest from the node; None on a stop while waiting.

    This handshake happens before the checkpoint is loaded, so it names no leases; the client
    reconnects once the trainer knows them.
    """
    from shoal_ipc.client import SOCKET_NAME
    from shoal_tasks.swarm import starting_families
    from shoal_wire.manifest import decode_manifest, make_manifest

    if client is None:
        return make_manifest(
            settings.swarm_name, starting_families(settings.task_preset, settings.task_files)
        )
    has_logged = False
    while not client.wait(RETRY_S):
        if stop():
            return None
        if not has_logged:
            log.info("waiting for the node at %s", settings.data_dir / SOCKET_NAME)
            has_logged = True
    raw = client.manifest
    client.close()
    return decode_manifest(raw or b"")


def _seed(settings: Settings, peer_id: PeerId | None) -> int:
    """Return the seed; by default it depends on the node, so that nodes sample different tasks."""
    if settings.seed or peer_id is None:
        return settings.seed
    return int.from_bytes(hashlib.sha256(peer_id.encode()).digest()[:4], "big") >> 1


@contextlib.contextmanager
def _only_trainer(settings: Settings, stop: StopFlag) -> Iterator[None]:
    """Hold the data directory's trainer lock, and log into the directory.

    A predecessor whose node was killed may still write its last checkpoint, so it is waited for.
    """
    data_dir = settings.data_dir
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SettingsError(f"cannot use {data_dir} as a folder: {error.strerror}") from None

    def waiting() -> None:
        log.warning(
            "another trainer is using %s: waiting for it to end, %g s at most", data_dir, MINUTE_S
        )

    lock = locked(data_dir / "trainer.lock", seconds=MINUTE_S, on_wait=waiting, should_stop=stop)
    with private(data_dir), contextlib.ExitStack() as held:
        try:
            held.enter_context(lock)
        except TimeoutError:
            raise SettingsError(
                f"another trainer is using {data_dir}; choose another --data-dir"
            ) from None
        with log_to_file(data_dir / LOG_FILE, _lines(settings)):
            yield


def _lines(settings: Settings) -> LogLines:
    return LogLines("trainer", as_json=settings.log_json)


def _quieten_libraries() -> None:
    """Keep progress bars and hints of libraries out of the trainer's output."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    for name in ("httpx", "httpcore"):  # one line per request
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("huggingface_hub", "transformers"):  # they print their own logs
        logging.getLogger(name).propagate = False
    hook = threading.excepthook

    def say_of_thread(failed: threading.ExceptHookArgs) -> None:
        # TensorBoard's thread raises it again at the next call; the pause reports the rest.
        if failed.exc_value is not None and is_full(failed.exc_value):
            log.debug("a thread met a full disk", exc_info=failed.exc_value)
        else:
            hook(failed)

    threading.excepthook = say_of_thread


if __name__ == "__main__":
    sys.exit(main())
