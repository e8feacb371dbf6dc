"""The table of mutations: for each test that docs/threats.md names, its defence taken out.

The files `*.diff` of this folder hold it, a section of the page each:

    test tests/p2p/net/test_host.py::test_only_noise_is_spoken
    file p2p/net/host.py
    -    the lines as they are, found once in the file
    +    the lines without the defence

More `file` blocks of one mutation follow each other; another `test` line begins the next mutation,
and a test may have several. Lines with a space in front stay; a `#` line says what is taken out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Lines of one file, before and after."""

    path: str
    before: str
    after: str

    def applied(self, text: str) -> str:
        """Return a file's text with the defence taken out. Raises ValueError where it is not."""
        if not self.before or text.count(self.before) != 1:
            raise ValueError(f"{self.path} does not hold these lines once:\n{self.before}")
        return text.replace(self.before, self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One defence less, and the test that has to miss it."""

    test: str
    """``path::name``."""
    edits: tuple[Edit, ...]
    number: int
    """Among those of the same test, from 1."""

    @property
    def name(self) -> str:
        """Short, for the test's id."""
        name = self.test.rpartition("::")[2].removeprefix("test_")
        return name if self.number == 1 else f"{name}-{self.number}"


def mutations() -> list[Mutation]:
    """Return the whole table. Raises ValueError: a file is not written as it has to be."""
    found: list[Mutation] = []
    for path in sorted(FOLDER.glob("*.diff")):
        for block in f"\n{path.read_text(encoding='utf-8')}".split("\ntest ")[1:]:
            test, _, rest = block.partition("\n")
            number = 1 + sum(one.test == test for one in found)
            found.append(Mutation(test=test, edits=_edits(rest, path.name), number=number))
    return found


def _edits(block: str, where: str) -> tuple[Edit, ...]:
    edits = []
    for part in f"\n{block}".split("\nfile ")[1:]:
        name, _, rest = part.partition("\n")
        lines = [line for line in rest.split("\n") if line and not line.startswith("#")]
        if wrong := [line for line in lines if line[0] not in " +-"]:
            raise ValueError(f"{where}: {wrong[0]!r}")
        edits.append(
            Edit(path=name, before=_side(lines, "-"), after=_side(lines, "+")),
        )
    if not edits:
        raise ValueError(f"{where}: a mutation without a file")
    return tuple(edits)


def _side(lines: list[str], mark: str) -> str:
    return "".join(f"{line[1:]}\n" for line in lines if line[0] in (" ", mark))
