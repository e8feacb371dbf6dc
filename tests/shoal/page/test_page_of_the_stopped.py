"""The page of a folder whose node has ended, in Chromium: its last state, with the time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.layout import local_time
from shoal_p2p.peers.outside import wall_ms
from shoal_p2p.rollouts.ledger_file import LEDGER
from shoal_p2p.rollouts.training_stats import TrainingStats
from shoal_p2p.state_file import LAST_STATUS, STATE_FILE, write_state
from shoal_wire.types import PeerId
from tests.shoal.page.browser import open_browser, page_of
from tests.shoal.view.node_answers import FRIEND, ME, STATUS, outcome

pytestmark = pytest.mark.timeout(180)

GROUPS = 833
PATIENCE_MS = 30_000


def test_what_was_so_when_it_stopped(tmp_path: Path) -> None:
    (folder := tmp_path / "node").mkdir()
    ledger, at_ms = TrainingStats(PeerId(ME)), wall_ms() - 3 * 86_400_000
    for number in range(1, GROUPS + 1):
        ledger.take(number, [outcome(FRIEND), outcome("")], now_ms=at_ms)
    write_state(folder / STATE_FILE, LEDGER, ledger.to_json().encode())
    status = json.dumps({**STATUS, "round": GROUPS})
    write_state(folder / STATE_FILE, LAST_STATUS, status.encode())
    with open_browser() as browser, page_of(folder, log=tmp_path / "page.txt") as process:
        page = browser.new_context().new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(process.url)
        page.wait_for_selector("#right-says:text('Down since')")
        text = " ".join(page.locator("main").inner_text().split())
    for words in (
        f"until {local_time(at_ms)}, 50% of the training signal came from other nodes",
        "groups with signal 833",
        FRIEND[-10:],
        "Cost, before it stopped in 8.0 KB/s out 2.0 KB/s measured over 1 min 0 s",
        "Rollouts are shown while the node runs",
    ):
        assert words in text, (words, text)
    for false in (
        "nothing yet",
        "No rollouts from other nodes",
        "No group of another node",
        "0 groups",
    ):
        assert false not in text, (false, text)
