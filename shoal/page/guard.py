"""Decides which requests the page answers, before anything else reads them.

    method ─▶ Host ─▶ Origin, Sec-Fetch-Site ─▶ token ─▶ the page

Every website that the owner visits, and every user of the machine, can send requests to a local
page. The first three checks refuse websites (a name that resolves to 127.0.0.1 is "the same origin"
to a browser), the token refuses other users. The headers of an answer forbid framing, scripts of
other sites and caching.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, urlsplit

from shoal_settings.web_address import WebName

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer."""
_WHERE_THE_TOKEN_IS: Final = (
    "open this page by its full address, with ?token=…, which was printed at its start and "
    "is in page.json in the node's folder"
)
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules that a request must meet."""

    host: str
    """Host on which the page listens."""
    token: str
    """The token that a request must have: random, made by this process."""
    cookie: str = "shoal_page"
    """Name of the cookie in which the browser stores the token."""
    name: WebName | None = None
    """Host name, or proxy, by which browsers reach it; None for addresses only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """The parts of a request that the rules read."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    """Headers by name in lower case; a repeated one has both values, which no rule accepts."""


@dataclass(frozen=True, slots=True)
class PageReply:
    """One answer."""

    status: int
    body: bytes
    media_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers in addition to `HEADERS`."""


def in_words(status: int, message: str, headers: Mapping[str, str] | None = None) -> PageReply:
    """Return a text answer."""
    return PageReply(status, f"{message}\n".encode(), headers=headers or {})


def refusal(request: PageRequest, rules: Rules) -> PageReply | None:
    """Return the answer to a request that is refused; None if it is allowed. Pure.

    A token in the page's address becomes a cookie: the browser is redirected to the address without
    it.
    """
    if request.method not in ("GET", "HEAD"):
        return in_words(405, "this page is read-only", {"Allow": "GET, HEAD"})
    host = request.headers.get("host", "")
    if not _may_be_called(host, rules):
        return in_words(421, "this page has another name")
    if not _is_own(request, host, rules):
        return in_words(403, "request of another website; open the page by its own address")
    has_token = _has_token(request, rules)
    if not has_token and not _shows_token(request, rules):
        return in_words(401, _WHERE_THE_TOKEN_IS, {"WWW-Authenticate": "Bearer"})
    if has_token and request.path == "/":
        cookie = f"{rules.cookie}={rules.token}; HttpOnly; SameSite=Strict; Path=/"
        return in_words(303, "", {"Location": "/", "Set-Cookie": cookie})
    return None


def _has_token(request: PageRequest, rules: Rules) -> bool:
    """Return whether a request has the token in its address."""
    given = parse_qs(request.query).get("token", [])
    return len(given) == 1 and _same(given[0], rules.token)


def _may_be_called(host: str, rules: Rules) -> bool:
    """Return whether a Host header names this page: a foreign name could resolve to any machine."""
    name = _name_of(host)
    if name is None:
        return False
    given = "" if rules.name is None else rules.name.host
    return name in _LOCAL_NAMES or name in (rules.host, given) or _is_address(name)


def _name_of(host: str) -> str | None:
    if not host or any(c in host for c in "/@?#, \\"):
        return None
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
        return parts.hostname
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_own(request: PageRequest, host: str, rules: Rules) -> bool:
    """Return whether the request is of the page itself, or of a user who opened its address."""
    origin = request.headers.get("origin")
    own = {f"http://{host}".lower(), "" if rules.name is None else rules.name.origin}
    if origin is not None and origin.lower() not in own - {""}:
        return False
    site = request.headers.get("sec-fetch-site", "none")
    if site in ("none", "same-origin"):
        return True
    # A link on another site may open the page; that site cannot read it.
    return request.path == "/" and request.headers.get("sec-fetch-mode") == "navigate"


def _shows_token(request: PageRequest, rules: Rules) -> bool:
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    cookies = (part.strip().partition("=") for part in request.headers.get("cookie", "").split(";"))
    shown = [bearer, *(value for name, _, value in cookies if name == rules.cookie)]
    return any(_same(one, rules.token) for one in shown)


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())
