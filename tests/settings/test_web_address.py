"""Where a page is served, as people write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_settings.web_address import DEFAULT_PORT, parse_web_address
from tests.settings import settings_cases as case


def test_auto_may_move_and_none_is_none() -> None:
    auto = parse_web_address("auto")
    assert auto is not None and auto.may_move and auto.port == DEFAULT_PORT
    assert parse_web_address("none") is None


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("localhost:80", "localhost", 80),
        ("[::1]:65535", "::1", 65535),
        ("0.0.0.0:7462", "0.0.0.0", 7462),
        ("[::]:7462", "::", 7462),
        ("node.example:7462", "node.example", 7462),
    ],
)
def test_an_address(text: str, host: str, port: int) -> None:
    found = parse_web_address(text)
    assert found is not None and not found.may_move
    assert (found.host, found.port) == (host, port)


@pytest.mark.parametrize(
    "text",
    ["", "7462", ":7462", "localhost", "localhost:", "a:65536", "::1:80", "[::1]", "[a]:1", "a b:1",
     "http://localhost:80", "a:-1", "a:1_0", "a:١", "-a:1", "[127.0.0.1]:1", "AUTO"],
)  # fmt: skip
def test_anything_else_is_one_line(text: str) -> None:
    line = case.error_of("node", [f"--http={text}"])
    assert "HOST:PORT" in line and "--http" in line


def test_no_page_is_a_flag_that_outranks_a_variable() -> None:
    loaded = case.loaded("node", ["--no-http"], {"SHOAL_HTTP": "auto"})
    assert loaded.settings.http == "none"


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_line(text: str) -> None:
    try:
        found = parse_web_address(text)
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        assert found is None or 0 <= found.port < 65_536
