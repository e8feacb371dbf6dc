"""The page in Chromium at length: peers that come and go, both colours, both widths, copying."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.shoal.page.browser import page_of, violations
from tests.shoal.page.stage import PATIENCE_MS, Stage, open_stage
from tests.support.running_node import RunningNode

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with open_stage(tmp_path_factory.mktemp("page")) as made:
        yield made


def test_a_peer_is_shown_when_it_has_joined(stage: Stage, tmp_path: Path) -> None:
    page = stage.open()
    rows = page.locator("#whom-rows tr")
    before = rows.count()
    with RunningNode(tmp_path / "other", bootstrap=[stage.node.address]) as other:
        end = other.node.member.peer_id[-10:]
        page.wait_for_selector(f"#whom-rows tr:has-text('{end}')", timeout=PATIENCE_MS)
        assert rows.count() == before + 1
        assert page.locator(f"#ring title:text-is('{end} · fine')").count() == 1
    page.context.close()


@pytest.mark.parametrize("width", [1366, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_stands_in_anybodys_way(stage: Stage, width: int, scheme: str) -> None:
    """Names, roles, contrast, order: by axe-core, with one group open."""
    page = stage.open(width, scheme, place=f"#/node/group/{stage.group}")
    page.wait_for_selector("#chart canvas")
    page.wait_for_selector("#group .answers", timeout=PATIENCE_MS)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert violations(page) == []
    page.context.close()


def test_it_outlives_the_node_and_finds_it_again(
    stage: Stage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("mortal")
    folder = root / "node"
    folder.mkdir()
    with ExitStack() as life, page_of(folder, log=root / "page.txt") as process:
        first = life.enter_context(RunningNode(folder))
        stage = Stage(stage.browser, process, first, folder, "", life)
        page = stage.open()
        end = first.node.member.peer_id[-10:]
        life.close()
        page.wait_for_selector("#right[data-state=down]", timeout=PATIENCE_MS)
        assert page.locator("#right-says").inner_text().startswith("Down since ")
        assert page.locator("#whom-rows tr").count() == 1  # what was known stays
        assert page.request.get(f"{process.url}healthz").status == 503
        with RunningNode(folder) as again:
            page.wait_for_selector("#right:not([data-state=down])", timeout=PATIENCE_MS)
            assert again.node.member.peer_id.endswith(end)
            assert page.request.get(f"{process.url}healthz").status == 200
        page.context.close()


def test_commands_can_be_copied(stage: Stage) -> None:
    page = stage.open()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.wait_for_selector("#now-list button")
    page.locator("#now-list button").first.click()
    page.wait_for_selector("#now-list button:text('copied')")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert f"--data-dir {stage.folder}" in copied
    page.context.close()
