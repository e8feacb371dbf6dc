"""Reward functions in TRL's form, sound and unsound ones, from a seeded generator.

A function is composed of a scorer (the reward of one completion, 0 to 1), a part that uses the
whole group, a form of the returned values, and a form of the function. Each part has sound
variants, whose reward equals plain Python's, and unsound ones, with the cause that the refusal
names.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import dedent, indent
from typing import Final


@dataclass(frozen=True)
class Part:
    """One part of a function."""

    code: str
    refused: str = ""
    """A pattern of the refusal's cause; empty for a sound part."""
    needs_a_wall: bool = False
    """True if it evaluates text, which only the interpreter's hook refuses."""


@dataclass(frozen=True)
class GeneratedReward:
    """A file with the function `reward`."""

    name: str
    """The parts' names."""
    source: str
    refused: str
    needs_a_wall: bool
    takes_messages: bool
    has_prompt_messages: bool
    is_alone: bool
    """True if it scores a single completion, whatever the group."""


_SOUND_SCORERS: Final[Mapping[str, str]] = {
    "exact": "return float(c.strip() == a)",
    "contains": "return float(bool(a) and a in c)",
    "length": "return min(len(c), 400) / 400",
    "last number": r"""
        found = re.findall(r"-?\d+(?:\.\d+)?", c)
        return float(bool(found) and found[-1] == a)
        """,
    "tags": r"""
        match = re.search(r"<answer>\s*(.*?)\s*</answer>", c, re.DOTALL)
        return 0.0 if match is None else 1.0 if match[1] == a else 0.25
        """,
    "float": """
        try:
            return 1.0 if abs(float(c) - float(a)) < 1e-6 else 0.1
        except ValueError:
            return 0.0
        """,
    "difflib, late": """
        from difflib import SequenceMatcher
        return SequenceMatcher(None, c[:200], a).ratio()
        """,
    "json, late, in try": """
        try:
            import json
            return float(str(json.loads(c)) == a)
        except Exception:
            return 0.0
        """,
    "library that is not there": """
        try:
            import no_such_library
        except ImportError:
            no_such_library = None
        return float(a in c and no_such_library is None)
        """,
    "ast": """
        import ast
        try:
            return float(str(ast.literal_eval(c.strip())) == a)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return 0.0
        """,
    "counter": """
        from collections import Counter
        x, y = Counter(c.split()), Counter(a.split())
        return sum((x & y).values()) / max(1, sum(x.values()), sum(y.values()))
        """,
    "numpy, late": """
        import numpy as np
        return float(np.tanh(np.mean([len(word) for word in c.split()] or [0])))
        """,
    "numpy.random": """
        import numpy as np
        return float(np.random.default_rng(len(c)).random())
        """,
    "seeded random": "return random.Random(c).random()",
    "fraction": """
        from fractions import Fraction
        try:
            return float(Fraction(c.strip()) == Fraction(a))
        except (ValueError, ZeroDivisionError):
            return 0.0
        """,
    "decimal": """
        from decimal import Decimal, InvalidOperation
        try:
            return float(Decimal(c.strip()) == Decimal(a))
        except InvalidOperation:
            return 0.0
        """,
    "dates": """
        import datetime
        try:
            return 0.5 + 0.5 * (datetime.datetime.strptime(c.strip(), "%Y").year > 1900)
        except ValueError:
            return 0.0
        """,
    "zlib": """
        import zlib
        return len(zlib.compress(c.encode())) / (len(c.encode()) + 20)
        """,
    "hashlib": """
        import hashlib
        return int(hashlib.md5(c.encode()).hexdigest(), 16) % 1000 / 1000
        """,
    "unicodedata": """
        import unicodedata
        return float(unicodedata.normalize("NFKC", c).casefold() == a.casefold())
        """,
    "html": """
        import html
        return float(html.unescape(c) == html.unescape(a))
        """,
    "xml": """
        import xml.etree.ElementTree as ElementTree
        try:
            return float((ElementTree.fromstring(c).text or "").strip() == a)
        except ElementTree.ParseError:
            return 0.0
        """,
    "csv and io": """
        import csv, io
        cells = next(csv.reader(io.StringIO(c)), [])
        return min(len(cells), 10) / 10
        """,
    "statistics": """
        import statistics
        return statistics.fmean([float(one.isdigit()) for one in c] or [0.0])
        """,
    "string methods of the question": "return float(q.lower() in c.lower())",
    "every column": "return len(str(sorted(row.items()))) % 97 / 97",
    "columns' types": """
        return sum(isinstance(one, (int, float)) for one in row.values()) / (1 + len(row))
        """,
    "changes its columns": """
        for value in row.values():
            if isinstance(value, list):
                value.append(1)
            elif isinstance(value, dict):
                value["seen"] = len(value)
        return len(str(sorted(row.items()))) % 97 / 97
        """,
    "logging and print": """
        import logging, sys, warnings
        print(c[:9]); print(c[:9], file=sys.stderr)
        logging.getLogger("reward").info("%s", c)
        warnings.warn("a completion")
        return float(len(c) > 3)
        """,
    "recursion": """
        def depth(n):
            return 0 if n == 0 else 1 + depth(n - 1)
        return depth(len(c) % 50) / 50
        """,
    "contextlib": """
        import contextlib
        with contextlib.suppress(ValueError, IndexError):
            return float(c.split()[0] == a)
        return 0.0
        """,
    "dataclass, late": """
        from dataclasses import dataclass
        @dataclass
        class Found:
            text: str
        return float(Found(c.strip()) == Found(a))
        """,
    "sleeps": "time.sleep(0.0002); return float(a in c)",
    "itertools": """
        import itertools
        longest = max((len(list(g)) for _, g in itertools.groupby(c)), default=0)
        return min(longest, 9) / 9
        """,
    "eval, in try": r"""
        try:
            if not re.fullmatch(r"[\d+\-*/(). ]+", c):
                return 0.1
            return 1.0 if abs(eval(c, {"__builtins__": None}, {}) - float(a)) < 1e-6 else 0.1
        except Exception:
            return 0.0
        """,
    "exec of a formula": r"""
        scope = {}
        try:
            exec("value = " + c if re.fullmatch(r"[\d+ ]+", c) else "value = -1", scope)
        except SyntaxError:
            return 0.0
        return float(str(scope["value"]) == a)
        """,
    "math_verify": """
        from math_verify import parse, verify
        return float(verify(parse("\\boxed{" + a + "}"), parse(c)))
        """,
    "math_verify, in try": """
        try:
            from math_verify import LatexExtractionConfig, parse, verify
            gold = parse("$" + a + "$", parsing_timeout=None)
            reply = parse(c, extraction_config=[LatexExtractionConfig()], parsing_timeout=None)
            return float(verify(gold, reply, timeout_seconds=None))
        except Exception:
            return 0.05
        """,
    "sympy, late": r"""
        import sympy
        if not re.fullmatch(r"[\d+\-/ ]{1,20}", c):
            return 0.0
        try:
            return float(sympy.sympify(c) == sympy.sympify(a))
        except Exception:
            return 0.05
        """,
}
_WALLED: Final = frozenset(
    {"eval, in try", "exec of a formula", "math_verify", "math_verify, in try", "sympy, late"}
    | {"dataclass, late"}
)

_CATCHES: Final[Mapping[str, str]] = {
    "except Exception": "try:\n    {}\nexcept Exception:\n    pass",
    "except": "try:\n    {}\nexcept:\n    pass",
    "suppress": "import contextlib\nwith contextlib.suppress(BaseException):\n    {}",
    "finally return": "try:\n    {}\nfinally:\n    return float(a in c)",
    "an inner function": "def inner():\n    try:\n        {}\n    except Exception as error:\n"
    "        return str(error)\ninner()",
    "nothing": "{}",
}
_FORBIDDEN: Final[Mapping[str, str]] = {
    "open a file": "open('/etc/hostname').read()",
    "write a file": "open('/tmp/shoal-generated', 'w')",
    "pathlib": "__import__('pathlib').Path('/etc/hostname').read_text()",
    "subprocess": "import subprocess; subprocess.run(['true'])",
    "os.system": "import os; os.system('true')",
    "socket": "import socket; socket.create_connection(('127.0.0.1', 9), timeout=0.1)",
    "urllib": "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9', timeout=0.1)",
    "getaddrinfo": "import socket; socket.getaddrinfo('localhost', 9)",
    "remove": "import os; os.remove('/nonexistent-shoal')",
    "thread": "import threading; threading.Thread(target=int).start()",
    "pool": "import concurrent.futures as f; f.ThreadPoolExecutor(1).submit(int).result(0.1)",
    "fork": "import os; os._exit(0) if os.fork() == 0 else None",
    "multiprocessing": "import multiprocessing; multiprocessing.Process(target=int).start()",
    "tempfile": "import tempfile; tempfile.mkstemp()",
    "sqlite file": "import sqlite3; sqlite3.connect('/tmp/shoal-generated.db')",
    "listdir": "import os; assert os.listdir('/etc')",
}
_UNSOUND_SCORERS: Final[Mapping[str, tuple[str, str]]] = {
    "raises for some": ("return 1 / len(c)", r"reward\.py, line \d+: ZeroDivisionError"),
    "index": ("return float(c.split()[0] == a)", r"reward\.py, line \d+: IndexError"),
    "no such column": ("return float(row['nope'] == c)", r"reward\.py, line \d+: KeyError"),
    "no such name": ("return float(nope == c)", r"reward\.py, line \d+: NameError"),
    "random": ("return random.random()", "is not deterministic"),
    "clock": ("return time.perf_counter() % 1", "is not deterministic"),
    "counts its calls": (
        "SEEN.append(c); return (len(SEEN) % 7) / 7",
        "is not deterministic",
    ),
    "exits": ("raise SystemExit(1)", "SystemExit"),
    "endless": ("while True: pass", "more processor time"),
    "endless, in try": (
        "while True:\n    try:\n        while True: pass\n    except BaseException:\n        pass",
        "more processor time",
    ),
    "memory": ("return float(len([0] * 10**10) < 0)", "memory|MemoryError"),
    "no such library": ("import no_such_library; return 1.0", "no_such_library"),
    "trainer_state": ("return float(STATE[0].global_step)", "trainer_state"),
}

_GROUPS: Final[Mapping[str, str]] = {
    "each": "return values",
    "best": "return [float(value == max(values)) for value in values]",
    "rank": "return [sorted(values).index(value) / len(values) for value in values]",
    "shortest": "return [v * (len(t) == min(map(len, texts))) for v, t in zip(values, texts)]",
    "distinct": "return [v / texts.count(t) for v, t in zip(values, texts)]",
    "mean": "return [max(0.0, v - sum(values) / len(values)) for v in values]",
    "neighbour": "return values[1:] + values[:1]",
    "same for all": "return [max(values)] * len(values)",
}

_RETURNS: Final[Mapping[str, Part]] = {
    "list": Part("return values"),
    "tuple": Part("return tuple(values)"),
    "numpy array": Part("import numpy as np; return np.array(values)"),
    "numpy scalars": Part("import numpy as np; return [np.float32(one) for one in values]"),
    "bools": Part("return [one > 0.5 for one in values]"),
    "numpy bools": Part("import numpy as np; return list(np.array(values) > 0.5)"),
    "ints": Part("return [round(one) for one in values]"),
    "fractions": Part("import fractions; return [fractions.Fraction(one) for one in values]"),
    "decimals": Part("import decimal; return [decimal.Decimal(one) for one in values]"),
    "generator": Part("return (one for one in values)"),
    "map": Part("return map(float, values)"),
    "some None": Part("return [None if one == 0 else one for one in values]"),
    "some nan": Part("return [float('nan') if one == 0 else one for one in values]"),
    "minus zero": Part("return [-0.0 if one == 0 else one for one in values]"),
    "one number": Part("return sum(values)", "return a list with one number for each completion"),
    "one string": Part("return '1' * len(values)", "one number for each completion"),
    "strings": Part("return [str(one) for one in values]", "one number for each completion"),
    "nested": Part("return [[one] for one in values]", "one number for each completion"),
    "none at all": Part("values.clear()", "returned None"),
    "too many": Part("return values + [0.0]", r"returned \d+ numbers for \d+ completions"),
    "too few": Part("return values[1:]", r"returned \d+ numbers? for \d+ completions"),
    "mapping": Part("return dict(enumerate(values))", "one number for each completion"),
    "infinite": Part("return [float('inf')] * len(values)", "a finite number"),
    "complex": Part("return [complex(one) for one in values]", "one number for each completion"),
    "matrix": Part("import numpy as np; return np.array([values])", "number"),
    "a set": Part("return {one for one in values}", "one number for each completion"),
}

_FUNCTIONS: Final[Mapping[str, str]] = {
    "def": "def reward(completions, **columns):\n    return core(completions, columns)",
    "prompts first": (
        "def reward(prompts, completions, **columns):\n"
        "    assert len(prompts) == len(completions)\n    return core(completions, columns)"
    ),
    "prompts of messages": (
        "def reward(prompts, completions, **columns):\n"
        "    assert prompts[0][-1]['content'] == columns['question'][0]\n"
        "    return core(completions, columns)"
    ),
    "named columns": (
        "def reward(completions, question, answer):\n"
        "    return core(completions, {'question': question, 'answer': answer})"
    ),
    "keyword only": (
        "def reward(*, completions, answer, question=None, **rest):\n"
        "    return core(completions, {'question': question, 'answer': answer, **rest})"
    ),
    "async def": (
        "async def reward(completions, **columns):\n    await asyncio.sleep(0)\n"
        "    return core(completions, columns)"
    ),
    "async sleep": (
        "async def reward(completions, **columns):\n    await asyncio.sleep(0.002)\n"
        "    return core(completions, columns)"
    ),
    "gather": (
        "async def one_later(n, values):\n"
        "    await asyncio.sleep(0.001 * n)\n    return values[n]\n"
        "async def reward(completions, **columns):\n"
        "    values = list(core(completions, columns))\n"
        "    return list(await asyncio.gather(*(one_later(n, values) for n in range(len(values)))))"
    ),
    "asyncio.run": (
        "async def later(completions, columns):\n    await asyncio.sleep(0.001)\n"
        "    return core(completions, columns)\n"
        "def reward(completions, **columns):\n    return asyncio.run(later(completions, columns))"
    ),
    "lambda": "reward = lambda completions, **columns: core(completions, columns)",
    "object": (
        "class Reward:\n    def __call__(self, completions, **columns):\n"
        "        return core(completions, columns)\nreward = Reward()"
    ),
    "method": (
        "class Rewards:\n    def reward(self, completions, **columns):\n"
        "        return core(completions, columns)\nreward = Rewards().reward"
    ),
    "partial": (
        "def scaled(scale, completions, **columns):\n    return core(completions, columns)\n"
        "reward = functools.partial(scaled, 1.0)"
    ),
    "decorated": (
        "def logged(function):\n    @functools.wraps(function)\n"
        "    def inner(*given, **named):\n        return function(*given, **named)\n"
        "    return inner\n"
        "@logged\ndef reward(completions, **columns):\n    return core(completions, columns)"
    ),
    "decorated, bare": (
        "def logged(function):\n    def inner(*given, **named):\n"
        "        return function(*given, **named)\n    return inner\n"
        "@logged\ndef reward(completions, **columns):\n    return core(completions, columns)"
    ),
    "closure": (
        "def make(bonus):\n    def inner(completions, **columns):\n"
        "        return core(completions, columns)\n    return inner\nreward = make(0.0)"
    ),
    "remembers": (
        "KNOWN = {}\ndef reward(completions, **columns):\n    key = str((completions, columns))\n"
        "    if key not in KNOWN:\n        KNOWN[key] = list(core(completions, columns))\n"
        "    return KNOWN[key]"
    ),
    "ids": (
        "def reward(completions, completion_ids, **columns):\n"
        "    assert len(completion_ids) == len(completions)\n    return core(completions, columns)"
    ),
    "loggers": (
        "def reward(completions, log_extra=None, log_metric=None, **columns):\n"
        "    if log_extra: log_extra('text', list(completions))\n"
        "    if log_metric: log_metric('size', float(len(completions)))\n"
        "    return core(completions, columns)"
    ),
    "state": (
        "def reward(completions, trainer_state=None, **columns):\n    STATE[:] = [trainer_state]\n"
        "    return core(completions, columns)"
    ),
}
_ALONE: Final = (
    "def reward(completions, **columns):\n"
    "    first = {k: v[:1] for k, v in columns.items() if isinstance(v, list)}\n"
    "    return list(core(completions[:1], first))"
)

_HEAD: Final = "import asyncio, functools, random, re, time\nSEEN, STATE = [], [None]\n"
_NO_COLUMNS: Final = (
    "NO_COLUMNS = ('prompts', 'completion_ids', 'trainer_state', 'log_extra', 'log_metric')\n"
)
_CORE: Final = """
def one(c, row):
    a, q = str(row.get("answer", "")), str(row.get("question", ""))
{scorer}

def group(values, texts):
    {group}

def returned(values):
    {returned}

def core(completions, columns):
    texts = [{text} for one in completions]
    rows = [{{name: values[n] for name, values in columns.items() if name not in NO_COLUMNS}}
            for n in range(len(texts))]
    return returned(group([one(*pair) for pair in zip(texts, rows)], texts))
"""


def generate(rng: random.Random, *, is_sound: bool | None = None) -> GeneratedReward:
    """Return a file with a function; `is_sound` decides whether it will be accepted."""
    sound = rng.random() < 0.75 if is_sound is None else is_sound
    names, codes, refused = _parts(rng, sound)
    scorer, returned = names[0], names[2]
    takes_messages = rng.random() < 0.3
    is_alone = sound and returned in ("list", "tuple", "map") and rng.random() < 0.08
    core = _CORE.format(
        scorer=indent(dedent(codes[0]).strip(), "    "),
        group=codes[1],
        returned=codes[2],
        text='one[0]["content"]' if takes_messages else "one",
    )
    return GeneratedReward(
        name=", ".join((*names, "messages" if takes_messages else "texts")),
        source=f"{_HEAD}{_NO_COLUMNS}{core}\n{_ALONE if is_alone else codes[3]}\n",
        refused=refused,
        needs_a_wall=scorer in _WALLED,
        takes_messages=takes_messages,
        has_prompt_messages=names[3] == "prompts of messages" and not is_alone,
        is_alone=is_alone,
    )


def _parts(rng: random.Random, sound: bool) -> tuple[list[str], list[str], str]:
    """Return the names of the parts, their code, and the pattern of a refusal."""
    scorer = rng.choice(list(_SOUND_SCORERS))
    group, function = rng.choice(list(_GROUPS)), rng.choice(list(_FUNCTIONS))
    good = [name for name, part in _RETURNS.items() if not part.refused]
    returned, code, refused = rng.choice(good), _SOUND_SCORERS[scorer], ""
    if not sound:
        match rng.randint(0, 2):
            case 0:
                scorer = rng.choice(list(_UNSOUND_SCORERS))
                code, refused = _UNSOUND_SCORERS[scorer]
                group, returned = "each", "list"
                function = "state" if scorer == "trainer_state" else "def"
            case 1:
                what, caught = rng.choice(list(_FORBIDDEN)), rng.choice(list(_CATCHES))
                scorer = f"{what}, in {caught}"
                code = _CATCHES[caught].format(_FORBIDDEN[what]) + "\nreturn float(a in c)"
                refused = r"reward\.py, line \d+: the sandbox refuses"
            case _:
                returned = rng.choice([one for one in _RETURNS if one not in good])
                refused = _RETURNS[returned].refused
                group, scorer, code = "each", "length", _SOUND_SCORERS["length"]
                function = rng.choice(["def", "async def", "object", "partial", "lambda"])
    codes = [code, _GROUPS[group], _RETURNS[returned].code, _FUNCTIONS[function]]
    return [scorer, group, returned, function], codes, refused
