"""A request ends, whatever the server does: by its size here, by its deadline in its callers'."""

from __future__ import annotations

import pytest

from policy.generation.remote_replies import Fault
from policy.generation.requests import Server
from tests.policy.model_server import ModelServer


def test_a_reply_is_read_no_further_than_its_bound() -> None:
    with ModelServer(lambda handler, _request: handler.reply(200, b" " * 5_000) is None) as server:  # type: ignore[func-returns-value]
        one = Server(
            server.base_url,
            api_key=None,
            request_seconds=20.0,
            connections=1,
            should_stop=lambda: False,
        )
        assert len(one.post(server.base_url, {}, 5_000).body) == 5_000
        with pytest.raises(Fault, match="too large"):
            one.post(server.base_url, {}, 4_999)
