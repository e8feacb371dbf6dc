"""The marker of an import contract: a module that says it is pure is held to it."""

from __future__ import annotations

import grimp
import pytest
from importlinter.configuration import configure

from tests.support.marked_contract import MarkedContract, bears, docstring


@pytest.mark.parametrize(
    ("text", "is_marked"),
    [
        ("Counts verdicts. Pure.", True),
        ("Counts verdicts.\n\nPure: the caller brings the time.", True),
        ("Which groups there are. Pure; no tensors.", True),
        ("a ─▶ drawing\n\nPure and deterministic.", True),
        ("Counts verdicts. Pure but for the clock.", False),
        ("The paper calls this Pure.", False),
        ("Purely decorative.", False),
        ("", False),
    ],
)
def test_a_marker_is_a_sentence_of_the_docstring(text: str, is_marked: bool) -> None:
    assert bears(text, "Pure") is is_marked


def test_a_marked_module_that_reads_the_clock_breaks_the_contract() -> None:
    graph = grimp.ImportGraph()
    pure = "shoal_p2p.intake.ledger"
    assert bears(docstring(pure), "Pure")
    graph.add_module("shoal_p2p")
    graph.add_module("shoal_p2p.intake")
    graph.add_module(pure)
    graph.add_module("shoal_p2p.intake.between")
    graph.add_module("time", is_squashed=True)
    contract = _contract("Pure")
    assert contract.check(graph, verbose=False).kept
    graph.add_import(importer=pure, imported="shoal_p2p.intake.between")
    graph.add_import(importer="shoal_p2p.intake.between", imported="time")
    assert not contract.check(graph, verbose=False).kept


def test_a_room_without_a_marked_module_is_an_error() -> None:
    graph = grimp.ImportGraph()
    graph.add_module("shoal_p2p")
    with pytest.raises(ValueError, match="no module of shoal_p2p bears the marker"):
        _contract("Pure").check(graph, verbose=False)


def _contract(marker: str) -> MarkedContract:
    configure()  # import-linter keeps its timer in it
    return MarkedContract(
        "a rule",
        {"root_packages": ["shoal_p2p"], "include_external_packages": True},
        {"marker": marker, "rooms": ["shoal_p2p"], "forbidden_modules": ["time"]},
    )
