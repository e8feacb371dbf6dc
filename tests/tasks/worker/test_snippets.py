"""Programs written by models, interpreted step by step: correct if honest, otherwise harmless."""

from __future__ import annotations

import contextlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_tasks.worker.snippets import MAX_OUTPUT_CHARS, run_snippet

HONEST = [
    "print(1234567 * 7654321)",
    "def f(n):\n    if n < 2:\n        return n\n    return f(n - 1) + f(n - 2)\nprint(f(9))",
    "import math\nprint(math.gcd(84, 36), math.factorial(12), math.isqrt(99))",
    "t = 0\nfor i in range(1, 999):\n    if i % 3 == 0 or i % 5 == 0:\n        t += i\nprint(t)",
    "a = [3, 1, 2]\na.append(5)\na[0] = 9\nprint(sorted(a), max(a), sum(a), a[::-1])",
    "n = 97\nprint(all(n % d for d in range(2, n)))",
    "n = {}\nfor w in 'the cat the dog'.split():\n    n[w] = n.get(w, 0) + 1\nprint(n)",
    "x, y = 3, 4\nx, y = y, x\nprint(x - y, x / y, x // y, x ** y, x % y)",
    "n, k = 27, 0\nwhile n != 1:\n    n = 3 * n + 1 if n % 2 else n // 2\n    k += 1\nprint(k)",
    "print([i * i for i in range(10) if i % 2])",
    "for i in range(9):\n  if i == 2:\n    continue\n  if i == 4:\n    break\n  print(i)",
    "print('-'.join([c.upper() for c in 'abc']), len('abc'), 'b' in 'abc')",
    "print(list(zip([1, 2], 'ab')), list(enumerate('ab')), divmod(17, 5), round(2.567, 2))",
    "a = None\nprint(a is None, not a, -3, 1 < 2 < 3, 1 and 2, 0 or 5)",
]


@pytest.mark.parametrize("source", HONEST)
def test_an_honest_program_prints_what_python_prints(source: str) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(source, {})
    assert run_snippet(source) == out.getvalue().rstrip("\n")


def test_the_value_of_the_last_line_is_shown() -> None:
    assert run_snippet("x = 6\nx * 7") == "42"
    assert run_snippet("print(1)\n2") == "1\n2"
    assert run_snippet("x = 1") == "" == run_snippet("")


HOSTILE = [
    "().__class__.__bases__[0].__subclasses__()",
    "'{0.__class__}'.format(1)",
    "'a'.format_map({})",
    "print.__self__",
    "__import__('os').system('true')",
    "__builtins__",
    "open('/etc/passwd')",
    "eval('1')",
    "getattr(1, 'real')",
    "import os",
    "from os import path",
    "lambda: 1",
    "class A:\n    pass",
    "try:\n    pass\nexcept Exception:\n    pass",
    "with open('x'):\n    pass",
    "global x",
    "def f(a=print):\n    pass",
    "@print\ndef f():\n    pass",
    "def f(*a):\n    return a",
    "f'{1}'",
    "{1, 2}",
    "x: int = 1",
    "b'a'",
    "(yield)",
    "return 1",
    "continue",
]
DEAR = [
    "while True:\n    pass",
    "for i in range(10 ** 12):\n    pass",
    "'a' * 10 ** 9",
    "[0] * 10 ** 9",
    "2 ** 10 ** 9",
    "1 << 10 ** 9",
    "pow(7, 10 ** 9)",
    "round(5, -10 ** 9)",
    "0.5 in range(10 ** 12)",
    "sum(range(10 ** 12))",
    "list(range(10 ** 12))",
    "int('9' * 999) ** 9",
    "'%999999999d' % 1",
    "'a'.join(['b' * 999 for i in range(999)])",
    "x = 'a'\nwhile True:\n    x += x",
    "x = [1]\nwhile True:\n    x.extend(x)",
    "a = [1]\nfor i in range(99):\n    a = [a, a]\nprint(a)",
    "a = (1,)\nfor i in range(99):\n    a = (a, a)\nprint(a)",
    "a = []\na.append(a)\nprint(a == a)",
    "a = {}\na[1] = a\nprint(a)",
    "a = [1]\nfor i in range(99):\n    a = zip(a, a)\nprint(a)",
    "def f(n):\n    return f(n + 1)\nf(0)",
    "print(" + "(" * 500 + "1" + ")" * 500 + ")",
    "x = " + "-" * 3000 + "1",
    "while True:\n    print('a' * 99)",
    "import math\nmath.factorial(10 ** 9)",
    "import math\nmath.comb(10 ** 9, 10 ** 8)",
    "x = 'a' * 999\nwhile True:\n    y = x.replace('a', x)",
    "x = [i for i in range(999)]\nwhile True:\n    y = sorted(x)",
]


@pytest.mark.parametrize("source", HOSTILE)
def test_a_program_reaches_nothing_but_what_it_made(source: str) -> None:
    assert run_snippet(source).startswith("error: ")


@pytest.mark.parametrize("source", DEAR)
def test_a_program_that_would_take_for_ever_ends(source: str) -> None:
    replied = run_snippet(source)
    assert len(replied) <= MAX_OUTPUT_CHARS + 80
    assert "error: " in replied


VISIBLE = """
a b f i x print len range sum sorted str int zip list max math append get join 1 0 7 -1 2.5
999 'ab' '' [] {} () None 10**5 1e300 + - * ** // / % < == in not and or if else for while def
return break = += . , : ( ) [ ] { } is <<
"""
WORDS = st.sampled_from([*VISIBLE.split(), "\n", "\n    ", " ", " ", " "])
PARTS = st.sampled_from(
    [
        "a = [i * i for i in range({n})]\n",
        "x = {n}\n",
        "s = 'ab' * {n}\n",
        "a = a + a\n",
        "x = x * x\n",
        "x = x ** {n}\n",
        "for i in a:\n    x += i\n",
        "a.append(x)\n",
        "a.append(a)\n",
        "s = s.replace('a', s)\n",
        "t = (x, s)\n",
        "t = t + t\n",
        "d = {{x: t}}\n",
        "d[s] = a\n",
        "print(a, s, x)\n",
        "a = list(zip(a, a))\n",
        "print(d)\n",
        "x = sum(a) % {n}\n",
        "while x < {n}:\n    x += 1\n",
    ]
)


@settings(max_examples=300)
@given(st.lists(WORDS, max_size=40).map("".join))
def test_any_words_are_a_program_or_an_error(source: str) -> None:
    assert run_snippet(source) == run_snippet(source)


@settings(max_examples=300)
@given(st.lists(st.tuples(PARTS, st.integers(0, 60)), max_size=14))
def test_any_program_ends_alike_each_time(parts: list[tuple[str, int]]) -> None:
    source = "a = [1]\ns = 'a'\nx = 2\n" + "".join(part.format(n=n) for part, n in parts)
    replied = run_snippet(source)
    assert replied == run_snippet(source) and len(replied) <= MAX_OUTPUT_CHARS + 80
