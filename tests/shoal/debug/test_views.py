"""A debug view has a type, a method of a peer, and a section of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoal.debug.views import VIEWS
from shoal_ipc.answers.views import VIEWS as ANSWERS
from shoal_p2p.ipc.net_views import NetViews
from shoal_p2p.ipc.node_views import NodeViews
from shoal_p2p.ipc.task_desk import TaskDesk

METHODS = {
    name for name in ANSWERS if any(hasattr(kind, name) for kind in (NodeViews, NetViews, TaskDesk))
}
SECTIONS = set(
    re.findall(r"^## (\w+)$", Path(__file__).parents[3].joinpath("docs/debug.md").read_text(), re.M)
)


@pytest.mark.parametrize("name", sorted({*VIEWS, *SECTIONS, *ANSWERS}))
def test_a_view_is_in_all_its_places(name: str) -> None:
    missing = []
    if name not in VIEWS:
        missing.append("a row of VIEWS in proto/shoal_ipc/answers/views.py")
    if name not in SECTIONS:
        missing.append(f"a section `## {name}` in docs/debug.md")
    if name in ANSWERS and name not in METHODS:
        missing.append(
            f"a method `{name}` in shoal_p2p/ipc/{{node_,net_,}}views.py or task_desk.py"
        )
    assert not missing, f"the view {name!r} lacks {' and '.join(missing)}"
