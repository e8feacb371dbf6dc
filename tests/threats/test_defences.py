"""Every row of docs/threats.md names a test that misses its defence: taken out, the test fails.

`mutations.py` says how the table is written. The runs are of the slow suite, a test each, in a copy
of the tree; `-k` picks some:

    make test-slow ARGS='tests/threats -k "flood or relay"'
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import site
from tests.support.tree import ROOT, Tree
from tests.threats.mutations import Mutation, mutations
from tests.threats.runs import Runs, open_runs

NAMED = set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", site.page("threats.md")))
MUTATIONS = mutations()
RUN_S = 900
"""A run takes no longer, whatever hangs: of a fast test pytest's own limit comes first."""
FAILED, PASSED = 1, 0
"""How pytest ends."""


def test_every_mutation_stands_below_a_threat_that_the_page_shows() -> None:
    tested = {mutation.test for mutation in MUTATIONS}
    assert tested == NAMED, f"shown or not: {sorted(tested ^ NAMED)}"


def test_each_mutation_changes_what_is_there_into_what_could_be() -> None:
    wrong = []
    for mutation in MUTATIONS:
        try:
            for path, text in mutated(mutation).items():
                assert text != (ROOT / path).read_text(encoding="utf-8"), mutation.name
                ast.parse(text, path)
        except (ValueError, SyntaxError, OSError) as error:
            wrong.append(f"{mutation.name}: {error}")
    assert not wrong, "\n".join(wrong)


def mutated(mutation: Mutation, root: Path = ROOT) -> dict[str, str]:
    """Return the files without the defence. Raises ValueError, OSError: it is not there."""
    texts = {edit.path: (root / edit.path).read_text("utf-8") for edit in mutation.edits}
    for edit in mutation.edits:
        texts[edit.path] = edit.applied(texts[edit.path])
    return texts


def test_names_are_distinguished() -> None:
    names = Counter(mutation.name for mutation in MUTATIONS)
    assert max(names.values()) == 1, names.most_common(3)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def runs(tree: Tree, request: pytest.FixtureRequest) -> Iterator[Runs]:
    specs = [getattr(item, "callspec", None) for item in request.session.items]
    picked = [call.params["mutation"] for call in specs if call and "mutation" in call.params]
    with open_runs(tree, [mutation.test for mutation in picked]) as runs:
        yield runs


@pytest.fixture(scope="module")
def green() -> set[str]:
    """The tests that have passed in the copy as it is."""
    return set()


@pytest.mark.slow
@pytest.mark.timeout(2 * RUN_S + 60)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_test_misses_its_defence(
    tree: Tree, runs: Runs, green: set[str], mutation: Mutation
) -> None:
    if mutation.test not in green:
        code, output = runs.run(mutation.test, timeout_s=RUN_S)
        assert code == PASSED, f"it fails with its defence, too:\n{output[-3000:]}"
        if " passed" not in output:
            pytest.skip("the test is skipped here")
        green.add(mutation.test)
    after = mutated(mutation, tree.folder)
    before = {path: tree.read(path) for path in after}
    tree.write(after)
    try:
        code, output = runs.run(mutation.test, timeout_s=RUN_S)
    finally:
        tree.write(before)
    assert code != PASSED, f"{mutation.test} does not miss it"
    assert code == FAILED, f"it did not run:\n{output[-3000:]}"
