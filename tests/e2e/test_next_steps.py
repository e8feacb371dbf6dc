"""Every command that a swarm, `watch` and the page print is run as it is printed.

A swarm of two ends after its rounds; it is run again by the command that its folder prints; then
the nodes and the bootstrap answer. Nothing that is printed makes another node.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SWARM = "shoal swarm --nodes 2 --rounds 2 --seed 7 --no-http"
STAYS = re.compile(r" (swarm|node|page|bootstrap|judge) ")
"""Commands that run until they are stopped."""
ANSWERS_S = 90.0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `shoal` of this tree first on the PATH."""
    found = tmp_path_factory.mktemp("place")
    (program := found / "bin" / "shoal").parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom shoal.__main__ import main\nsys.exit(main())\n"
    )
    program.chmod(0o700)
    return found


def environment(place: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}


def end_of(place: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a command that ends, with a question on its input."""
    return subprocess.run(
        line,
        shell=True,
        cwd=place,
        env=environment(place),
        input="1 + 1\n",
        capture_output=True,
        text=True,
        timeout=ANSWERS_S,
        check=False,
    )


def run(place: Path, line: str) -> str:
    """Run a command that succeeds; return its standard output."""
    done = end_of(place, line)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout


@contextmanager
def staying(place: Path, line: str) -> Iterator[Path]:
    """Run a command that stays; yield the file of its output, and end it as Ctrl-C does."""
    output = place / "output.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            f"exec {line}", shell=True, cwd=place, env=environment(place), stdout=file, stderr=file
        )
    try:
        yield output
        assert process.poll() is None, (line, output.read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(ANSWERS_S) == 0, (line, output.read_text())
    finally:
        process.kill()


def steps(place: Path, folder: str) -> list[str]:
    """Return the commands that `watch`, and the page, print for a peer."""
    done = end_of(place, f"shoal watch --json --data-dir {folder}")  # 3 where nothing runs
    return [one["command"] for one in json.loads(done.stdout)["next_steps"]]


def peers(place: Path) -> set[str]:
    """Return every folder with an identity."""
    return {str(file.parent.relative_to(place)) for file in place.rglob("identity.key")}


OWN = {f".shoal/swarm/{name}" for name in ("bootstrap", "node-1", "node-2")}


def test_every_command_that_is_printed_works(place: Path) -> None:
    # The last lines of a swarm, each a label and a command.
    lines = run(place, SWARM).splitlines()[-3:]
    see, talk, train = [line.partition(":")[2].strip() for line in lines]
    assert run(place, talk).strip()
    with staying(place, see) as output:
        wait_for(lambda: "http://" in output.read_text(), ANSWERS_S, "the page's address")
    assert peers(place) == OWN

    # What watch and page advise where nothing runs; with no folder, too.
    ends = {command for name in OWN for command in steps(place, name)}
    assert any(" chat " in command for command in ends)
    (again,) = {one for one in ends if STAYS.search(one)}
    assert " swarm " in again and "--nodes=2" in again
    for command in sorted(ends - {again}):
        assert run(place, command), command
    for command in ("shoal status --last", "shoal chat", "shoal logs"):
        assert run(place, command), command
    assert ".shoal/swarm/node-1" in json.dumps(steps(place, ".shoal/swarm"))
    refused = end_of(place, "shoal node --data-dir .shoal/swarm")
    assert refused.returncode == 2 and "is the folder of a swarm" in refused.stderr
    assert peers(place) == OWN

    # What they advise while it runs.
    with staying(place, again):
        name = ".shoal/swarm/node-1"
        wait_for(lambda: " invite " in "".join(steps(place, name)), ANSWERS_S, "the node")
        view = f"shoal watch --data-dir {name}"
        wait_for(lambda: "held-out" in run(place, view), ANSWERS_S, "an evaluation")
        for folder in sorted(OWN):
            for command in steps(place, folder):
                assert run(place, command), command
    assert peers(place) == OWN

    with staying(place, f"{train} --no-http --no-mdns") as output:
        wait_for(lambda: "round 1 " in output.read_text(), ANSWERS_S, "a round")
    assert peers(place) == {*OWN, ".shoal/node"}
