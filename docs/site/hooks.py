"""Hooks of mkdocs (the menu, and links out of docs/ as plain text), and the generated tables.

The menu follows `docs/README.md`: a page that it does not list is in no menu. In a page, a line
``<!-- table: NAME WORD… -->`` begins a table that a function of `TABLES` generates from the code,
and ``<!-- end of table -->`` ends it. `make tables` writes the tables into the pages, where they
are committed. A test compares them with the code.
"""

from __future__ import annotations

import ast
import csv
import importlib.util
import inspect
import posixpath
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

ROOT = Path(__file__).resolve().parents[2]
_HEADING = re.compile(r"^## (.+)$", re.M)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_TABLE = re.compile(
    r"^<!-- table: (?P<words>[^>]+?) -->\n(?:(?:(?!<!-- table: ).*\n)*?<!-- end of table -->\n)?",
    re.M,
)
_LONG = 24
"""Defaults of arguments that have this many characters or more are not shown."""


def on_config(config: Any) -> Any:
    """Make the menu of the sections of the index page and the links in them."""
    _, *parts = _HEADING.split(Path(config.docs_dir, "README.md").read_text(encoding="utf-8"))
    menu: list[Any] = [{"Welcome": "README.md"}]
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        pages = [
            {name[0].upper() + name[1:]: target}
            for name, target, _ in _LINK.findall(text)
            if target.endswith(".md") and {name: target} not in menu
        ]
        menu.append({title: pages})
    config.nav = menu
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links to files outside docs/, which the site does not have, by their text."""

    def link(found: re.Match[str]) -> str:
        name, target, _section = found.groups()
        if not target or ":" in target:
            return found[0]
        place = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), target))
        return name if place.startswith("../") else found[0]

    return _LINK.sub(link, markdown)


def with_tables(markdown: str) -> str:
    """Return the page `markdown` with each of its tables generated again."""

    def table(found: re.Match[str]) -> str:
        name, *words = found["words"].split()
        body = TABLES[name](*words)
        return f"<!-- table: {found['words']} -->\n\n{body}\n\n<!-- end of table -->\n"

    return _TABLE.sub(table, markdown)


def _rows(head: str, rows: Iterator[tuple[str, ...]]) -> str:
    """Return a table; `head` has the names of its columns with ``|`` between them."""
    cells = [*(name.strip() for name in head.split("|"))]
    lines = [cells, ["---"] * len(cells), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _settings() -> str:
    from shoal_settings.groups import BEGINNINGS, group_of
    from shoal_settings.key import SIZES, rule_of, size_text
    from shoal_settings.loader import off_value
    from shoal_settings.schema import ALIASES, Settings, public_name

    def row(field: str) -> tuple[str, ...]:
        info = Settings.model_fields[field]
        key = public_name(field)
        flag = key.replace("_", "-")
        flags = [f"`--{flag}`"]
        if (info.annotation is bool and info.default) or off_value(info) is not None:
            flags.append(f"`--no-{flag}`")
        flags += [f"`{alias}`" for alias in ALIASES.get(field, ())]
        rule = rule_of(info).removeprefix("must be ")
        return (
            f"`{key}`",
            ", ".join(flags),
            _default(size_text(info.default) if field in SIZES else info.default),
            f"{info.description} ({rule})" if rule else str(info.description),
        )

    return "\n\n".join(
        f"### {group[0].upper()}{group[1:]}\n\n"
        + _rows(
            "key | flag | default | meaning (and bounds)",
            (row(field) for field in Settings.model_fields if group_of(field) == group),
        )
        for group in BEGINNINGS.values()
    )


def _defaults() -> str:
    from shoal_settings.real_models import REAL_DEFAULTS
    from shoal_settings.schema import Settings

    usual = Settings()
    return _rows(
        "setting | embedded | real | why",
        (
            (f"`{one.setting}`", f"{getattr(usual, one.setting):g}", one.text, one.why)
            for one in REAL_DEFAULTS
        ),
    )


def _default(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value) or "none"
    return f"`{value}`"


def _commands() -> str:
    from shoal.__main__ import COMMANDS

    return _rows(
        "command | what it does",
        ((f"`shoal {name}`", command.does) for name, command in COMMANDS.items()),
    )


def _rounds() -> str:
    from shoal_policy.record.metrics import metric_name
    from shoal_policy.record.progress import RoundRecord

    says = _documented(RoundRecord)
    return _rows(
        "metric | meaning",
        (
            (f"`{metric_name(one.name)}`", says[one.name].replace("|", "\\|"))
            for one in fields(RoundRecord)
        ),
    )


def _scraped() -> str:
    from shoal.view.metrics import METRICS

    return _rows(
        "metric | labels | meaning",
        ((f"`{one.name}`", ", ".join(one.labels), one.help) for one in METRICS),
    )


def _view(word: str) -> str:
    from shoal_ipc.answers.views import VIEWS

    return _rows("key | meaning", ((f"`{key}`", says) for key, says in _keys(VIEWS[word])))


def _keys(kind: type, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys of an answer that need words, and those of the answers within it."""
    says, hints = _documented(kind), get_type_hints(kind)
    for one in fields(kind):
        text = says.get(one.name) or one.metadata.get("help")
        if text:
            yield before + one.name, text.replace("|", "\\|")
        for inside in _dataclasses(hints[one.name]):
            yield from _keys(inside, f"{before}{one.name}.")


def _dataclasses(hint: Any) -> Iterator[type]:
    if is_dataclass(hint):
        yield hint  # type: ignore[misc]  # a class: hints hold no instances
    for inside in get_args(hint):
        yield from _dataclasses(inside)


@cache
def _documented(kind: type) -> Mapping[str, str]:
    """Return the docstring below each field of a class, also of one it inherits from."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__[:-1]):
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                found[field.target.id] = " ".join(str(below.value.value).split())
    return found


def _verdicts() -> str:
    from shoal_wire.verdict import Outcome, Reason

    def verdict(reason: Reason) -> str:
        row = reason.row
        notes = [("heavy", row.heavy), ("signer alone", row.signer_alone)]
        return ", ".join([row.outcome, *(note for note, holds in notes if holds)])

    return _rows(
        "reason | finding | verdict",
        (
            (f"`{reason.value}`", reason.row.message, verdict(reason))
            for reason in Reason
            if reason.row.outcome is not Outcome.ACCEPT
        ),
    )


def _strategies() -> str:
    from shoal_policy.choice.strategy import WORDS

    return _rows("word | what it does", ((f"`{word.name}`", word.does) for word in WORDS))


def _families() -> str:
    from shoal_tasks.families import PRESETS

    small = set(PRESETS["chat-1"])

    def rows() -> Iterator[tuple[str, ...]]:
        for preset, specs in PRESETS.items():
            own = [one for one in specs if preset != "chat" or one not in small]
            for answers in sorted({str(one.answer_format) for one in own}):
                named = [f"`{one.name}`" for one in own if one.answer_format == answers]
                yield f"`{preset}`", answers, ", ".join(named)

    return _rows("preset | answers | families", rows())


def _questions() -> str:
    with (ROOT / "lab/results/question-counts.csv").open(encoding="utf-8") as file:
        return _rows(
            "preset | family | seen | equal to",
            (
                (f"`{preset}`", f"`{family}`", *(f"{int(number):,}" for number in numbers))
                for preset, family, *numbers in list(csv.reader(file))[1:]
            ),
        )


def _api() -> str:
    from shoal.api.swarm import Swarm

    def rows() -> Iterator[tuple[str, ...]]:
        for name, member in vars(Swarm).items():
            about = inspect.getdoc(member)
            if name.startswith("_") or not about:
                continue
            arguments = "" if isinstance(member, property) else _arguments(member)
            yield f"`{name}{arguments}`", " ".join(about.partition("\n\nRaises")[0].split())

    return _rows("call | what it does", rows())


def _arguments(function: Callable[..., Any]) -> str:
    """Return a method's arguments in brackets: names and defaults."""
    _, *given = inspect.signature(function).parameters.values()
    plain = [str(one.replace(annotation=one.empty)) for one in given]
    short = [text if len(text) < _LONG else f"{text.partition('=')[0]}=…" for text in plain]
    return f"({', '.join(short)})"


def _rooms(package: str) -> str:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = (
        one["layers"]
        for one in contracts["tool"]["importlinter"]["contracts"]
        if one.get("containers") == [package]
    )
    return _rows(
        "line | room | what it is",
        (
            (str(line), f"`{room}`", _about(f"{package}.{room}"))
            for line, rooms in enumerate(layers, 1)
            for room in rooms.split(" | ")
        ),
    )


def _about(module: str) -> str:
    """Return the first line of a module's docstring, without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")


_CAUSE = re.compile(
    r"((?: +# .+\n)+) +Cause\.(\w+): Weight\(points=([-\d.]+), limit=([-\d.]+)", re.M
)


def _causes() -> str:
    """Return the causes with the comment above each."""
    text = (ROOT / "p2p/shoal_p2p/reputation/scoring.py").read_text(encoding="utf-8")

    def rows() -> Iterator[tuple[str, ...]]:
        for comment, cause, points, limit in _CAUSE.findall(text):
            figures = (f"{float(one):g}".replace("-", "−") for one in (points, limit))
            yield f"`{cause.lower()}`", *figures, re.sub(r"\s+#?\s*", " ", comment).strip(" #")

    return _rows("cause | points | limit | who pays, for what", rows())


def _threats(section: str) -> str:
    text = (ROOT / f"tests/threats/{section}.mutations").read_text(encoding="utf-8")

    def rows() -> Iterator[tuple[str, ...]]:
        for block in f"\n{text}".split("\nthreat ")[1:]:
            what, defence, *lines = block.splitlines()
            tests = dict.fromkeys(line[5:] for line in lines if line.startswith("test "))
            named = ", ".join(f"`{one}`" for one in tests)
            fold = f"<details><summary>{len(tests)}</summary>{named}</details>"
            yield what, defence.removeprefix("defence "), fold

    return _rows("what happens | defence | tests", rows())


def _faults() -> str:
    folder = ROOT / "docs/contributing/upstream"
    listed_by_hand = _TABLE.sub("", (folder / "README.md").read_text(encoding="utf-8"))

    def rows() -> Iterator[tuple[str, ...]]:
        for path in sorted(folder.glob("*.py")):
            if path.name == "stock.py" or f"({path.name})" in listed_by_hand:
                continue
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            patch = folder / f"patches/{path.stem}.patch"
            fix = f", [patch](patches/{patch.name})" if patch.exists() else ""
            yield f"[`{path.stem}`]({path.name}){fix}", " ".join(text.split())

    return _rows("script | what happens", rows())


def _architectures() -> str:
    """Return the record of `tests/policy/tiny_architectures.py`, grouped by outcome."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "tests/policy/architectures.txt").read_text(encoding="utf-8").splitlines():
        name, outcome = line.split(": ", 1)
        what, _, why = outcome.partition(": ")
        reason = why.partition(": ")[2].partition(" (")[0] if what == "refused" else ""
        found.setdefault(f"{what}: {reason}" if reason else what, []).append(f"`{name}`")

    def rows() -> Iterator[tuple[str, ...]]:
        for outcome in sorted(found, key=lambda one: (one != "right", one)):
            yield outcome, str(len(found[outcome])), ", ".join(found[outcome])

    return _rows("outcome | number | architectures", rows())


TABLES: Mapping[str, Callable[..., str]] = {
    "settings": _settings,
    "defaults": _defaults,
    "commands": _commands,
    "rounds": _rounds,
    "scraped": _scraped,
    "view": _view,
    "verdicts": _verdicts,
    "strategies": _strategies,
    "api": _api,
    "families": _families,
    "questions": _questions,
    "rooms": _rooms,
    "threats": _threats,
    "causes": _causes,
    "faults": _faults,
    "architectures": _architectures,
}
"""The function of each table, by the name in its comment."""
