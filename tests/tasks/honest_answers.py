"""Right, wrong and malformed answers of the kinds language models give, by generator."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import sympy

Entry = dict[str, Any]
MALFORMED = (
    "",
    " ",
    "I do not know.",
    "The answer is 24",
    "```python\n[[1]]\n```",
    "[",
    "]",
    "()",
    "[]",
    "[[]]",
    "-",
    "None",
    "1 +",
    "+ 1",
    "(1 + 2",
    "1 + 2)",
    "\\boxed{7}",
    "⊥",
    "x^2",
    "2x",
    "a = 1",
    "1/0",
    "'",
    "f(",
    "1, 2",
)


def _lists(rows: list[list[Any]]) -> Iterator[str]:
    yield str(rows)
    yield str(rows).replace(" ", "")
    yield "[" + ",\n ".join(map(str, rows)) + "]"
    yield "[" + ", ".join(f"{row}," for row in rows) + "]"
    yield str(tuple(tuple(row) for row in rows))
    yield str([[str(cell) for cell in row] for row in rows])
    yield str(["".join(map(str, row)) for row in rows])
    yield str([" ".join(map(str, row)) for row in rows])
    yield ", ".join(map(str, rows))
    yield ",\n".join(map(str, rows))
    yield "\n".join(map(str, rows))
    yield f"{rows}  # the matrix"
    yield f"answer = {rows}"
    yield f"The answer is {rows}"
    yield f"```\n{rows}\n```"
    yield str(rows)[:-1]
    yield str(rows)[1:]
    yield str(rows).replace(",", "")
    yield str(rows[0])


def _grid(entry: Entry, rows: list[list[Any]], rng: random.Random) -> Iterator[str]:
    right: str = entry["answer"]
    wrong = [list(row) for row in rows]
    spot = rng.randrange(len(wrong))
    wrong[spot] = wrong[spot][1:] + wrong[spot][:1]
    for matrix in (rows, wrong):
        yield "\n".join(" ".join(map(str, row)) for row in matrix)
        yield from _lists(matrix)
    yield right.replace(" ", "  ")
    yield right.replace(" ", "")
    yield right.replace("\n", "\r\n")
    yield " ".join(right.split())
    yield f"```\n{right}\n```"


def _binary_matrix(entry: Entry, rng: random.Random) -> Iterator[str]:
    rows: list[list[int]] = entry["metadata"]["solution"]
    yield from _grid(entry, rows, rng)
    yield str([[float(cell) for cell in row] for row in rows])
    yield str(rows).replace("0", "00", 1)
    yield str(rows).replace("1", "+1", 1)
    yield str(rows).replace("1", "-1", 1)


def _n_queens(entry: Entry, rng: random.Random) -> Iterator[str]:
    for board in (entry["answer"], rng.choice(entry["metadata"]["valid_answers"])):
        yield from _grid(entry, [row.split() for row in board.split("\n")], rng)
    yield from _lists(entry["metadata"]["puzzle"])


def _spiral_matrix(entry: Entry, rng: random.Random) -> Iterator[str]:
    right: list[int] = entry["metadata"]["solution"]
    wrong = right[1:] + right[:1]
    for cells in (right, wrong, right[:-1], [*right, 0]):
        joined = " ".join(map(str, cells))
        yield from (joined, f"[{joined}]", joined.replace(" ", ", "), joined.replace(" ", ""))
        yield from (str(cells), str(tuple(cells)), str([str(cell) for cell in cells]))
        yield from (f"'{joined}'", "'" + joined.replace(" ", "") + "'", f"[{cells}]")
        yield from (str([float(cell) for cell in cells]), f"spiral = {cells}", f"{cells},")
    yield from _lists(entry["metadata"]["matrix"])


def _string_insertion(entry: Entry, rng: random.Random) -> Iterator[str]:
    right: str = entry["answer"]
    source: str = entry["metadata"]["string"]
    for text in (right, source, right.lower(), right[::-1], right + "A", right[:-1]):
        yield from (text, f" {text}", f"{text} ", f'"{text}"', f"'{text}'", f"`{text}`")
        yield from (str(list(text)), str(tuple(text)), " ".join(text), ", ".join(text))
        yield from (", ".join(f"'{letter}'" for letter in text), f"['{text}']", f"[['{text}']]")
        yield from (" ".join(f'"{letter}"' for letter in text), f"[{', '.join(text)}]")
        yield from (str([*list(text), 1]), f"answer: {text}", f"['{text[:2]}', '{text[2:]}']")


def _spread(expression: str) -> Iterator[str]:
    """One expression in the notations that models use."""
    yield expression
    yield expression.replace(" ", "")
    yield f"({expression})"
    yield f"{expression} # done"
    yield f"{expression}\n"
    yield f"{expression};"
    yield f"({expression}\n)"
    yield f"${expression}$"
    yield f"[{expression}]"
    yield f"y = {expression}"
    yield f"{expression} = 24"
    yield expression.replace("*", "×")
    yield expression.replace("*", "")
    yield expression.replace("**", "^")
    yield expression.replace("/", "//")
    yield expression.replace("-", "−")


def _number_puzzle(entry: Entry, rng: random.Random) -> Iterator[str]:
    numbers: list[int] = list(entry["metadata"]["numbers"])
    right: str = entry["answer"]
    target = entry["metadata"].get("target", 24)
    yield from _spread(right)
    yield from (f"{right} + 1 - 1", f"{right} + 0", f"-({right})", f"{right}.0", str(target))
    yield from (f"{right} == {target}", f"'{right}'", f"{right} + x", f"{right} + 0.0000001")
    yield right.replace("*", "* 1 *", 1)
    for _ in range(6):
        rng.shuffle(numbers)
        text = str(numbers[0])
        for number in numbers[1:]:
            text = f"({text}) {rng.choice('+-*/')} {number}"
        yield from (text, text.replace("(", "").replace(")", ""))
    a, b, *rest = numbers
    tail = "".join(f" + {number}" for number in rest)
    yield from (f"{a} ** {min(b, 9)}{tail}", f"{a} ^ {b}{tail}", f"{a} % {b}{tail}")
    yield from (f"{a} // {b}{tail}", f"{a} / {b}{tail}", f"sqrt({a}) * {b}{tail}", f"{a}!{tail}")
    yield from (f"abs({a} - {b}){tail}", f"{a}.{b}{tail}", f"{a}{b}{tail}", f"{a} {b}{tail}")
    yield from (
        f"-{a} ** 2{tail}",
        f"2 ** -{min(b, 9)}{tail}",
        f"factorial(4){tail}",
        f"{a}e1{tail}",
    )
    yield from (f"{a} / ({b} - {b}){tail}", f"0{a}{tail}", f"{a}({b}){tail}", f"{a} * - {b}{tail}")
    yield from (f"floor({a} / {b}){tail}", f"pi * {a}{tail}", f"{a} ** (1/2){tail}")
    yield from (
        "6 * 4 * 1 * 1",
        "8 * 3 + 1 - 1",
        "5 * 5 - 1 / 2",
        "(10 - 4) * 4 / 1",
        "4! * 1 * 1 * 1",
    )
    yield from (
        "sqrt(3) * sqrt(3) * 8 * 1",
        "sqrt(9) * 8 * 1 * 1",
        "3 ** 3 - 3 + 1 - 1",
        "2.4 * 10 * 1",
    )


def _polynomial(entry: Entry, rng: random.Random) -> Iterator[str]:
    right: str = entry["answer"]
    yield from _spread(right)
    terms = re.split(r" (?=[+-] )", right)
    rng.shuffle(terms)
    yield " ".join(terms).lstrip("+ ")
    yield re.sub(r"\b(\w)\*\*2\b", r"\1*\1", right)
    yield re.sub(r"(\d+)\*", r"(\1)*", right)
    yield re.sub(r"\b(\d+)\*", lambda m: f"{m[1]}.0*", right)
    yield re.sub(r"\b(\d+)\*", lambda m: f"{int(m[1]) * 2}/2*", right)
    yield re.sub(r"\b(\d+)\*([a-z])", r"\2*\1", right)
    yield entry["metadata"]["polynomial_expr"]
    yield from (f"2*({right}) - ({right})", f"({right})*3/3", f"({right})**1", f"-(-({right}))")
    yield from (f"1*({right})", f"({right}) + 0", f"({right}) + x - x")
    yield from (
        f"x*({right})",
        f"({right})*(x + 1)",
        f"({right})**2",
        f"{right} + C",
        f"{right} + 1",
    )
    yield from (f"sqrt(({right})**2)", right.upper(), right.replace("x", "y"))
    yield re.sub(r"\d+", lambda m: str(int(m[0]) + 1), right, count=1)


def solved(entry: Entry) -> str:
    """A right answer to an integration item, also where the generator states none."""
    if "Integral" not in entry["answer"]:
        return str(entry["answer"])
    return f"{sympy.integrate(sympy.sympify(entry['metadata']['integrand']))} + C"


def _antiderivative(entry: Entry, rng: random.Random) -> Iterator[str]:
    variable: str = entry["metadata"]["variable"]
    right = solved(entry)
    bare = right.removesuffix(" + C")
    yield from _spread(right)
    yield from (bare, f"{bare} + c", f"{bare} + K", f"{bare} - C", f"{bare} + C_1", f"{bare} + 7")
    yield from (
        f"C + {bare}",
        f"{bare} + const",
        f"{bare} + C/2",
        f"({bare})*1",
        f"2*({bare})/2 + C",
    )
    yield from (f"({bare}) + sin(1)", f"{bare} + pi", f"{bare} + constant")
    yield from (f"C*({bare})", f"-({bare})", f"2*({bare})", f"{bare} + {variable}", f"x + ({bare})")
    yield from (f"{bare} + E", f"({bare})/2 + C", entry["metadata"]["integrand"])
    yield from (right.swapcase(), right.replace("exp", "e**"), re.sub(r"\d+", "3", right, count=1))
    yield from (f"{bare} + abs({variable})", f"diff({bare})", f"{variable}*({bare})", "C", "0")
    yield re.sub(r"\b(\d+)\b", lambda m: f"{m[1]}.0", right, count=1)
    yield re.sub(r"/(\d+)", lambda m: f"*{1 / int(m[1]):.3f}" if int(m[1]) else "", right, count=1)
    yield from (right.replace("sin", "Sin"), right.replace("log", "ln"), f"∫ {bare} dx")


ANSWERS: dict[str, Callable[[Entry, random.Random], Iterator[str]]] = {
    "binary_matrix": _binary_matrix,
    "countdown": _number_puzzle,
    "intermediate_integration": _antiderivative,
    "n_queens": _n_queens,
    "polynomial_multiplication": _polynomial,
    "puzzle24": _number_puzzle,
    "simple_integration": _antiderivative,
    "spiral_matrix": _spiral_matrix,
    "string_insertion": _string_insertion,
}


def honest_answers(generator: str, entry: Entry, rng: random.Random) -> list[str]:
    """Distinct answers to one item, as they reach a scorer: stripped and not empty."""
    found = (*ANSWERS[generator](entry, rng), *MALFORMED)
    return list(dict.fromkeys(answer.strip() for answer in found if answer.strip()))
