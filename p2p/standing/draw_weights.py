"""Each publisher's factor on its chance of being drawn, by the setting `draws`. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from shoal_wire.types import PeerId

LEAST = 0.05
"""Of the greatest contributor's chance, for who has contributed hardly anything: it may be new."""


def draw_weights(
    draws: str, standing: Mapping[PeerId, float], contributed: Mapping[PeerId, int]
) -> dict[PeerId, float] | None:
    """Return factors from 0 to 1 by publisher; None where all are alike.

    `standing` says how useful each one's groups have been here (`p2p.standing.sampling`), 0 for
    whom the user has blocked; `contributed` how many groups it has brought.

    ``uniform``: blocked or not is all that counts. ``standing``: as it is. ``contribution``: that,
    times standing × contributed against the greatest such product, so that who shares twice as
    much that is useful is drawn from twice as often.
    """
    if draws == "uniform":
        blocked = {p: 0.0 for p, weight in standing.items() if weight <= 0.0}
        return blocked or None
    if draws != "contribution":
        return dict(standing)
    useful = {p: contributed.get(p, 0) * weight for p, weight in standing.items()}
    most = max(useful.values(), default=0.0)
    if most <= 0.0:
        return dict(standing)
    return {p: weight * max(LEAST, useful[p] / most) for p, weight in standing.items()}
