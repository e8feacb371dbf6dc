"""The page that a node starts: it ends with it, outlives its kill, and is found again."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal_base.page_file import (
    PAGE_FILE,
    PAGE_TOKEN,
    PageHereError,
    ServedPage,
    own_page,
    served_page,
    tell_page,
)
from shoal_p2p import page_child
from tests.support.processes import LOOPBACK, ShoalProcess, wait_for

FLAGS = ("--role=observe", "--no-mdns", "--listen", LOOPBACK, "--http", "127.0.0.1:0")
PATIENCE_S = 60.0


def answer(url: str) -> int | None:
    """Return the status code with which an address answers a browser, or None without one."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    try:
        with browser.open(url, timeout=5) as found:
            return int(found.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def at(url: str, path: str) -> str:
    """Return something else that a page answers, opened by the same token."""
    return url.replace("/?token=", f"/{path}?token=")


def logged_url(node: ShoalProcess, which: int) -> str | None:
    lines = (node.data_dir / "out.txt").read_text().splitlines()
    events: list[dict[str, Any]] = [json.loads(line) for line in lines]
    urls = [str(one["url"]) for one in events if one["event"] == "page"]
    return urls[which] if len(urls) > which else None


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_page_outlives_a_kill_and_ends_with_the_node_in_order(tmp_path: Path) -> None:
    node = ShoalProcess("node", tmp_path / "node", *FLAGS).start()
    try:
        url = wait_for(lambda: logged_url(node, 0), PATIENCE_S, "the page's address")
        wait_for(lambda: answer(at(url, "healthz")) == 200 or None, PATIENCE_S, "a healthy node")
        for name in (PAGE_FILE, PAGE_TOKEN):
            assert (tmp_path / "node" / name).stat().st_mode & 0o077 == 0
        assert answer(url.partition("?")[0]) == 403
        node.kill()
        wait_for(lambda: answer(at(url, "healthz")) == 503 or None, PATIENCE_S, "down")
        assert answer(url) == 200
        node.start()
        assert wait_for(lambda: logged_url(node, 1), PATIENCE_S, "the address again") == url
        wait_for(lambda: answer(at(url, "healthz")) == 200 or None, PATIENCE_S, "found again")
        node.stop()
        wait_for(lambda: answer(url) is None or None, PATIENCE_S, "the page's end")
        assert served_page(tmp_path / "node") is None
    finally:
        node.stop()
        left = served_page(tmp_path / "node")
        if left is not None:
            os.kill(left.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_page_that_is_stopped_holds_no_node_up_and_ends_with_it(tmp_path: Path) -> None:
    """The page stands still with its socket open; the node answers all the same."""
    node = ShoalProcess("node", tmp_path / "node", *FLAGS).start()
    try:
        url = wait_for(lambda: logged_url(node, 0), PATIENCE_S, "the page's address")
        wait_for(lambda: answer(at(url, "readyz")) or None, PATIENCE_S, "the page at work")
        page = served_page(tmp_path / "node")
        assert page is not None
        os.kill(page.pid, signal.SIGSTOP)
        assert all(node.view() is not None for _ in range(50))
        os.kill(page.pid, signal.SIGCONT)
        wait_for(lambda: answer(at(url, "healthz")) == 200 or None, PATIENCE_S, "it still answers")
        node.stop()
        wait_for(lambda: answer(url) is None or None, PATIENCE_S, "the page's end")
        assert served_page(tmp_path / "node") is None
    finally:
        node.stop()


def test_one_page_of_a_folder_is_found_while_it_is_there(tmp_path: Path) -> None:
    assert served_page(tmp_path) is None
    with own_page(tmp_path):
        assert served_page(tmp_path) is None
        tell_page(tmp_path, ServedPage(pid=1, url="http://127.0.0.1:1/?token=x"))
        assert served_page(tmp_path) == ServedPage(pid=1, url="http://127.0.0.1:1/?token=x")
        assert (tmp_path / PAGE_TOKEN).read_text() == "x"
        with pytest.raises(PageHereError), own_page(tmp_path):
            pass
    assert served_page(tmp_path) is None
    assert not (tmp_path / PAGE_FILE).exists() and not (tmp_path / PAGE_TOKEN).exists()


def test_what_a_killed_page_left_is_not_the_next_ones(tmp_path: Path) -> None:
    """Its pid may be another process's, which a peer that ends would end."""
    tell_page(tmp_path, ServedPage(pid=1, url="http://127.0.0.1:1/"))
    with own_page(tmp_path):
        assert served_page(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x", "url": 1}', "x" * 5000])
def test_what_stands_in_its_place_is_no_page(tmp_path: Path, content: str) -> None:
    with own_page(tmp_path):
        (tmp_path / PAGE_FILE).write_text(content)
        assert served_page(tmp_path) is None


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("raise TypeError('a mistake')", "TypeError: a mistake"),
        ("import sys; sys.exit('shoal page: no port is free')", "no port is free"),
        ("", "it did not start"),
    ],
)
async def test_why_there_is_no_page_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str, expected: str
) -> None:
    urls, lines = await outcome_of_page(page, tmp_path, monkeypatch)
    assert lines == [f"no web page: {expected}"] and not urls


READY = 'print(\'{"url": "http://127.0.0.1:1/"}\', flush=True)'


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        # More than a pipe holds: without a reader, the page would block for ever.
        (
            "sys.stderr.write(('x' * 300 + chr(10)) * 1_000); raise TypeError('late')",
            "TypeError: late",
        ),
        ("sys.stdout.write('x' * (1 << 20)); sys.exit(3)", "exit code 3"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL"),
    ],
)
async def test_a_page_that_breaks_while_it_is_served_has_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str, expected: str
) -> None:
    urls, lines = await outcome_of_page(f"import os, sys; {READY}; {after}", tmp_path, monkeypatch)
    assert urls == ["http://127.0.0.1:1/"]
    assert lines == [f"the web page has ended: {expected}"]


async def outcome_of_page(
    page: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], list[str]]:
    """Run a page of this Python code until it is logged; return addresses and lines."""
    monkeypatch.setattr(page_child, "python", lambda *_: [sys.executable, "-c", page])
    lines, urls, is_logged = list[str](), list[str](), trio.Event()

    def hear(record: logging.LogRecord) -> bool:
        lines.append(record.getMessage())
        is_logged.set()
        return False

    page_child.log.addFilter(hear)
    try:
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                await nursery.start(page_child.run_page, folder, "127.0.0.1:0", urls.append)
                await is_logged.wait()
                nursery.cancel_scope.cancel()
    finally:
        page_child.log.removeFilter(hear)
    return urls, lines
