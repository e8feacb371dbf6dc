"""The page of a stopped swarm of four, in Chromium: one screen, one chart, one question twice."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal_p2p.state_file import LAST_STATUS, STATE_FILE, write_state
from tests.shoal.page.browser import PageProcess, open_browser, page_of, violations
from tests.shoal.view.node_answers import STATUS

pytestmark = pytest.mark.timeout(180)
NODES = 4
ROUNDS = 60
EVALUATED = {0: 0.1, 25: 0.5, 50: 0.6}
MARKUP = "<img src=x onerror='window.taken = 1'>"


def metrics() -> str:
    lines: list[dict[str, Any]] = []
    for number in range(ROUNDS + 1):
        lines.append(
            {"event": "round", "round": number, "reward_local": number / 100, "step_time": 1.0}
        )
        if number in EVALUATED:
            named = {
                f"held_out/base_conversion_easy{'_and_longer' * n}": EVALUATED[number]
                for n in range(6)
            }
            items = {"held_out/num_items": 48, "held_out/pass@1": EVALUATED[number]}
            lines.append({"event": "held_out", "round": number, **items, **named})
    return "".join(json.dumps(line) + "\n" for line in lines)


def evaluation(number: int, answer: str, reward: float) -> dict[str, Any]:
    example = {"question": f"How much is 2 + 2? {MARKUP}", "answer": answer, "reward": reward}
    share = EVALUATED[number]
    figures = {"pass_at_1": share, "num_items": 48, "low": share - 0.1, "high": share + 0.1}
    return {"round": number, **figures, "example": example}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a swarm leaves; the figures of node-1 are known."""
    swarm = tmp_path_factory.mktemp("stopped") / "swarm"
    for name in ("bootstrap", *(f"node-{number}" for number in range(1, NODES + 1))):
        (place := swarm / name).mkdir(parents=True)
        (place / "identity.key").touch()
        kind = name.partition("-")[0]
        begun = {"command": kind, "flags": [], "settings": {"model": "tiny", "rounds": "60"}}
        (place / "started-with.json").write_text(json.dumps(begun))
        if kind == "node":
            (place / "metrics.jsonl").write_text(metrics())
            held_out = evaluation(50, "4", 1.0), evaluation(0, MARKUP, 0.0)
            trainer = {
                **STATUS["trainer"],
                "held_out": held_out[0],
                "held_out_initial": held_out[1],
            }
            status = {**STATUS, "round": ROUNDS, "trainer": trainer}
            write_state(place / STATE_FILE, LAST_STATUS, json.dumps(status).encode())
    swarm_begun = {"command": "swarm", "flags": ["--nodes=4"], "settings": {}}
    (swarm / "started-with.json").write_text(json.dumps(swarm_begun))
    return swarm


@pytest.fixture(scope="module")
def opened(folder: Path) -> Iterator[tuple[Any, PageProcess]]:
    with open_browser() as browser, page_of(folder, log=folder / "page.txt") as process:
        yield browser, process


def window(opened: tuple[Any, PageProcess], width: int, scheme: str = "light") -> Any:
    browser, process = opened
    context = browser.new_context(
        viewport={"width": width, "height": 768}, color_scheme=scheme, accept_downloads=True
    )
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.goto(process.url)
    page.wait_for_selector("#overview-chart canvas")
    page.wait_for_selector("#chart canvas")
    return page


def test_it_opens_on_a_node_with_its_last_figures_and_fits_one_screen(
    opened: tuple[Any, PageProcess],
) -> None:
    page = window(opened, 1366)
    assert page.locator("#title").inner_text() == "node-1 · shoal"
    rows = [" ".join(row.split()) for row in page.locator("#overview-rows tr").all_inner_texts()]
    assert [row.split()[0] for row in rows] == [*(f"node-{n}" for n in range(1, 5)), "bootstrap"]
    assert all("60 0.600 0.100" in row for row in rows[:NODES])
    named = page.locator("#overview-chart").get_attribute("aria-label")
    assert all(f"node-{number}" in named for number in range(1, NODES + 1))
    assert (
        "rose from 0.10 to 0.60 of 48 held-out"
        in page.locator("#learning-parts .lead").inner_text()
    )
    assert "0.600 ± 0.100" in page.locator("#learning-parts .figures > div").first.inner_text()
    box = page.locator("#chart").bounding_box()
    assert box["y"] + box["height"] <= 768, "from the swarm's chart to that of the node"
    command = page.locator("#now-list code").first.inner_text()
    assert command.startswith("shoal swarm --nodes=4 --data-dir") or " swarm --nodes=4" in command
    page.locator("#overview-rows a").nth(2).click()
    page.wait_for_selector("#title:text('node-3')", state="attached")
    page.context.close()


def test_one_question_is_shown_before_and_now_as_text(opened: tuple[Any, PageProcess]) -> None:
    page = window(opened, 1366)
    assert MARKUP in page.locator("#example-question").inner_text()
    before, now = page.locator("#example-answers li").all_inner_texts()
    assert "before training" in before and MARKUP in before and "reward 0.000" in before
    assert "after 50 rounds" in now and "reward 1.000" in now
    assert page.evaluate("window.taken") is None
    page.context.close()


def test_the_curve_can_be_saved(opened: tuple[Any, PageProcess], tmp_path: Path) -> None:
    page = window(opened, 1366)
    for ending in ("csv", "png"):
        with page.expect_download() as found:
            page.locator(f"#save-{ending}").click()
        assert found.value.suggested_filename == f"node-1.{ending}"
        found.value.save_as(tmp_path / f"curve.{ending}")
    rows = list(csv.DictReader((tmp_path / "curve.csv").open()))
    shares = {int(row["round"]): row["held_out"] for row in rows if row["held_out"]}
    assert {number: float(share) for number, share in shares.items()} == EVALUATED
    assert float(rows[-1]["own"]) > 0
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    page.context.close()


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1366, "dark"), (1920, "light")])
def test_it_is_accessible_and_never_wider_than_the_window(
    width: int, scheme: str, opened: tuple[Any, PageProcess]
) -> None:
    page = window(opened, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
    broken = """() => [...document.querySelectorAll("#families-list b")].flatMap((name) =>
      [...name.childNodes].filter((one) => one.nodeType === Node.TEXT_NODE).filter((word) => {
        const range = document.createRange();
        range.selectNode(word);
        return range.getClientRects().length !== 1;
      })).length"""
    page.wait_for_selector("#families-list > li")
    assert page.evaluate(broken) == 0, "a family's name breaks inside a word"
    page.context.close()
