"""Real shoal processes for end-to-end tests: started, observed by their socket, always ended."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any

from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient, NodeRefused, NodeUnavailable
from tests.support.schemas import check

LOOPBACK = "/ip4/127.0.0.1/tcp/0"
WITH_PAGE = frozenset({"node", "join", "bootstrap", "judge", "swarm"})
"""Commands that serve a web page themselves."""
START_SECONDS = 90.0
"""A time limit, not a measurement: a loaded machine imports slowly."""


def hear_hangups() -> None:
    """Make this process receive SIGHUP, also when the tests run under nohup.

    It is called between fork and exec, because an ignored SIGHUP is inherited by all children.
    """
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def take_terminal(terminal: int) -> None:
    """Lead a new session with this terminal; as `hear_hangups`."""
    hear_hangups()
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


class ShoalProcess:
    """One `shoal` command in its own data directory."""

    def __init__(
        self,
        command: str,
        data_dir: Path,
        *flags: str,
        prefix: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self._environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            **(environment or {}),
        }
        # A web page for each of many nodes would be wasted work.
        quiet = ("--no-http",) if command in WITH_PAGE else ()
        if any(flag.startswith("--http") for flag in flags):
            quiet = ()
        self._arguments = [
            *prefix,
            sys.executable,
            "-m",
            "shoal",
            command,
            "--supervised",
            "--json",
            "--data-dir",
            str(data_dir),
            *quiet,
            *flags,
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._output_start = 0
        self.ready_line: dict[str, Any] = {}

    @property
    def log(self) -> str:
        """Standard error so far."""
        return (self.data_dir / "log.txt").read_text()

    @property
    def address(self) -> str:
        """Its first full multiaddress."""
        return str(self.ready_line["addresses"][0])

    @property
    def peer_id(self) -> str:
        """Its peer id."""
        return str(self.ready_line["peer_id"])

    def start(self) -> ShoalProcess:
        """Start it and wait until it is ready."""
        return self.launch().wait_ready()

    def launch(self) -> ShoalProcess:
        """Start it."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        output = (self.data_dir / "out.txt").open("ab")
        self._output_start = (self.data_dir / "out.txt").stat().st_size
        with output, (self.data_dir / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=log,
                start_new_session=True,
                env=self._environment,
            )
        return self

    def wait_ready(self) -> ShoalProcess:
        """Wait until it reports that it is ready, which a trainer never does."""
        self.ready_line = wait_for(
            self._find_ready, START_SECONDS, f"{self.data_dir.name} to be ready"
        )
        return self

    def _find_ready(self) -> dict[str, Any] | None:
        if not self.alive:
            raise AssertionError(f"{self.data_dir.name} ended while starting:\n{self.log}")
        with (self.data_dir / "out.txt").open("rb") as file:
            file.seek(self._output_start)
            for line in file:
                if line.startswith(b'{"event": "ready"') and line.endswith(b"\n"):
                    found: dict[str, Any] = json.loads(line)
                    check("judge", found)
                    return found
        return None

    @property
    def alive(self) -> bool:
        """True if the process runs."""
        return self._process is not None and self._process.poll() is None

    def view(self, name: str = "status", **options: Any) -> dict[str, Any] | None:
        """Return a debug view; None while the socket does not answer."""
        client = NodeClient(
            self.data_dir / SOCKET_NAME, role=m.Role.INSPECTOR, timeout_seconds=10.0
        )
        try:
            reply = client.call(
                m.Inspect(view=name, options_json=json.dumps(options)), m.InspectReply
            )
        except (NodeUnavailable, NodeRefused):
            return None
        finally:
            client.close()
        answer: dict[str, Any] = json.loads(reply.json)
        return answer

    def wait_status(
        self, condition: Callable[[dict[str, Any]], bool], what: str, seconds: float = 90.0
    ) -> dict[str, Any]:
        """Wait until the status satisfies `condition`; return it."""

        def check() -> dict[str, Any] | None:
            status = self.view()
            return status if status is not None and condition(status) else None

        try:
            return wait_for(check, seconds, f"{self.data_dir.name}: {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}\nstatus: {self.view()}\nlog:\n{self.log}") from None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self, seconds: float = 30.0) -> int:
        """Send SIGTERM; return the exit code."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self.wait(seconds)

    def wait(self, seconds: float = 90.0) -> int:
        """Wait for the end; return the exit code."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.data_dir.name} does not end:\n{self.log}") from None

    def close(self) -> None:
        """End it in any state."""
        if self._process is None:
            return
        with contextlib.suppress(AssertionError):
            self.stop(10.0)
        self.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()


def wait_for(check: Callable[[], Any], seconds: float, what: str) -> Any:
    """Poll until `check` returns something other than None, False or empty, and return it."""
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        is_empty = isinstance(found, Sized) and not found
        if found is not None and found is not False and not is_empty:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(0.05)


class ProcessManager:
    """Starts processes for one test and ends them all."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._processes: list[ShoalProcess] = []

    def process(
        self,
        command: str,
        name: str,
        *flags: str,
        prefix: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> ShoalProcess:
        """Return a process that has not been started yet.

        `prefix` is a command that runs it (``prlimit …``); `environment` extends this process's
        own.
        """
        made = ShoalProcess(
            command,
            self._root / name,
            *flags,
            prefix=prefix,
            environment=environment,
        )
        self._processes.append(made)
        return made

    def bootstrap(self, name: str = "bootstrap", *flags: str) -> ShoalProcess:
        """Start a bootstrap peer on loopback, without local discovery.

        With local discovery, nodes of concurrent tests would find each other. The old commit's
        bootstrap has no such flag.
        """
        where = ("--listen", LOOPBACK, "--no-mdns")
        return self.process("bootstrap", name, *where, "--log-level", "info", *flags).start()

    def node(self, name: str, *flags: str, bootstrap: str | None = None) -> ShoalProcess:
        """Start a node on loopback, with frequent checkpoints and no local discovery."""
        return self.new_node(
            name, "--checkpoint-seconds", "0.5", *flags, bootstrap=bootstrap
        ).start()

    def new_node(
        self, name: str, *flags: str, bootstrap: str | None = None, **how: Any
    ) -> ShoalProcess:
        """Return a node on loopback, without local discovery, that has not been started yet.

        `how` are options of `process`.
        """
        where = ("--bootstrap", bootstrap) if bootstrap else ()
        return self.process("node", name, "--listen", LOOPBACK, "--no-mdns", *where, *flags, **how)

    def close(self) -> None:
        """End everything, the latest first."""
        for process in reversed(self._processes):
            process.close()


@contextlib.contextmanager
def open_stage(root: Path) -> Iterator[ProcessManager]:
    """A process manager that ends all its processes in any case."""
    stage = ProcessManager(root)
    try:
        yield stage
    finally:
        stage.close()
