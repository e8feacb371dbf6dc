"""Which requests the page answers: methods, names, websites, tokens."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.page.guard import HEADERS, PageRequest, Rules, refusal
from shoal_settings.web_address import parse_web_name

OWN = "127.0.0.1:7462"
TOKEN = "t0k-en_" * 6
RULES = Rules(host="127.0.0.1", token=TOKEN)
COOKIE = f"shoal_page={TOKEN}"


def request(method: str = "GET", path: str = "/", query: str = "", **headers: str) -> PageRequest:
    """Return a request of an authorized browser, unless `cookie` says otherwise."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    whole = {"host": OWN, "cookie": COOKIE, **named}
    return PageRequest(method=method, path=path, query=query, headers=whole)


def status(one: PageRequest) -> int | None:
    found = refusal(one, RULES)
    return None if found is None else found.status


def test_only_reading_is_answered() -> None:
    assert status(request("GET")) is status(request("HEAD")) is None
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get", ""):
        assert status(request(method)) == 405


@pytest.mark.parametrize(
    "host", [OWN, "localhost:1", "LOCALHOST", "[::1]:7462", "127.0.0.1", "10.0.0.1:7462"]
)
def test_it_goes_by_this_machines_names(host: str) -> None:
    assert status(request(host=host)) is None


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:7462", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("127.0.0.1@evil.example", "evil.example#127.0.0.1", "127.0.0.1:x", ""),
        *("127.0.0.1, evil.example", "[::1", "localhost/", "a b", "2130706433", "0x7f.1"),
    ],
)
def test_no_foreign_name_is_answered(host: str) -> None:
    """A name that its owner lets resolve to this machine is another site's "same origin"."""
    assert status(request(host=host)) == 421


@given(st.text(max_size=40))
def test_of_all_names_only_its_own_are_answered(host: str) -> None:
    if status(request(host=host)) is None:
        name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
        assert name.lower() == "localhost" or ipaddress.ip_address(name.strip("[]")), host


@pytest.mark.parametrize(
    ("name", "host", "origin", "answered"),
    [
        ("box.example", "box.example:7462", "http://box.example:7462", True),
        ("box.example", "BOX.example", None, True),
        ("box.example", "127.0.0.1:7462", None, True),
        ("box.example", "other.example", None, False),
        ("box.example", "a.box.example", None, False),
        ("box.example", "box.example:7462", "https://box.example:7462", False),
        ("https://box.example", "box.example", "https://box.example", True),
        ("https://box.example", "127.0.0.1:7462", "https://box.example", True),
        ("https://box.example", "box.example", "https://box.example:9", False),
        ("https://box.example", "box.example", "https://evil.example", False),
        ("https://box.example", "evil.example", "https://box.example", False),
    ],
)
def test_it_goes_by_the_name_that_its_owner_gave(
    name: str, host: str, origin: str | None, answered: bool
) -> None:
    rules = replace(RULES, name=parse_web_name(name))
    one = request(host=host, **({} if origin is None else {"origin": origin}))
    assert (refusal(one, rules) is None) == answered
    without = PageRequest(method="GET", path="/", query="", headers={"host": host})
    refused = refusal(without, rules)
    assert refused is not None and refused.status in (401, 421), "a name is no token"


@pytest.mark.parametrize(
    "text", ["a b", "ftp://box", "https://", "box:80", "http://u@box", "https://box/x", "-", "a?b"]
)
def test_what_is_no_name_is_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="is not a name"):
        parse_web_name(text)


def test_requests_of_other_websites_are_refused() -> None:
    for site in ("cross-site", "same-site", "nonsense"):
        assert status(request(path="/api/state", sec_fetch_site=site)) == 403
        navigating = {"sec_fetch_site": site, "sec_fetch_mode": "navigate"}
        assert status(request(path="/api/state", **navigating)) == 403
        assert status(request(path="/", **navigating)) is None  # a link to the page
    for origin in ("http://evil.example", "null", "https://127.0.0.1:7462", "http://127.0.0.1:1"):
        assert status(request(origin=origin)) == 403
    assert status(request(origin=f"http://{OWN}", sec_fetch_site="same-origin")) is None


@given(st.sampled_from(["/", "/api/state", "/api/history", "/static/main.js", "/metrics", "/x"]))
def test_a_request_needs_the_token(path: str) -> None:
    """On whatever machine the page is served: each has other users, and all reach its loopback."""

    def with_(query: str = "", **headers: str) -> int | None:
        return status(request(path=path, query=query, **{"cookie": "", **headers}))

    for own in (OWN, "localhost:7462", "192.0.2.7:7462"):
        assert with_(host=own) == 401
        assert with_(f"token={TOKEN}", host=own) == (303 if path == "/" else None)
        assert with_(authorization=f"Bearer {TOKEN}", host=own) is None
        assert with_(cookie=f"a=b; {COOKIE}", host=own) is None
    for wrong in ("", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é"):
        assert with_(f"token={wrong}") == 401
        assert with_(authorization=f"Bearer {wrong}") == 401
        assert with_(cookie=f"shoal_page={wrong}") == 401
    assert with_(cookie=f"shoal_page_7463={TOKEN}") == 401
    assert with_(f"token=x&token={TOKEN}") == 401
    assert with_(f"token={TOKEN}", host="evil.example") == 421


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_nothing_but_the_token_is_one(query: str, cookie: str, authorization: str) -> None:
    assert status(request(query=query, cookie=cookie, authorization=authorization)) == 401


def test_who_is_refused_learns_where_the_token_is() -> None:
    refused = refusal(request(cookie=""), RULES)
    assert refused is not None and refused.status == 401
    says = refused.body.decode()
    assert "printed" in says and "page.json" in says and TOKEN not in says


def test_the_headers_let_nothing_but_the_page_itself_run() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'self'" in policy and "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


def test_the_token_becomes_a_cookie_that_no_script_reads() -> None:
    refused = refusal(request(query=f"token={TOKEN}", cookie=""), RULES)
    assert refused is not None and refused.status == 303
    assert refused.headers == {
        "Location": "/",
        "Set-Cookie": f"shoal_page={TOKEN}; HttpOnly; SameSite=Strict; Path=/",
    }
