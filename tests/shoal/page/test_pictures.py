"""The pictures of the documentation: a swarm that learns, looked at when it has something to show.

`make pictures` writes them into docs/pictures; otherwise they are made, measured and thrown away.
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rich._export_format import CONSOLE_SVG_FORMAT

from shoal.view.build import build
from shoal.view.folder_follower import FolderFollower
from shoal.view.model import NodeView
from shoal.watch.frame import frame
from shoal_base.terminal import Terminal
from tests.shoal.page.browser import open_browser, page_of
from tests.support.processes import LOOPBACK, ShoalProcess, open_stage, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROUNDS = 60
TRAINED = 40
"""Groups of each other node trained on before the first picture."""
PATIENCE_S = 600.0
MAX_BYTES = 150_000
COLUMNS, LINES = 100, 30


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return where the pictures go."""
    found = Path(os.environ.get("PICTURES") or tmp_path / "pictures")
    found.mkdir(parents=True, exist_ok=True)
    return found


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ShoalProcess]:
    """One of three that learn from one another."""
    with open_stage(tmp_path / "swarm") as stage:
        flags = ("--listen", LOOPBACK, "--no-mdns", "--bootstrap", stage.bootstrap().address)
        nodes = [stage.process("node", f"node-{number}", *flags).launch() for number in (1, 2, 3)]
        for one in nodes:
            one.wait_ready()
        wait_for(lambda: _has_trained(nodes[0]) or None, PATIENCE_S, "groups of both other nodes")
        yield nodes[0]


def _has_trained(node: ShoalProcess) -> bool:
    status, ledger = node.view(), node.view("ledger")
    if status is None or ledger is None or status["round"] < ROUNDS:
        return False
    trained = [
        one["groups_trained"] for one in ledger["publishers"] if one["peer_id"] != node.peer_id
    ]
    return sum(count >= TRAINED for count in trained) == 2


def test_pictures_of_a_swarm_that_learns(node: ShoalProcess, folder: Path, tmp_path: Path) -> None:
    with open_browser() as browser, page_of(node.data_dir, log=tmp_path / "page.txt") as process:
        for name, width, scheme, last in (
            ("page", 1366, "light", "peers"),
            ("page-dark", 1366, "dark", "peers"),
            ("page-360", 360, "light", "worth"),
        ):
            context = browser.new_context(
                viewport={"width": width, "height": 768},
                color_scheme=scheme,
                reduced_motion="reduce",
            )
            page = context.new_page()
            page.goto(process.url)
            page.wait_for_selector("#chart canvas", timeout=60_000)
            wait_for(_no_dash(page), 60.0, "every number")
            _take(page, folder / f"{name}.png", last)
            context.close()
    (folder / "watch.svg").write_text(_watched(node.data_dir), encoding="utf-8")
    for path in folder.glob("[pw]*"):
        assert path.stat().st_size <= MAX_BYTES, path


def _no_dash(page: Any) -> Callable[[], bool | None]:
    """Whether all that can be a number is one, for a node that trains with other nodes."""
    figures = page.locator("#learning-parts dd, #worth dd, #peers-rows tr.me td")
    return lambda: not any("–" in text for text in figures.all_inner_texts()) or None


def _take(page: Any, path: Path, last: str) -> None:
    """Write the page from its top to the end of a block."""
    box = page.locator(f"#{last}").bounding_box()
    width = page.viewport_size["width"]
    clip = {"x": 0, "y": 0, "width": width, "height": box["y"] + box["height"] + 12}
    taken = io.BytesIO(page.screenshot(full_page=True, clip=clip))
    Image.open(taken).convert("RGB").quantize(256).save(path, optimize=True)


def _watched(data_dir: Path) -> str:
    """Return `shoal watch` as a picture that loads nothing from anywhere."""
    follower = FolderFollower(data_dir)
    while (answers := follower.now()).doctor is None:
        time.sleep(0.1)
    follower.close()
    shown = build(answers, data_dir=".shoal/node", at_unix=time.time())
    console = Terminal(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(frame(NodeView(shown, answers), width=COLUMNS, height=LINES))
    code = re.sub(r"<!--.*?-->|@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    picture = console.export_svg(title="shoal watch", code_format=code, unique_id="watch")
    assert "url(http" not in picture and "://" not in picture.replace("http://www.w3.org", "")
    return picture
