"""Texts to measure with: varied, deterministic, neither random bytes nor one phrase repeated.

There are two kinds, because compression decides the figures:

- `reasoning`: worked solutions as a small instruct model writes them. A grammar of steps with
  synonyms, filled with random numbers and carried out correctly. The eight answers of a group
  are drawn independently; a real model's eight answers to one question share more than that.
- `prose`: excerpts of real English technical prose, the language reference that ships with
  Python (`pydoc_data.topics`), a different place for every completion. Real completions compress
  better than this: it is the hard case.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable
from pydoc_data.topics import topics

TextSource = Callable[[random.Random, int], str]
"""`source(rng, num_chars)` returns exactly that many characters."""

_OPENERS = (
    "Let's work through this step by step.",
    "To solve this, I'll start from what is given.",
    "First, look at the expression carefully.",
    "Okay, so the question asks for a single value.",
    "We need to be careful with the order of operations here.",
    "I will convert everything first and then combine the parts.",
    "Let me restate the problem in my own words.",
    "Here is one way to think about it.",
)
_LINKS = (
    "So",
    "Then",
    "Next",
    "Now",
    "After that",
    "Therefore",
    "Hence",
    "This means",
    "Also",
    "But",
)
_GET = ("we get", "I get", "that gives", "the result is", "it equals", "this comes to", "we obtain")
_CHECKS = (
    "Let me double-check that.",
    "That looks right.",
    "Wait, I should verify the sign.",
    "This matches what we expected.",
    "Checking again with the original numbers confirms it.",
    "Hmm, let me recompute the last part to be safe.",
    "Good, nothing was dropped on the way.",
)
_CLOSERS = (
    "So the final answer is {n}.",
    "The answer should be {n}.",
    "Final answer: {n}",
    "Thus, the value we were looking for is {n}.",
    "Putting it all together, we arrive at {n}.",
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("January", "March", "April", "June", "August", "September", "November", "December")


def reasoning(rng: random.Random, num_chars: int) -> str:
    """A worked solution: arithmetic, bases, fractions, dates and logic in a model's words."""
    sentences = [rng.choice(_OPENERS)]
    length = len(sentences[0])
    while length < num_chars:
        step = rng.choice(_STEPS)(rng)
        linked = rng.random() < 0.6
        sentences.append(f"{rng.choice(_LINKS)}, {step}" if linked else step[0].upper() + step[1:])
        if rng.random() < 0.25:
            sentences.append(rng.choice(_CHECKS))
        length = sum(map(len, sentences)) + len(sentences)
    closer = rng.choice(_CLOSERS).format(n=rng.randint(-99, 999))
    separator = rng.choice((" ", " ", "\n"))
    body = separator.join(sentences)[: max(0, num_chars - len(closer) - 1)]
    return f"{body}\n{closer}"[:num_chars].ljust(num_chars, ".")


def prose(rng: random.Random, num_chars: int) -> str:
    """An excerpt of the Python language reference, from a random word on."""
    book = _book()
    start = rng.randrange(len(book) - num_chars - 100)
    start = book.index(" ", start) + 1
    return book[start : start + num_chars]


TEXTS: dict[str, TextSource] = {"reasoning": reasoning, "prose": prose}


@functools.cache
def _book() -> str:
    """The prose of the reference: paragraphs of full sentences, without code and tables."""
    paragraphs = []
    for name in sorted(topics):
        for paragraph in re.split(r"\n\s*\n", topics[name]):
            text = " ".join(paragraph.split())
            letters = sum(c.isalpha() or c == " " for c in text)
            if len(text) > 120 and text.endswith(".") and letters > 0.85 * len(text):
                paragraphs.append(text)
    return " ".join(dict.fromkeys(paragraphs))


def _arithmetic(rng: random.Random) -> str:
    a, b, c = (rng.randint(2, 99) for _ in range(3))
    get = rng.choice(_GET)
    return rng.choice(
        (
            f"{a} + {b} = {a + b}, and subtracting {c} {get} {a + b - c}.",
            f"multiplying {a} by {b} {get} {a * b}.",
            f"we compute {a} * {b} - {c} = {a * b - c}.",
            f"adding {c} to {a * b} (which is {a} times {b}) {get} {a * b + c}.",
            f"the product {a} × {c} is {a * c}, so the remaining part is {a * c - b}.",
            f"inside the parentheses we have ({a} - {b}), that is {a - b}.",
        )
    )


def _bases(rng: random.Random) -> str:
    value, base = rng.randint(5, 999), rng.choice((2, 3, 4, 5, 8, 16))
    quotient, rest = divmod(value, base)
    return rng.choice(
        (
            f"dividing {value} by {base} gives {quotient} and a remainder of {rest}.",
            f"the number {value} in binary is {value:b}.",
            f"in hexadecimal, {value} is written as {value:x}.",
            f"{value} // {base} = {quotient} and {value} mod {base} = {rest}, which is a digit.",
            f"reading the remainders from bottom to top, the last digit is {rest}.",
        )
    )


def _fractions(rng: random.Random) -> str:
    n, d, f = rng.randint(1, 40), rng.randint(2, 60), rng.randint(2, 12)
    return rng.choice(
        (
            f"both {n * f} and {d * f} are divisible by {f}, so the fraction becomes {n}/{d}.",
            f"the greatest common divisor of {n * f} and {d * f} includes a factor of {f}.",
            f"{n}/{d} is approximately {n / d:.4f} as a decimal.",
            f"we can cancel {f} from the numerator and the denominator to reach {n}/{d}.",
        )
    )


def _dates(rng: random.Random) -> str:
    day, month = rng.choice(_DAYS), rng.choice(_MONTHS)
    first, gap = rng.randint(1, 28), rng.randint(3, 300)
    return rng.choice(
        (
            f"{month} {first} falls on a {day} that year.",
            f"counting {gap} days ahead is {gap // 7} full weeks and {gap % 7} days more.",
            f"from {day} we move forward by {gap % 7} days, since {gap} mod 7 = {gap % 7}.",
            f"there are {first} days in the range up to {month} {first}, both ends included.",
        )
    )


def _logic(rng: random.Random) -> str:
    p, q, r = rng.sample("PQRSTUVW", 3)
    truth = rng.choice(("true", "false"))
    return rng.choice(
        (
            f"if {p} is {truth}, the premise ({p} → {q}) forces us to look at {q}.",
            f"the statement ({p} ∨ {r}) holds whenever either of them is true.",
            f"assume that {q} is {truth}; the second premise would then contradict ¬{r}.",
            f"we know both {p} and ({p} → {r}), hence {r} follows by modus ponens.",
            f"the only row of the table that satisfies every premise has {q} = {truth}.",
        )
    )


def _remarks(rng: random.Random) -> str:
    return rng.choice(
        (
            "the minus sign in front applies to the whole bracket, not just its first term.",
            "multiplication and division come before addition, from left to right.",
            "it is easier to simplify the larger term before touching the others.",
            "none of the other options satisfies the condition in the question.",
            "the pattern in the given examples repeats, only with different values.",
            "rounding is not needed because the quotient happens to be exact.",
            "remember that the answer must be written in lower case without a prefix.",
            "each row of the grid is treated in the same way as in the example.",
        )
    )


_STEPS = (_arithmetic, _arithmetic, _arithmetic, _bases, _fractions, _dates, _logic, _remarks)
