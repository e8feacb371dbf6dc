"""The page in Chromium at length: both colours, both widths, copying."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.shoal.page.browser import violations
from tests.shoal.page.stage import PATIENCE_MS, Stage, open_stage

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with open_stage(tmp_path_factory.mktemp("page")) as made:
        yield made


@pytest.mark.parametrize("width", [1366, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(stage: Stage, width: int, scheme: str) -> None:
    """Names, roles, contrast, order: by axe-core, with one group open."""
    page = stage.open(width, scheme, place=f"#/node/group/{stage.group}")
    page.wait_for_selector("#chart canvas")
    page.wait_for_selector("#group .answers", timeout=PATIENCE_MS)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert violations(page) == []
    page.context.close()


def test_commands_can_be_copied(stage: Stage) -> None:
    page = stage.open()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.wait_for_selector("#now-list button")
    page.locator("#now-list button").nth(1).click()
    page.wait_for_selector("#now-list button:text('copied')")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert f"--data-dir {stage.folder}" in copied
    page.context.close()
