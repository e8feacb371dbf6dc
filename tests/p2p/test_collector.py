"""Memory that malloc keeps in a process that serves."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

STORM = """
import os, psutil, sys, trio, trio.testing
from shoal_base.waits import LOOK_S
from shoal_p2p.collector import give_memory_back

SIZES = [int(word) for word in sys.argv[1:]]

def rss():
    return psutil.Process().memory_info().rss

async def main():
    before = rss()
    count = 40_000_000 // sum(SIZES) * len(SIZES)
    messages = [os.urandom(SIZES[number % len(SIZES)]) for number in range(count)]
    kept = messages[:: len(messages) // 20]
    kept.append(os.urandom(1000))  # at the end of the heap
    most = rss()
    del messages
    held = rss()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(give_memory_back)
        await trio.sleep(1.5 * LOOK_S)
        nursery.cancel_scope.cancel()
    print(before, most, held, rss())

trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries' malloc has no trim")
@settings(max_examples=2)
@given(sizes=st.lists(st.integers(600, 100_000), min_size=1, max_size=6))
def test_memory_of_a_storm_is_given_back(sizes: list[int]) -> None:
    words = [sys.executable, "-c", STORM, *map(str, sizes)]
    output = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    before, most, _, after = map(int, output.split())
    assert most - before > 20_000_000
    assert after - before < (most - before) / 4
