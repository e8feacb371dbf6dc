"""A swarm with a family that no peer can make: refused in one line, without saving anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from shoal_p2p.peers import services
from shoal_tasks.run_memory import load_manifest
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import families_of
from shoal_wire.manifest import make_manifest
from tests.support.nodes import open_test_host

ORANGES = FamilySpec(
    name="oranges", generator="rotten_oranges", config={"min_n": 3000, "max_n": 3000}
)


@pytest.mark.slow
async def test_a_node_is_refused_and_its_folder_is_unchanged(tmp_path: Path) -> None:
    async with open_test_host() as bootstrap:
        services.serve_manifest(bootstrap, make_manifest("theirs", families_of([ORANGES])))
        (address, *_) = bootstrap.listen_addrs()
        where = ["--data-dir", str(tmp_path), "--listen", "/ip4/127.0.0.1/tcp/0", "--no-mdns"]
        command = [sys.executable, "-m", "shoal", "node", "--role=observe", *where]
        with trio.fail_after(100):
            ended = await trio.run_process(
                [*command, "--bootstrap", address],
                capture_stdout=True,
                stderr=subprocess.STDOUT,
                check=False,
            )
    output = ended.stdout.decode().strip().splitlines()
    assert ended.returncode == 2
    assert output[-1].startswith("shoal node: the swarm's tasks cannot be made here: oranges: ")
    assert not any("Traceback" in line for line in output)
    assert load_manifest(tmp_path) is None
