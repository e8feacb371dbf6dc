"""Describes the differences between two swarms for users: families, and their keys. Pure.

manifest then, manifest now ──▶ edits      changes within families of the same name
                            └─▶ others     other families, another name, other rules
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import zip_longest
from typing import Any, Final

from shoal_wire.manifest import Manifest, SwarmRules, TaskFamily

SHOWN: Final = 3
"""Maximum number of differences in a line; the rest is counted."""
_SHOWN_CHARS: Final = 125
"""Maximum characters of a list of differences, because the remedy follows on the same line."""
_DIGEST_CHARS: Final = 8
_VALUE_CHARS: Final = 24

_FILES: Final = frozenset({"sha256", "reward_sha256s"})
"""Keys of a family's configuration that are digests of files."""
_SETTINGS: Final = {
    "allow_inline_tasks": "inline_tasks",
    "allowed_peers": "allow_peers",
    "shard_count": "shards",
}
"""Rules of a swarm whose setting has another name."""
_SHAPING: Final = frozenset(
    {
        *("question", "answer", "answer_after", "answer_as", "prompt", "columns", "encoding"),
        *("tests", "entry_point", "solution"),
    }
)
"""Keys of a task file that change the rows made from the same data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Words for two swarms in a comparison."""

    owner: str
    """The first manifest's owner."""
    first: str
    """A word for the place or time of the first one."""
    second: str


LAST_RUN: Final = Comparison(owner="the last run", first="then", second="now")
SWARM: Final = Comparison(owner="the swarm", first="there", second="here")


@dataclass(slots=True)
class Differences:
    """Phrases with one difference each; empty if there are none."""

    edits: list[str] = field(default_factory=list)
    """Differences within families of the same name."""
    others: list[str] = field(default_factory=list)


def differences(
    then: Manifest, now: Manifest, changed: Mapping[str, frozenset[str]] | None = None
) -> Differences:
    """Return the differences of two manifests.

    `changed` maps families to the changed keys of their task files. Equal manifests have no
    differences, and any two others have at least one.
    """
    changed = changed or {}
    before = {family.name: family for family in then.families}
    after = {family.name: family for family in now.families}
    found = Differences()
    if then.swarm_name != now.swarm_name:
        found.others.append(f"its name was {then.swarm_name!r} and is {now.swarm_name!r}")
    if gone := [name for name in before if name not in after]:
        found.others.append(f"without {_named(gone)}")
    if new := [name for name in after if name not in before]:
        found.others.append(f"with {_named(new)}")
    for name in after:
        if name in before:
            keys = changed.get(name, frozenset())
            found.edits += family_differences(before[name], after[name], keys, LAST_RUN)
    found.others += _of_rules(then.rules, now.rules)
    if then.digest != now.digest and not (found.edits or found.others):
        found.others.append("its families are in another order")
    return found


def family_differences(
    first: TaskFamily, second: TaskFamily, changed: frozenset[str], words: Comparison
) -> list[str]:
    """Return the differences of two families with one name; `changed` are task-file keys."""
    one, other = json.loads(first.config_json), json.loads(second.config_json)
    name = second.name
    found: list[str] = []
    for key in ("generator", "verifier", "verifier_version", "answer_format", "weight"):
        found += _of_value(key, getattr(first, key), getattr(second, key), name, words)
    if one.get("sha256") != other.get("sha256") and (shaping := sorted(changed & _SHAPING)):
        found.append(f"{' and '.join(shaping)} of {name!r} changed, and so did its questions")
    else:
        what = "the game's file" if "max_turns" in other else "rows"
        found += _of_file(what, one.get("sha256"), other.get("sha256"), name, words)
    found += _of_rewards(one, other, name, words)
    for key in sorted({*one, *other} - _FILES):
        # Other rows may differ in number, and by default a tenth of them is held out.
        follows = key == "rows" or (key == "held_out" and key not in changed)
        if not (follows and one.get("sha256") != other.get("sha256")):
            found += _of_value(key, one.get(key), other.get(key), name, words)
    return found


def shown(phrases: Sequence[str], *, most: int = _SHOWN_CHARS) -> str:
    """Join the first phrases within `most` characters, with the number of omitted ones."""
    named = list(phrases[:SHOWN])
    while len(named) > 1 and len(", ".join(named)) > most:
        named.pop()
    more = len(phrases) - len(named)
    text = ", ".join(named)
    cut = text if len(text) <= most else f"{text[:most]}…"
    return cut + (f" and {more} more" if more > 0 else "")


def _of_rewards(
    one: Mapping[str, Any], other: Mapping[str, Any], name: str, words: Comparison
) -> Iterator[str]:
    """Compare the files of reward functions, one for each function."""
    there, here = (state.get("reward_sha256s") or [] for state in (one, other))
    for first, second in dict.fromkeys(zip_longest(there, here)):  # name a shared file once
        yield from _of_file("the reward file", first, second, name, words)


def _of_file(what: str, there: object, here: object, name: str, words: Comparison) -> Iterator[str]:
    if there == here:
        return
    verb, which = ("differ", "those") if what == "rows" else ("differs", "that")
    sides = f"{_short(here)} {words.second}, {_short(there)} {words.first}"
    yield f"{what} of {name!r} {verb} from {which} of {words.owner} ({sides})"


def _of_value(key: str, one: object, other: object, name: str, words: Comparison) -> Iterator[str]:
    if one == other:
        return
    there, here = (json.dumps(value, ensure_ascii=False) for value in (one, other))
    if max(len(there), len(here)) > _VALUE_CHARS:
        yield f"{key} of {name!r} differs from that of {words.owner}"
    else:
        yield f"{key} of {name!r} is {here} {words.second} and {there} {words.first}"


def _of_rules(then: SwarmRules, now: SwarmRules) -> Iterator[str]:
    for rule in fields(SwarmRules):
        before, after = getattr(then, rule.name), getattr(now, rule.name)
        if before != after:
            key = _SETTINGS.get(rule.name, rule.name)
            is_short = not isinstance(before, tuple)
            yield f"{key} was {before} and is {after}" if is_short else f"another {key}"


def _short(digest: object) -> str:
    return f"{str(digest)[:_DIGEST_CHARS]}…" if digest else "none"


def _named(names: Sequence[str]) -> str:
    if len(names) > 2:
        return f"{names[0]!r} and {len(names) - 1} more"
    return " and ".join(map(repr, names))
