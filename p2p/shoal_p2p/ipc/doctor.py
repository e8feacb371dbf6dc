"""`shoal doctor`: runs every check, in the order in which to read the findings. Pure."""

from __future__ import annotations

from typing import Final

from shoal_ipc.answers.doctor import Finding
from shoal_p2p.ipc.checks import learning, machine, reach, swarm
from shoal_p2p.ipc.checks.seen import Check, Seen

CHECKS: Final[tuple[Check, ...]] = (
    swarm.peers,
    swarm.bootstraps,
    swarm.full,
    swarm.swarm_key,
    swarm.identity,
    reach.reachable,
    reach.port_mapping,
    reach.direct,
    reach.observed,
    reach.transports,
    swarm.clock,
    swarm.mesh,
    learning.trainer,
    learning.learning,
    learning.sources,
    learning.buffer,
    machine.disk,
    machine.files,
    machine.sandbox,
)


def diagnose(seen: Seen) -> tuple[Finding, ...]:
    """Return every finding."""
    return tuple(finding for check in CHECKS for finding in check(seen))
