"""The page in Chromium, with a real node: what a user sees and what a peer cannot do.

One window is looked at by all of these; `test_in_the_browser_at_length.py` opens many.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.shoal.page.browser import violations
from tests.shoal.page.stage import (
    ANSWERED,
    HOSTILE,
    MARKUP,
    PATIENCE_MS,
    SEED,
    Stage,
    connected_at,
    connected_peer_of,
    open_stage,
)
from tests.support.hostile_text import TRICKS, acting_in
from tests.support.running_node import RunningNode

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with open_stage(tmp_path_factory.mktemp("page")) as made:
        yield made


@pytest.fixture(scope="module")
def window(stage: Stage) -> Any:
    return stage.open()


@pytest.fixture
def page(window: Any, stage: Stage) -> Iterator[Any]:
    """The window as it was opened, and after the test without an error of the browser."""
    window.set_viewport_size({"width": 1366, "height": 768})
    window.goto(stage.process.url + "#/")
    window.reload()
    window.wait_for_selector(ANSWERED)
    window.errors.clear()
    yield window
    assert window.errors == []


def test_health_and_learning_are_above_the_fold(page: Any) -> None:
    page.wait_for_selector("#chart canvas")
    questions = page.locator(".card:visible h2")
    assert questions.all_text_contents() == [
        "Is it healthy?",
        "Is it learning?",
        "Publishers",
        "Is it worth it?",
        "Rollouts",
        "Next steps",
        "Settings",
    ], "refusals only where there are some"
    for name in ("right", "learning"):
        box = page.locator(f"#{name}").bounding_box()
        assert box is not None and box["y"] + box["height"] <= 768, name
    assert "400 rounds" in page.locator("#chart").get_attribute("aria-label")


def test_text_of_a_peer_is_only_shown(stage: Stage, page: Any) -> None:
    page.goto(stage.process.at(f"#/node/group/{stage.group}"))
    # The newest group stands open until the chosen one has come.
    has_come = "many => document.querySelectorAll('#group .answers .text').length === many"
    page.wait_for_function(has_come, arg=len(HOSTILE), timeout=PATIENCE_MS)
    for width in (1366, 360):
        page.set_viewport_size({"width": width, "height": 768})
        answers = page.locator("#group .answers .text")
        assert answers.count() == len(HOSTILE)
        shown = page.locator("body").inner_text()
        for one in MARKUP[:2]:
            assert one in shown
        assert r"\u202eesrever" in shown and r"\x1b[2J" in shown
        assert r"\u202e<img src=x" in page.locator("#peers-rows").inner_text()
        assert acting_in(shown) - {"\n", "\t"} == set()
        assert page.evaluate("window.taken") is None
        assert page.locator("#group script, #group img, #group svg, #group style").count() == 0
        direction = "getComputedStyle(document.querySelector('#group .text')).unicodeBidi"
        assert page.evaluate(direction) == "isolate"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width


def test_a_game_is_a_dialogue_that_says_whose_each_message_is(stage: Stage, page: Any) -> None:
    page.goto(stage.process.at(f"#/node/group/{stage.games}"))
    page.wait_for_selector("#group .dialogue", timeout=PATIENCE_MS)
    games = page.locator("#group .dialogue")
    assert games.count() == 2
    turns = games.nth(1).locator("li").all_inner_texts()
    assert [turn.split()[0] for turn in turns] == ["policy", "environment"] * 2
    assert turns[:2] == ["policy x", "environment That is no number."]
    shown = games.nth(0).inner_text()
    for one in MARKUP[:2]:
        assert one in shown
    assert page.evaluate("window.taken") is None
    assert page.locator("#group script, #group img, #group svg, #group style").count() == 0
    assert violations(page) == []


def test_no_text_becomes_markup_whatever_it_is(page: Any) -> None:
    """By a generator: what is put together from markup, tricks and acting characters."""
    dice = random.Random(SEED)
    pieces = [*MARKUP, *TRICKS, *"<>&\"'`/=\\\u202e\u2066\x1b\u200b", "onload=", "src="]
    texts = ["".join(dice.choices(pieces, k=dice.randint(1, 12))) for _ in range(500)]
    wrong = page.evaluate(
        """async (texts) => {
          const { foreign, make, rows } = await import("/static/dom.js");
          const list = document.createElement("ul");
          document.body.append(list);
          rows(list, texts.map((text, at) => ({ text, at })), (one) => one.at,
            ({ text }) => make("li", { title: text }, foreign(text), text));
          const bad = [...list.children].filter((child, at) =>
            child.querySelectorAll("*").length !== 1 ||
            child.textContent !== texts[at] + texts[at] || child.title !== texts[at]);
          list.remove();
          return bad.length;
        }""",
        [text.encode("utf-8", "replace").decode() for text in texts],
    )
    assert wrong == 0
    assert page.evaluate("window.taken") is None


def test_the_page_is_accessible(stage: Stage, page: Any) -> None:
    """Names, roles, contrast, order: by axe-core, with one group open."""
    page.goto(stage.process.at(f"#/node/group/{stage.group}"))
    page.wait_for_selector("#group .answers", timeout=PATIENCE_MS)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert violations(page) == []


def test_a_keyboard_reaches_everything(page: Any) -> None:
    page.wait_for_selector("#rollouts-rows a", timeout=PATIENCE_MS)
    page.wait_for_selector("#families-list > li", timeout=PATIENCE_MS)  # after the first rounds
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.closest('section')?.id ?? ''"))
        if seen[-1] == "now":
            break
    assert {"learning", "peers", "rollouts", "now"} <= set(seen)
    page.locator("#rollouts-rows a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#group .answers", timeout=PATIENCE_MS)
    assert "/group/" in page.url
    assert page.evaluate("document.activeElement.id") == "group"


def test_nothing_but_its_own_files_is_run(stage: Stage) -> None:
    page = stage.open()
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.taken = 1";
          document.body.append(script);
          document.body.insertAdjacentHTML("beforeend", "<img src=/nothing onerror='taken=1'>");
        }"""
    )
    page.wait_for_timeout(200)
    assert page.evaluate("window.taken") is None
    assert any("Content Security Policy" in one for one in page.errors)
    page.context.close()


def test_a_peer_is_shown_within_three_seconds_of_its_joining(stage: Stage, page: Any) -> None:
    """The node's time of the connection, compared with the browser's time of its row.

    A machine that stands still for a while is given another try.
    """
    delays_s = []
    for _ in range(3):
        page.evaluate(
            """() => {
              window.shownAt = {};
              new MutationObserver(() => {
                for (const one of document.querySelectorAll("#peers-rows th span[title]"))
                  window.shownAt[one.title] ??= Date.now() / 1000;
              }).observe(document.getElementById("peers-rows"), { childList: true });
            }"""
        )
        with connected_peer_of(stage.node) as peer_id:
            row = page.locator(f"#peers-rows tr:has([title='{peer_id}'])")
            row.wait_for(timeout=PATIENCE_MS)
            shown_at = page.evaluate("(peer) => window.shownAt[peer]", peer_id)
            delays_s.append(shown_at - connected_at(stage.node, peer_id))
        row.wait_for(state="detached", timeout=PATIENCE_MS)
        if delays_s[-1] <= 3.0:
            break
    assert min(delays_s) <= 3.0, delays_s


@pytest.mark.slow
def test_it_outlives_the_node_and_says_when_it_is_gone_itself(stage: Stage, page: Any) -> None:
    """The last test: it ends the node of the other tests."""
    peer_id, began = stage.node.node.member.peer_id, time.time()
    stage.life.close()
    page.wait_for_selector("#right[data-state=down]", timeout=PATIENCE_MS)
    clock = "async (unix) => (await import('/static/format.js')).clock(unix)"
    times = [page.evaluate(clock, at) for at in range(int(began), int(time.time()) + 1)]
    says = page.locator("#right-says").inner_text()
    assert says in [f"Down since {one}: no node answers here." for one in times]
    assert page.locator("#peers-rows tr").count() >= 1  # what was known stays
    assert page.request.get(stage.process.at("healthz")).status == 503
    with RunningNode(stage.folder) as again:
        page.wait_for_selector("#right:not([data-state=down])", timeout=PATIENCE_MS)
        assert again.node.member.peer_id == peer_id
        assert page.request.get(stage.process.at("healthz")).status == 200
    page.wait_for_selector("#right[data-state=down]", timeout=PATIENCE_MS)
    assert not page.locator("#lost").is_visible()
    assert stage.process.end() == 0
    page.wait_for_selector("#lost:visible", timeout=PATIENCE_MS)
    page.errors.clear()  # the browser reports that the server is gone
