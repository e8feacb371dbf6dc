"""Debian's Chromium, driven by Playwright: one for all tests of a process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import wait_for

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
HOW = "make browser installs it"


def chromium() -> str:
    """Return where Chromium is; without it skip, and fail where the gate runs."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(f"no Chromium: {HOW}")
        pytest.skip(f"needs Chromium: {HOW}")
    return found


@contextmanager
def open_browser() -> Iterator[Any]:
    """Run one headless browser."""
    if not os.environ.get("CI"):
        pytest.importorskip("playwright", reason="comes with the extra `dev`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


class PageProcess:
    """A `shoal page` of its own."""

    def __init__(self, *flags: str, log: Path) -> None:
        """Start it; `log` has what it says."""
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "shoal", "page", "--http", "127.0.0.1:0", *flags],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self.url: str = wait_for(self._url, 60.0, "the page's address")
        """The address as people open it, with the token."""

    def _url(self) -> str | None:
        output = self._log.read_text()
        assert self.process.poll() is None, output
        return output.split()[-1] if output.endswith("\n") else None

    def at(self, path: str) -> str:
        """Return the address of something else that the page answers, without the token."""
        return self.url.partition("?token=")[0] + path

    def end(self) -> int:
        """SIGTERM; return the exit code."""
        self.process.terminate()
        return self.process.wait(20.0)


@contextmanager
def page_of(*folders: Path, log: Path) -> Iterator[PageProcess]:
    """Serve a page of some folders."""
    flags = [word for folder in folders for word in ("--data-dir", str(folder))]
    page = PageProcess(*flags, log=log)
    try:
        yield page
    finally:
        page.process.kill()
        page.process.wait()


def violations(page: Any) -> list[str]:
    """Return what axe-core has against a page."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found
        for node in one["nodes"]
    ]
