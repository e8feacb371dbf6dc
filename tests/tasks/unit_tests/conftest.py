"""A fork server shared by these tests: it takes half a second to start."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from shoal_tasks.unit_tests.runner import TestRunner

SERVE = """
import os, socket, sys
from shoal_tasks.unit_tests import fork_server

fork_server._serve(socket.socket(fileno=int(sys.argv[1])), os.getppid(), 512 << 20)
"""


@pytest.fixture(scope="session")
def runner() -> Iterator[TestRunner]:
    """Return the runner of completions; the server ends with its socket.

    The server is a process of its own: a fork of this one, which has other tests' threads, may
    wait for ever for a lock that one of them held. A task worker has no threads.
    """
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", SERVE, str(theirs.fileno())]
    with subprocess.Popen(command, pass_fds=(theirs.fileno(),)) as server:
        theirs.close()
        yield TestRunner(ours)
        ours.close()
        server.wait(30)
