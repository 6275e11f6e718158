"""Make small exercises: a broken function, failing checks, and the edits that fix it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Exercise:
    """`source` is a module with a mistake, `edits` are (old, new) that mend it, `checks` are
    expressions that must be true.
    """

    name: str
    source: str
    edits: tuple[tuple[str, str], ...]
    checks: tuple[str, ...]

    @property
    def files(self) -> dict[str, str]:
        """The exercise as it lies in a repository: the module and its tests."""
        lines = "\n".join(f"        self.assertTrue({check})" for check in self.checks)
        return {
            f"{self.name}/work.py": self.source,
            f"{self.name}/test_work.py": f"import unittest\n\nfrom work import *\n\n\nclass Test(unittest.TestCase):\n"
            f"    def test_it(self):\n{lines}\n",
        }


def one(name: str, source: str, old: str, new: str, *checks: str) -> Exercise:
    return Exercise(name, source, ((old, new),), checks)


EXERCISES = (
    one(
        "absolute",
        "def absolute(x):\n    return x if x > 0 else x\n",
        "else x",
        "else -x",
        "absolute(-3) == 3",
        "absolute(0) == 0",
    ),
    one("adder", "def add(a, b):\n    return a - b\n", "a - b", "a + b", "add(2, 3) == 5"),
    one(
        "anagram",
        "def anagram(a, b):\n    return set(a) == set(b)\n",
        "set(a) == set(b)",
        "sorted(a) == sorted(b)",
        "anagram('listen', 'silent')",
        "not anagram('aab', 'abb')",
    ),
    one(
        "average",
        "def average(xs):\n    return sum(xs) // len(xs)\n",
        "//",
        "/",
        "average([1, 2]) == 1.5",
    ),
    one(
        "binary",
        "def to_int(bits):\n    n = 0\n    for b in bits:\n        n = n + 2 + int(b)\n    return n\n",
        "n + 2",
        "n * 2",
        "to_int('101') == 5",
    ),
    one(
        "bounds",
        "def clamp(x, low, high):\n    return max(high, min(low, x))\n",
        "max(high, min(low, x))",
        "max(low, min(high, x))",
        "clamp(5, 0, 3) == 3",
        "clamp(-1, 0, 3) == 0",
    ),
    one(
        "bubble",
        "def order(xs):\n    xs = list(xs)\n    for i in range(len(xs)):\n        for j in range(len(xs) - 1):\n"
        "            if xs[j] < xs[j + 1]:\n                xs[j], xs[j + 1] = xs[j + 1], xs[j]\n    return xs\n",
        "xs[j] < xs[j + 1]",
        "xs[j] > xs[j + 1]",
        "order([3, 1, 2]) == [1, 2, 3]",
    ),
    one(
        "caesar",
        "def shift(s, n):\n    return ''.join(chr((ord(c) - 97 + n) % 25 + 97) for c in s)\n",
        "% 25",
        "% 26",
        "shift('xyz', 3) == 'abc'",
    ),
    one(
        "chunks",
        "def chunks(xs, n):\n    return [xs[i:i + n] for i in range(0, len(xs), n + 1)]\n",
        "n + 1)",
        "n)",
        "chunks([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]",
    ),
    one(
        "collatz",
        "def steps(n):\n    k = 0\n    while n != 1:\n        n = n // 2 if n % 2 == 0 else 3 * n - 1\n        k += 1\n"
        "        if k > 999:\n            return -1\n    return k\n",
        "3 * n - 1",
        "3 * n + 1",
        "steps(6) == 8",
    ),
    one(
        "counter",
        "def count(words):\n    seen = {}\n    for w in words:\n        seen[w] = 1\n    return seen\n",
        "seen[w] = 1",
        "seen[w] = seen.get(w, 0) + 1",
        "count(['a', 'b', 'a']) == {'a': 2, 'b': 1}",
    ),
    Exercise(
        "default_list",
        "def push(x, to=[]):\n    to.append(x)\n    return to\n",
        (
            ("to=[]", "to=None"),
            ("    to.append(x)\n", "    to = [] if to is None else to\n    to.append(x)\n"),
        ),
        ("push(1) == [1]", "push(2) == [2]"),
    ),
    one(
        "digits",
        "def digit_sum(n):\n    return sum(int(d) for d in str(n))\n",
        "str(n)",
        "str(abs(n))",
        "digit_sum(-12) == 3",
    ),
    one(
        "dividers",
        "def dividers(n):\n    return [d for d in range(1, n) if n % d == 0]\n",
        "range(1, n)",
        "range(1, n + 1)",
        "dividers(6) == [1, 2, 3, 6]",
    ),
    one(
        "factorial",
        "def factorial(n):\n    return 0 if n == 0 else n * factorial(n - 1)\n",
        "return 0",
        "return 1",
        "factorial(4) == 24",
    ),
    one(
        "fibonacci",
        "def fib(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a = b\n        b = a + b\n    return a\n",
        "        a = b\n        b = a + b\n",
        "        a, b = b, a + b\n",
        "[fib(n) for n in range(7)] == [0, 1, 1, 2, 3, 5, 8]",
    ),
    one(
        "flatten",
        "def flatten(xs):\n    out = []\n    for x in xs:\n        if isinstance(x, list):\n            out.append(flatten(x))\n"
        "        else:\n            out.append(x)\n    return out\n",
        "out.append(flatten(x))",
        "out.extend(flatten(x))",
        "flatten([1, [2, [3]]]) == [1, 2, 3]",
    ),
    one(
        "gcd",
        "def gcd(a, b):\n    while b:\n        a, b = b, a // b\n    return a\n",
        "a // b",
        "a % b",
        "gcd(12, 18) == 6",
    ),
    one(
        "hamming",
        "def hamming(a, b):\n    return sum(x == y for x, y in zip(a, b))\n",
        "x == y",
        "x != y",
        "hamming('abc', 'abd') == 1",
    ),
    one(
        "initials",
        "def initials(name):\n    return ''.join(w[0] for w in name.split(' '))\n",
        "split(' ')",
        "split()",
        "initials('Ada  Lovelace') == 'AL'",
    ),
    one(
        "invert",
        "def invert(d):\n    return {k: v for k, v in d.items()}\n",
        "k: v for",
        "v: k for",
        "invert({'a': 1}) == {1: 'a'}",
    ),
    one(
        "leap",
        "def leap(y):\n    return y % 4 == 0 and y % 100 != 0\n",
        "y % 100 != 0",
        "(y % 100 != 0 or y % 400 == 0)",
        "leap(2000)",
        "not leap(1900)",
        "leap(2024)",
    ),
    one(
        "longest",
        "def longest(words):\n    return min(words, key=len)\n",
        "min(",
        "max(",
        "longest(['a', 'abc', 'ab']) == 'abc'",
    ),
    one(
        "matrix",
        "def turn(m):\n    return [list(r) for r in m]\n",
        "for r in m",
        "for r in zip(*m)",
        "turn([[1, 2], [3, 4]]) == [[1, 3], [2, 4]]",
    ),
    one(
        "median",
        "def median(xs):\n    return xs[len(xs) // 2]\n",
        "    return xs[",
        "    xs = sorted(xs)\n    return xs[",
        "median([3, 1, 2]) == 2",
    ),
    one(
        "merge",
        "def merge(a, b):\n    return {**b, **a}\n",
        "{**b, **a}",
        "{**a, **b}",
        "merge({'x': 1}, {'x': 2}) == {'x': 2}",
    ),
    Exercise(
        "palindrome",
        "def clean(s):\n    return s\n\n\ndef palindrome(s):\n    return clean(s) == clean(s)\n",
        (
            ("    return s\n", "    return [c.lower() for c in s if c.isalnum()]\n"),
            ("== clean(s)", "== clean(s)[::-1]"),
        ),
        ("palindrome('Was it a car?') is False", "palindrome('Never odd or even')"),
    ),
    one(
        "power",
        "def power(b, n):\n    return 1 if n == 0 else b * power(b, n)\n",
        "* power(b, n)",
        "* power(b, n - 1)",
        "power(2, 10) == 1024",
    ),
    one(
        "primes",
        "def prime(n):\n    return all(n % d for d in range(2, n))\n",
        "return all",
        "return n > 1 and all",
        "not prime(1)",
        "prime(7)",
    ),
    one(
        "queue",
        "class Queue:\n    def __init__(self):\n        self.xs = []\n\n    def put(self, x):\n        self.xs.append(x)\n\n"
        "    def get(self):\n        return self.xs.pop()\n\n\ndef first(*xs):\n    q = Queue()\n    for x in xs:\n        q.put(x)\n    return q.get()\n",
        "self.xs.pop()",
        "self.xs.pop(0)",
        "first(1, 2, 3) == 1",
    ),
    one(
        "reverse",
        "def reverse(words):\n    return words[::-1]\n",
        "words[::-1]",
        "' '.join(words.split()[::-1])",
        "reverse('a bc d') == 'd bc a'",
    ),
    one(
        "roman",
        "V = {'I': 1, 'V': 5, 'X': 10}\n\n\ndef roman(s):\n    n = 0\n    for a, b in zip(s, s[1:] + ' '):\n"
        "        n += V[a]\n    return n\n",
        "n += V[a]",
        "n += -V[a] if V.get(b, 0) > V[a] else V[a]",
        "roman('XIV') == 14",
        "roman('VIII') == 8",
    ),
    one(
        "rounding",
        "def cents(x):\n    return int(x * 100)\n",
        "int(x * 100)",
        "round(x * 100)",
        "cents(0.29) == 29",
    ),
    one(
        "search",
        "def find(xs, x):\n    lo, hi = 0, len(xs) - 1\n    while lo < hi:\n        mid = (lo + hi) // 2\n        if xs[mid] == x:\n"
        "            return mid\n        if xs[mid] < x:\n            lo = mid + 1\n        else:\n            hi = mid - 1\n    return -1\n",
        "lo < hi",
        "lo <= hi",
        "find([1, 3, 5], 5) == 2",
        "find([1], 1) == 0",
        "find([1], 2) == -1",
    ),
    one(
        "slug",
        "def slug(s):\n    return s.replace(' ', '-')\n",
        "s.replace",
        "s.lower().replace",
        "slug('Hello World') == 'hello-world'",
    ),
    one(
        "unique",
        "def unique(xs):\n    return list(set(xs))\n",
        "list(set(xs))",
        "list(dict.fromkeys(xs))",
        "unique('cabac') == ['c', 'a', 'b']",
    ),
    one(
        "vowels",
        "def vowels(s):\n    return sum(c in 'aeio' for c in s)\n",
        "'aeio'",
        "'aeiouAEIOU'",
        "vowels('Uvula') == 3",
    ),
)
