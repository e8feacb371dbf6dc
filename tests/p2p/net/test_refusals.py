"""Errors and logs for peers refused because of a key or a list, and how often they appear."""

from __future__ import annotations

import logging
import os

import pytest
import trio
import trio.testing
from libp2p.io.exceptions import IOException

from shoal_base.waits import HOUR_S
from shoal_p2p.net.access import GREETING, AccessDenied, looks_encrypted
from shoal_p2p.net.private import WrongSwarmKeyError
from shoal_p2p.net.refusals import NotListedError, RefusalCounts, find_denial
from shoal_p2p.peers.news import DenialLog
from shoal_wire.types import PeerId

PEER, ADDRESS = PeerId("P"), "/ip4/192.0.2.1/tcp/4001/p2p/P"


def test_a_nonce_is_distinguished_from_other_protocols() -> None:
    assert sum(not looks_encrypted(os.urandom(44)) for _ in range(2000)) < 20
    for other in (b"", os.urandom(23), GREETING + os.urandom(60), bytes(60), b"EHLO mail." * 5):
        assert not looks_encrypted(other)


def test_each_denial_is_one_line_with_its_remedy() -> None:
    for denial in AccessDenied:
        remedies = {AccessDenied.NOT_LISTED: "--allow-peers", AccessDenied.BANNED: "identity.key"}
        assert remedies.get(denial, "--swarm-key FILE") in denial.remedy
        assert "\n" not in denial.message + denial.remedy


def test_the_denial_is_found_in_the_chain_of_causes() -> None:
    outer = OSError("handshake failed")
    outer.__cause__ = WrongSwarmKeyError(AccessDenied.KEY_DIFFERS)
    assert find_denial(outer) is AccessDenied.KEY_DIFFERS
    assert find_denial(IOException("the peer closed the connection")) is None


async def test_refusals_are_logged_at_once_and_then_with_backoff(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = RefusalCounts()
    with caplog.at_level(logging.WARNING):
        for _ in range(24 * 360):
            assert refusals.record("192.0.2.1", WrongSwarmKeyError(AccessDenied.KEY_MISSING))
            await trio.sleep(10)
        assert 24 <= len(caplog.messages) < 34, "hourly in the end"
        caplog.clear()
        assert refusals.record("192.0.2.1", NotListedError("12D3"))
        assert refusals.record("192.0.2.2", WrongSwarmKeyError(AccessDenied.KEY_MISSING))
        assert len(caplog.messages) == 2
        caplog.clear()
        await trio.sleep(3 * HOUR_S)
        for _ in range(8):
            refusals.record("192.0.2.1", WrongSwarmKeyError(AccessDenied.KEY_MISSING))
            await trio.sleep(10)
        assert len(caplog.messages) == 2, "a peer that returns after hours is logged again"
    assert not refusals.record("192.0.2.1", IOException("the peer closed the connection"))
    assert refusals.counts == {AccessDenied.KEY_MISSING: 24 * 360 + 9, AccessDenied.NOT_LISTED: 1}


def test_a_bootstrap_denial_is_logged_once_until_it_changes() -> None:
    news = DenialLog()
    line = news.look(PEER, ADDRESS, AccessDenied.KEY_MISSING)
    assert line is not None
    assert ADDRESS in line
    assert "--swarm-key FILE" in line
    assert news.look(PEER, ADDRESS, AccessDenied.KEY_MISSING) is None
    assert news.look(PEER, ADDRESS, AccessDenied.KEY_DIFFERS) is not None
    news.answered(PEER)
    assert news.look(PEER, ADDRESS, AccessDenied.KEY_DIFFERS) is not None


def test_a_list_is_blamed_only_after_a_repetition() -> None:
    news = DenialLog()
    assert news.look(PEER, ADDRESS, AccessDenied.NOT_LISTED) is None
    line = news.look(PEER, ADDRESS, AccessDenied.NOT_LISTED)
    assert line is not None
    assert "--allow-peers" in line
