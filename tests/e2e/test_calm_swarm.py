"""A default swarm of four in a calm run: nothing is amber, and no log has a warning.

It runs until each node has finished as many rounds as half an hour has on two busy cores.
`tests/policy/record/test_learning.py` plays the alarms over longer runs, without processes.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from shoal.view.folder_follower import inspector
from shoal_ipc.client import NodeRefused, NodeUnavailable
from tests.support.processes import ShoalProcess, wait_for

ROUNDS = 1000
LAST = 8
"""Rounds at the end in which nodes may be stopping."""
PEERS = ("bootstrap", *(f"node-{number}" for number in range(1, 5)))
WARNED = re.compile(r"^\S+ \S+ (WARNING|ERROR|CRITICAL) .*$", re.M)


def findings(folder: Path) -> list[str]:
    """Return what doctor has against a peer; none while it is still starting."""
    client = inspector(folder)
    try:
        rows = client.inspect("doctor")["findings"]
    except (NodeUnavailable, NodeRefused):
        return []
    finally:
        client.close()
    found = [one for one in rows if one["state"] != "ok"]
    return [f"{folder.name}: {one['check']}: {one['message']}" for one in found]


def last_round(folder: Path) -> int:
    """Return the number of a node's last round; 0 before the first."""
    try:
        rows = (folder / "metrics.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return max((int(n) for row in rows for n in re.findall(r'"round": ?(\d+)', row)), default=0)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_no_warning_in_a_calm_run(tmp_path: Path) -> None:
    swarm = ShoalProcess("swarm", tmp_path / "swarm", "--nodes", "4", "--rounds", str(ROUNDS))
    swarm.launch()
    seen: set[str] = set()

    def has_ended() -> bool:
        found = [one for name in PEERS for one in findings(tmp_path / "swarm" / name)]
        # A swarm that stops, node by node, is not calm.
        if max(last_round(tmp_path / "swarm" / name) for name in PEERS) < ROUNDS - LAST:
            seen.update(found)
        return not swarm.alive

    try:
        wait_for(has_ended, 1400.0, "the end of all rounds")
    finally:
        swarm.close()
    logs = "".join((tmp_path / "swarm" / name / "log.txt").read_text() for name in PEERS)
    assert WARNED.findall(logs) == []
    assert seen == set()
    rows = (tmp_path / "swarm/node-1/metrics.jsonl").read_text().splitlines()
    assert max(json.loads(row)["round"] for row in rows) == ROUNDS
