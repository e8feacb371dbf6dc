"""Small problems in the formats of published code data sets, written for these tests."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One row with right and wrong programs."""

    name: str
    row: dict[str, Any]
    right: tuple[str, ...]
    """Programs that pass, in addition to the row's own solution."""
    wrong: tuple[str, ...] = field(default=("pass", "def f(*a): return None"))


def human_eval(name: str, prompt: str, body: str, test: str) -> dict[str, Any]:
    return {
        "task_id": f"Own/{name}",
        "prompt": prompt,
        "entry_point": name,
        "canonical_solution": body,
        "test": test,
    }


def mbpp(text: str, code: str, tests: list[str], setup: str = "", **more: Any) -> dict[str, Any]:
    return {"text": text, "code": code, "test_list": tests, "test_setup_code": setup, **more}


def apps(question: str, solutions: list[str], **table: Any) -> dict[str, Any]:
    """A row of APPS: its tests and solutions are texts of JSON."""
    return {
        "question": question,
        "input_output": json.dumps(table),
        "solutions": json.dumps(solutions),
        "starter_code": "",
    }


LIST_PRELUDE = """from typing import *

class ListNode:
    def __init__(self, val=0, next=None):
        self.val = val
        self.next = next

def list_node(values):
    head = None
    for value in reversed(values):
        head = ListNode(value, head)
    return head

def is_same_list(one, other):
    while one and other:
        if one.val != other.val:
            return False
        one, other = one.next, other.next
    return one is None and other is None

inf = float("inf")
"""

PROBLEMS = (
    Problem(
        name="humaneval-body",
        row=human_eval(
            "longest_run",
            "from typing import List\n\n\ndef longest_run(values: List[int]) -> int:\n"
            '    """ Length of the longest run of equal values.\n'
            '    >>> longest_run([1, 1, 2])\n    2\n    """\n',
            "    best = run = 0\n    last = None\n    for value in values:\n"
            "        run = run + 1 if value == last else 1\n        last = value\n"
            "        best = max(best, run)\n    return best\n",
            "\n\nMETADATA = {'author': 'own'}\n\n\ndef check(candidate):\n"
            "    assert candidate([]) == 0\n    assert candidate([1, 1, 2]) == 2\n"
            "    assert candidate([3, 3, 3]) == 3, 'all equal'\n",
        ),
        right=(
            "import itertools\n\ndef longest_run(values: List[int]) -> int:\n"
            "    return max((len(list(g)) for _, g in itertools.groupby(values)), default=0)",
            "return max((len(list(g)) for _, g in __import__('itertools').groupby(values)),"
            " default=0)",
        ),
        wrong=("    return len(values)\n", "def longest_run(values):\n    return 2"),
    ),
    Problem(
        name="humaneval-helper",
        row=human_eval(
            "find_zero",
            "import math\n\n\ndef poly(xs: list, x: float):\n"
            '    """ Value of a polynomial. """\n'
            "    return sum(coeff * math.pow(x, i) for i, coeff in enumerate(xs))\n\n\n"
            'def find_zero(xs: list):\n    """ Find x such that poly(x) = 0. """\n',
            "    low, high = -1.0, 1.0\n    while poly(xs, low) * poly(xs, high) > 0:\n"
            "        low, high = low * 2, high * 2\n    while high - low > 1e-10:\n"
            "        mid = (low + high) / 2\n"
            "        if poly(xs, mid) * poly(xs, low) > 0:\n            low = mid\n"
            "        else:\n            high = mid\n    return low\n",
            "def check(candidate):\n    import random\n    rng = random.Random(42)\n"
            "    for _ in range(10):\n        coeffs = [rng.randint(-10, 10), 7]\n"
            "        import copy\n        found = candidate(copy.deepcopy(coeffs))\n"
            "        assert math.fabs(poly(coeffs, found)) < 1e-4\n",
        ),
        right=(),
        wrong=(
            "def poly(xs, x):\n    return 0.0\n\ndef find_zero(xs):\n    return 1.5",
            "class E:\n    def __eq__(s, o): return True\n    def __lt__(s, o): return True\n"
            "    def __mul__(s, o): return s\n    __rmul__ = __pow__ = __float__ = __mul__\n"
            "def find_zero(xs):\n    return E()",
        ),
    ),
    Problem(
        name="humaneval-mutates-and-raises",
        row=human_eval(
            "drain",
            'def drain(queue: list, limit: int) -> int:\n    """ Move items out. """\n',
            "    if limit < 0:\n        raise ValueError('limit')\n"
            "    taken = queue[:limit]\n    del queue[:limit]\n    return len(taken)\n",
            "def check(candidate):\n    queue = [1, 2, 3]\n    assert candidate(queue, 2) == 2\n"
            "    assert queue == [3]\n    try:\n        candidate(queue, -1)\n"
            "        assert False\n    except ValueError as error:\n"
            "        assert str(error) == 'limit'\n",
        ),
        right=(),
        wrong=("    return min(limit, len(queue))\n", "    raise ValueError('limit')\n"),
    ),
    Problem(
        name="humaneval-function-argument",
        row=human_eval(
            "fold",
            'def fold(function, values, start):\n    """ Fold from the left. """\n',
            "    for value in values:\n        start = function(start, value)\n    return start\n",
            "def check(candidate):\n"
            "    assert candidate(lambda a, b: a * 10 + b, [1, 2], 0) == 12\n"
            "    assert candidate(max, (3, 9, 4), 0) == 9\n",
        ),
        right=("from functools import reduce as r\ndef fold(f, v, s):\n    return r(f, v, s)",),
        wrong=("    return 12\n",),
    ),
    Problem(
        name="mbpp-list",
        row=mbpp(
            "Write a function to count vowels.",
            "def count_vowels(text):\r\n  return sum(c in 'aeiou' for c in text.lower())",
            ["assert count_vowels('Queue') == 4", "assert count_vowels('') == 0"],
            challenge_test_list=[],
        ),
        right=("from re import findall\ncount_vowels = lambda t: len(findall('(?i)[aeiou]', t))",),
        wrong=("def count_vowels(text):\n  return 4", "def other(text): return 4"),
    ),
    Problem(
        name="mbpp-setup-with-class",
        row=mbpp(
            "Write a function to find the height of a tree.",
            "class Node:\n    def __init__(self, data):\n        self.data = data\n"
            "        self.left = None\n        self.right = None\n\n"
            "def height(node):\n    if node is None:\n        return 0\n"
            "    return 1 + max(height(node.left), height(node.right))\n",
            ["assert (height(root)) == 3", "assert height(root.left) == 2"],
            "root = Node(1)\nroot.left = Node(2)\nroot.left.right = Node(3)\n",
        ),
        right=(),
        wrong=(
            "class Node:\n    def __init__(self, d): pass\n    def __eq__(s, o): return True\n"
            "    left = right = None\ndef height(node):\n    return Node(1)",
        ),
    ),
    Problem(
        name="mbpp-sanitized",
        row={
            "prompt": "Write a function to compare two floats.",
            "code": "def near(a, b):\n    return abs(a - b) / 2",
            "test_imports": ["import math"],
            "test_list": ["assert math.isclose(near(1.5, 2.5), 0.5, rel_tol=0.001)"],
        },
        right=(),
        wrong=("def near(a, b):\n    return 0.6",),
    ),
    Problem(
        name="mbpp-named-like-a-builtin",
        row=mbpp(
            "Write a function to sum the shared divisors of two numbers.",
            "def sum(a, b):\n    total = 0\n    for i in range(1, min(a, b)):\n"
            "        if a % i == b % i == 0:\n            total += i\n    return total",
            ["assert sum(10, 15) == 6", "assert sum(100, 150) == 93"],
        ),
        right=(),
        wrong=("def len(x): return 6\ndef sum(a, b): return 6",),
    ),
    Problem(
        name="mbpp-sets-and-tuples",
        row=mbpp(
            "Write a function to group words by length.",
            "from collections import defaultdict\ndef group(words):\n    d = defaultdict(set)\n"
            "    for w in words:\n        d[len(w)].add(w)\n    return d",
            [
                "assert group(('a', 'bb', 'c')) == {1: {'a', 'c'}, 2: {'bb'}}",
                "assert set(group(['x']).keys()) == {1}",
            ],
        ),
        right=(
            "import itertools\ndef group(w):\n"
            "    return {k: set(v) for k, v in itertools.groupby(sorted(w, key=len), len)}",
        ),
        wrong=("def group(words):\n    return {1: {'a', 'c'}}",),
    ),
    Problem(
        name="apps-stdin",
        row=apps(
            "Read n, then n numbers; print their sum and mean.",
            [
                "n = int(input())\nxs = list(map(int, input().split()))\n"
                "print(sum(xs))\nprint(sum(xs) / n)",
                "import sys\nd = sys.stdin.buffer.read().split()\nx = [int(v) for v in d[1:]]\n"
                "sys.stdout.write('%d\\n%.9f\\n' % (sum(x), sum(x) / len(x)))",
            ],
            inputs=["3\n1 2 3\n", "2\n1 2\n"],
            outputs=["6\n2.0\n", "3\n1.5\n"],
        ),
        right=(
            "import os, io, sys, atexit\n"
            "data = io.BytesIO(os.read(0, os.fstat(0).st_size))\ninput = data.readline\n"
            "buffer = io.StringIO()\nsys.stdout = buffer\n"
            "atexit.register(lambda: sys.__stdout__.write(buffer.getvalue()))\n"
            "n = int(input())\nx = [int(v) for v in input().split()]\nprint(sum(x))\n"
            "print(sum(x) / n)",
            "import sys, threading\nsys.setrecursionlimit(10 ** 6)\n"
            "threading.stack_size(1 << 27)\ndef main():\n"
            "    def depth(n):\n        return 0 if n == 0 else 1 + depth(n - 1)\n"
            "    assert depth(20000) == 20000\n"
            "    n = int(input())\n    x = list(map(int, input().split()))\n"
            "    print(sum(x))\n    print(sum(x) / n)\n    sys.exit()\n"
            "t = threading.Thread(target=main)\nt.start()\nt.join()",
            "from functools import lru_cache\nimport sys\nsys.setrecursionlimit(10**6)\n"
            "@lru_cache(None)\ndef f(i):\n    return 0 if i == 0 else f(i - 1)\nf(50000)\n"
            "if __name__ == '__main__':\n    n, *x = map(int, open(0).read().split())\n"
            "    print(sum(x))\n    print(sum(x) / n)\n    exit(0)",
        ),
        wrong=("print(6)\nprint(2.0)", "n = int(input())", "print(6)\nprint(2.0)\nexit(1)"),
    ),
    Problem(
        name="apps-calls",
        row=apps(
            "Return the two numbers' indices.",
            [
                "class Solution:\n    def twoSum(self, nums, target):\n"
                "        for i in range(len(nums)):\n            for j in range(i):\n"
                "                if nums[i] + nums[j] == target:\n"
                "                    return (j, i)\n"
            ],
            fn_name="twoSum",
            inputs=[[[2, 7, 11], 9], [[3, 3], 6]],
            outputs=[[[0, 1]], [0, 1]],
        ),
        right=("def twoSum(nums, target):\n    return [0, 1]",),
        wrong=("def twoSum(nums, target):\n    return [1, 0]", "print([0, 1])"),
    ),
    Problem(
        name="cases-of-texts",
        row={
            "problem": "Print the word backwards.",
            "solution": "print(input()[::-1])",
            "test_cases": [
                {"input": "abc", "output": "cba", "testtype": "stdin"},
                {"input": "abé\n", "output": "éba  \n\n", "testtype": "stdin"},
            ],
        },
        right=("import sys\nfor line in sys.stdin:\n    print(line.strip()[::-1])",),
        wrong=("print(input())",),
    ),
    Problem(
        name="functional-cases",
        row={
            "question_content": "Return the shifted list.",
            "metadata": json.dumps({"func_name": "shift"}),
            "private_test_cases": json.dumps(
                [{"input": "[1, 2, 3]\n1", "output": "[3, 1, 2]", "testtype": "functional"}]
            ),
            "solution": "class Solution:\n    def shift(self, xs, k):\n"
            "        return xs[-k:] + xs[:-k]",
        },
        right=(),
        wrong=("class Solution:\n    def shift(self, xs, k):\n        return xs",),
    ),
    Problem(
        name="codecontests",
        row={
            "description": "Double each number.",
            "public_tests": {"input": ["1\n"], "output": ["2\n"]},
            "private_tests": {"input": ["5\n", "7"], "output": ["10\n", "14"]},
            "generated_tests": {"input": [], "output": []},
            "solutions": {
                "language": [2, 3],
                "solution": ["int main() {}", "print(int(input()) * 2)"],
            },
        },
        right=(),
        wrong=("print(2)",),
    ),
    Problem(
        name="leetcode-linked-list",
        row={
            "query": "Reverse a list.",
            "prompt": LIST_PRELUDE,
            "entry_point": "Solution().reverseList",
            "test": "def check(candidate):\n"
            "    assert is_same_list(candidate(head = list_node([1, 2])), list_node([2, 1]))\n"
            "    assert is_same_list(candidate(head = list_node([])), list_node([]))\n",
            "completion": "class Solution:\n"
            "    def reverseList(self, head: Optional[ListNode]) -> Optional[ListNode]:\n"
            "        last = None\n        while head:\n"
            "            head.next, last, head = last, head, head.next\n        return last\n",
        },
        right=(
            "class ListNode:\n    def __init__(self, val=0, next=None):\n"
            "        self.val = val\n        self.next = next\n"
            "class Solution:\n    def reverseList(self, head):\n        out = None\n"
            "        while head:\n            out = ListNode(head.val, out)\n"
            "            head = head.next\n        return out",
        ),
        wrong=(
            "class Solution:\n    def reverseList(self, head):\n        return head",
            "def is_same_list(a, b): return True\nclass Solution:\n"
            "    def reverseList(self, head):\n        return None",
        ),
    ),
    Problem(
        name="class-under-test",
        row={
            "prompt": "Write a class Stack with push, pop, len and iteration, and an error Empty.",
            "solution": "class Empty(Exception):\n    pass\n\nclass Stack:\n"
            "    def __init__(self):\n        self.items = []\n"
            "    def push(self, item):\n        self.items.append(item)\n        return self\n"
            "    def pop(self):\n        if not self.items:\n            raise Empty('empty')\n"
            "        return self.items.pop()\n    def __len__(self):\n"
            "        return len(self.items)\n    def __iter__(self):\n"
            "        yield from self.items\n    def __eq__(self, other):\n"
            "        return self.items == other.items\n",
            "test": "from solution import Stack, Empty\n\n"
            "def test_push():\n    stack = Stack()\n    stack.push(1).push(2)\n"
            "    assert len(stack) == 2\n    assert list(stack) == [1, 2]\n"
            "    assert stack.pop() == 2\n    assert stack == Stack().push(1)\n"
            "    assert stack.items == [1]\n\n"
            "def test_empty():\n    try:\n        Stack().pop()\n    except Empty as error:\n"
            "        assert str(error) == 'empty'\n    else:\n        raise AssertionError\n",
        },
        right=(),
        wrong=("class Empty(Exception): pass\nclass Stack: pass",),
    ),
    Problem(
        name="unittest-class",
        row={
            "instruct_prompt": "x",
            "question": "Write a function that yields squares.",
            "entry_point": "squares",
            "canonical_solution": "def squares(n):\n    for i in range(n):\n        yield i * i\n",
            "test": "import unittest\n\nclass TestCases(unittest.TestCase):\n"
            "    def test_some(self):\n        self.assertEqual(list(squares(3)), [0, 1, 4])\n"
            "    def test_none(self):\n        self.assertEqual(sum(squares(0)), 0)\n",
        },
        right=("def squares(n):\n    return (i ** 2 for i in range(n))",),
        wrong=("def squares(n):\n    return [0, 1]", "def squares(n):\n    raise SystemExit"),
    ),
    Problem(
        name="numpy-and-numbers",
        row={
            "question": "Scale a vector.",
            "test": "import numpy as np\nfrom fractions import Fraction\n"
            "assert np.allclose(scale(np.array([1.0, 2.0]), 2), [2, 4])\n"
            "assert scale(Fraction(1, 3), 3) == 1\nassert scale(10 ** 400, 2) == 2 * 10 ** 400\n"
            "assert scale(1 + 2j, 2) == 2 + 4j\n",
            "solution": "def scale(v, k):\n    return v * k",
        },
        right=(),
        wrong=("def scale(v, k):\n    return 1",),
    ),
)
"""Every supported format, with programs of each kind."""
