"""Finds the peer that a user names by its whole id, or by the part that tables print.

No I/O of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shoal_base.visible import visible
from shoal_ipc.messages import MAX_LABEL_CHARS
from shoal_p2p.net.address import parse_peer_id
from shoal_wire.types import PeerId

_MOST_CANDIDATES: Final = 8
_COMMON_START: Final = "12D3KooW"
"""Beginning of every ed25519 key's id, which is therefore no help."""


class WhichPeerError(ValueError):
    """No peer or several peers match; the text is one line."""


def which_peer(text: str, known: Iterable[PeerId]) -> PeerId:
    """Return the peer whose id is `text`, or the one of `known` whose id begins or ends so.

    An ellipsis around it, as in tables and examples, is ignored.

    Raises:
        WhichPeerError: none or several match; the text names the candidates.
    """
    try:
        return parse_peer_id(text)
    except ValueError:
        part = text.strip().strip("….")
    candidates = sorted(set(known))
    shown = f"'{visible(text[:MAX_LABEL_CHARS])}'"
    if not part or not part.isascii() or not part.isalnum():
        raise WhichPeerError(f"{shown} is not a peer id; {_listed('known here', candidates)}")
    if _COMMON_START.startswith(part):
        raise WhichPeerError(f"{shown} may be any peer; {_listed('known here', candidates)}")
    found = [
        peer_id for peer_id in candidates if peer_id.startswith(part) or peer_id.endswith(part)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise WhichPeerError(f"{shown} may be {len(found)} peers; {_listed('they are', found)}")
    raise WhichPeerError(
        f"{shown} is not a peer id, nor the beginning or end of a known one; "
        f"{_listed('known here', candidates)}"
    )


def _listed(what: str, peers: list[PeerId]) -> str:
    """Return a list of candidates by the ends of their ids, as tables show them."""
    if not peers:
        return f"{what}: none"
    more = f" and {len(peers) - _MOST_CANDIDATES} more" if len(peers) > _MOST_CANDIDATES else ""
    return f"{what}: {', '.join(f'…{p[-10:]}' for p in peers[:_MOST_CANDIDATES])}{more}"
