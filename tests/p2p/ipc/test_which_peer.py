"""A part of a peer id selects a peer, or is refused in one line."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal_p2p.ipc.which_peer import WhichPeerError, which_peer
from shoal_p2p.net.address import parse_peer_address
from shoal_wire.types import PeerId
from tests.support.hostile_text import ALL_OF_THEM, acting_in
from tests.support.nodes import fresh_identity

ONE, TWO, STRANGER = (fresh_identity().peer_id for _ in range(3))


@pytest.mark.parametrize(
    "text",
    [ONE, ONE[-10:], f"…{ONE[-10:]}", f"...{ONE[-6:]}", ONE[:20], f"{ONE[:20]}…", f" {ONE[-10:]} "],
)
def test_a_part_that_fits_one_alone_is_that_one(text: str) -> None:
    assert which_peer(text, [ONE, TWO]) == ONE


def test_a_whole_id_needs_not_be_known() -> None:
    assert which_peer(STRANGER, [ONE]) == STRANGER


@pytest.mark.parametrize(
    ("text", "known", "says"),
    [
        ("nonsense", [ONE], "'nonsense' is not a peer id, nor the beginning or end of a known one"),
        ("12D3KooW…", [ONE], "'12D3KooW…' may be any peer; known here: …"),
        ("12D3", [], "'12D3' may be any peer; known here: none"),
        ("", [ONE], "'' is not a peer id; known here: …"),
        ("…", [ONE], "'…' is not a peer id"),
        ("ünd", [ONE], "'ünd' is not a peer id"),
        (STRANGER[-10:], [ONE, TWO], "known here: "),
    ],
)
def test_an_unknown_peer_is_refused_with_the_known_ones(
    text: str, known: list[PeerId], says: str
) -> None:
    with pytest.raises(WhichPeerError) as refused:
        which_peer(text, known)
    assert says in str(refused.value)
    assert all(peer_id[-10:] in str(refused.value) for peer_id in known)
    assert "codec" not in str(refused.value)


def test_several_are_all_named_up_to_a_bound() -> None:
    alike = [PeerId(f"12D3KooW{number:02d}end") for number in range(20)]
    with pytest.raises(WhichPeerError, match=r"may be 20 peers; they are: .* and 12 more$"):
        which_peer("end", alike)


@settings(max_examples=30)
@given(st.text())
@example(ALL_OF_THEM)
def test_any_text_is_an_id_or_a_line_in_which_nothing_acts(text: str) -> None:
    with pytest.raises(WhichPeerError) as refused:
        which_peer(text + "!", [ONE])
    assert not acting_in(str(refused.value))


@pytest.mark.parametrize("ending", ["…", "..."])
def test_an_address_copied_from_an_example_is_reported_as_truncated(ending: str) -> None:
    with pytest.raises(ValueError, match="it is abbreviated") as refused:
        parse_peer_address(f"/ip4/203.0.113.7/tcp/4001/p2p/12D3KooW{ending}")
    assert "codec" not in str(refused.value)
