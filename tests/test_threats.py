"""docs/threats.md says what the code does, and each test it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoal_p2p.gossip.rate_limiter import FloodLimits
from shoal_p2p.intake.ledger import LedgerLimits
from shoal_p2p.net.inbound_gate import GateLimits
from shoal_p2p.reputation.scoring import WEIGHTS
from tests.support import site

ROOT = Path(__file__).resolve().parents[1]
PAGE = site.page("threats.md")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def test_every_threat_names_a_test() -> None:
    rows = [line for line in PAGE.split("## Messages")[1].splitlines() if line.startswith("| ")]
    threats = [row for row in rows if not row.startswith(("| what ", "| ---"))]
    assert len(threats) > 30
    for row in threats:
        assert re.search(r"`tests/[\w/]+\.py::test_\w+`</details> \|$", row), row


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_named_test_exists(path: str, name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.M)


def test_every_cause_is_on_the_page() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [−\d.]+ \| [−\d]+ \| .{20,} \|$", PAGE, re.M)
    assert rows == [cause.value for cause in WEIGHTS]


def test_the_quotas_are_those_of_the_code() -> None:
    flood, gate, ledger = FloodLimits(), GateLimits(), LedgerLimits()
    flat = " ".join(PAGE.split())
    for quote in (
        f"{flood.pace_per_second:.0f} messages a second with bursts of {flood.pace_burst:,.0f}",
        f"{flood.waste_per_second:.0f} a second with bursts of {flood.waste_burst:,.0f}",
        f"{flood.work_per_second:g} s of work a second with bursts of {flood.work_burst:g} s",
        f"{ledger.groups_per_second:.0f} groups a second with bursts of {ledger.burst_groups:,.0f}",
        f"{gate.prefix_connections} connections, {gate.prefix_handshakes} unfinished handshakes, "
        f"{gate.prefix_pace.per_second:.0f} connections a second with bursts of "
        f"{gate.prefix_pace.burst:.0f}",
        f"{gate.pace.per_second:.0f} connections a second with bursts of {gate.pace.burst:.0f}",
    ):
        assert quote in flat
