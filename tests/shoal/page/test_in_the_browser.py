"""The page in Chromium, beside a real node: what a person sees, hears and can be done to."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from p2p.parts import wall_ms
from shoal_wire.types import PublishedGroup
from tests.shoal.page.browser import PageProcess, open_browser, page_of, violations
from tests.support import factories as make
from tests.support.hostile_text import ALL_THAT_UTF8_HOLDS, TRICKS, acting_in
from tests.support.running_node import RunningNode

pytestmark = pytest.mark.timeout(180)

PATIENCE_MS = 30_000
LONG_LINE = "x" * (32 * 1024)
MARKUP = (
    "<script>window.taken = 1</script>",
    "<img src=x onerror='window.taken = 1'>",
    "<svg onload='window.taken = 1'>",
    "</p><style>*{display:none}</style>",
    "javascript:window.taken=1",
    "&lt;b&gt;&#x202e;",
    "${window.taken = 1}",
    "\u2028<iframe srcdoc='<script>parent.taken=1</script>'>",
)
HOSTILE = (
    *(f"before {one} after" for one in MARKUP),
    ALL_THAT_UTF8_HOLDS.replace("\0", ""),
    LONG_LINE,
    "\u202eesrever\n" * 50,
)
METRICS = 400
SEED = 20261122


@dataclass
class Stage:
    """A node, its page, and a browser."""

    browser: Any
    process: PageProcess
    node: RunningNode
    folder: Path
    group: str

    def open(self, width: int = 1366, scheme: str = "light", place: str = "") -> Any:
        """Open the page in a window of its own."""
        context = self.browser.new_context(
            viewport={"width": width, "height": 768},
            color_scheme=scheme,
            reduced_motion="reduce",
        )
        page = context.new_page()
        page.said = []  # what the browser complained of
        page.on("console", lambda one: page.said.append(one.text) if one.type == "error" else None)
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("dialog", lambda one: (page.said.append(one.message), one.dismiss()))
        page.goto(self.process.url + place)
        page.wait_for_selector("#right-word:text('fine'), #right[data-state=warn], [data-state=ok]")
        return page


def metrics_lines() -> str:
    """A run that learns."""
    dice = random.Random(SEED)
    lines: list[dict[str, Any]] = []
    for number in range(METRICS):
        reward = min(1.0, max(0.0, 0.1 + 0.7 * number / METRICS + dice.uniform(-0.1, 0.1)))
        lines.append(
            {
                "event": "round",
                "round": number,
                "reward_local": reward,
                "reward_external": 0.8 * reward,
                "step_time": 1.5,
            }
        )
        if number % 50 == 0:
            held_out = {"held_out/pass@1": reward, "held_out/chain_sum": reward / 2}
            lines.append({"event": "held_out", "round": number, **held_out})
    return "".join(json.dumps(line) + "\n" for line in lines)


def hostile_group(node: RunningNode) -> PublishedGroup:
    """What a stranger says, taken in by the node."""
    author = make.Author(node.node.member.manifest, now_ms=wall_ms())
    signed = author.signed(author.batch([make.group(texts=HOSTILE)]))
    node.call(node.node.pool.keep_external, signed)
    return node.node.recent.after(0, limit=1)[0].group


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    root = tmp_path_factory.mktemp("page")
    folder = root / "node"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text(metrics_lines())
    with ExitStack() as stack:
        browser = stack.enter_context(open_browser())
        node = stack.enter_context(RunningNode(folder))
        group = hostile_group(node)
        process = stack.enter_context(page_of(folder, log=root / "page.txt"))
        yield Stage(browser, process, node, folder, group.group_id.hex())


def test_the_first_four_questions_stand_above_the_fold(stage: Stage) -> None:
    page = stage.open()
    page.wait_for_selector("#chart canvas")
    questions = page.locator(".card:visible h2")
    assert questions.all_text_contents() == [
        "Am I all right?",
        "Is it learning?",
        "From whom?",
        "Is it worth it?",
        "What was said?",
        "What was refused?",
        "What now?",
    ]
    for name in ("right", "learning", "whom", "worth"):
        box = page.locator(f"#{name}").bounding_box()
        assert box is not None and box["y"] + box["height"] <= 768, name
    assert "400 rounds" in page.locator("#chart").get_attribute("aria-label")
    page.get_by_role("button", name="time").click()
    page.get_by_role("button", name="last hour").click()
    assert page.said == []
    page.context.close()


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


def test_what_a_stranger_wrote_only_stands_there(stage: Stage) -> None:
    for width in (1366, 360):
        page = stage.open(width, place=f"#/node/group/{stage.group}")
        page.wait_for_selector("#group .answers", timeout=PATIENCE_MS)
        answers = page.locator("#group .answers .text")
        assert answers.count() == len(HOSTILE)
        shown = page.locator("body").inner_text()
        for one in MARKUP[:2]:
            assert one in shown
        assert r"\u202eesrever" in shown and r"\x1b[2J" in shown
        assert acting_in(shown) - {"\n", "\t"} == set()
        assert page.evaluate("window.taken") is None
        assert page.locator("#group script, #group img, #group svg, #group style").count() == 0
        direction = "getComputedStyle(document.querySelector('#group .text')).unicodeBidi"
        assert page.evaluate(direction) == "isolate"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        assert page.said == []
        page.context.close()


def test_no_text_becomes_markup_whatever_it_is(stage: Stage) -> None:
    """By a generator: what is put together from markup, tricks and acting characters."""
    dice = random.Random(SEED)
    pieces = [*MARKUP, *TRICKS, *"<>&\"'`/=\\\u202e\u2066\x1b\u200b", "onload=", "src="]
    texts = ["".join(dice.choices(pieces, k=dice.randint(1, 12))) for _ in range(500)]
    page = stage.open()
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
    page.context.close()


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
    assert any("Content Security Policy" in one for one in page.said)
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


def test_a_keyboard_reaches_everything(stage: Stage) -> None:
    page = stage.open()
    page.wait_for_selector("#said-rows a", timeout=PATIENCE_MS)
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.closest('section')?.id ?? ''"))
        if seen[-1] == "now":
            break
    assert {"learning", "whom", "said", "now"} <= set(seen)
    page.locator("#said-rows a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#group .answers", timeout=PATIENCE_MS)
    assert "/group/" in page.url
    assert page.evaluate("document.activeElement.id") == "group"
    page.context.close()


def test_it_outlives_the_node_and_finds_it_again(
    stage: Stage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("mortal")
    folder = root / "node"
    folder.mkdir()
    with ExitStack() as life, page_of(folder, log=root / "page.txt") as process:
        first = life.enter_context(RunningNode(folder))
        stage = Stage(stage.browser, process, first, folder, "")
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


def test_a_page_that_is_gone_says_so(
    stage: Stage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = tmp_path_factory.mktemp("gone") / "page.txt"
    with page_of(stage.folder, log=log) as process:
        page = Stage(stage.browser, process, stage.node, stage.folder, "").open()
        assert not page.locator("#lost").is_visible()
        assert process.end() == 0
        page.wait_for_selector("#lost:visible", timeout=PATIENCE_MS)
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
