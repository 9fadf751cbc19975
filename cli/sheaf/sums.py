"""The sums that the text of a record defines over its numbers, such as in_use = alloc_fastpath + ... - free_fastpath."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

_TERM = re.compile(r"([+-]) (\w+(?: \* \w+)*) ?")
_MOST = 100  # terms of a sum
_BITS = 900  # of a sum, which has to fit a float; products of sums would otherwise grow without bound
Sums = Mapping[str, list[tuple[int, list[str]]]]  # for each sum the sign and the factors of its terms
Compiled = Callable[..., list[tuple[int, ...]]]


def parse(lines: Iterable[str]) -> Sums:
    """The sums in lines such as NAME = a * b - c. Raises ValueError if a line is none, or if its numbers would grow large."""
    sums, bits = {}, dict[str, int]()  # an upper bound for each sum
    for line in lines:
        name, _, formula = line.partition(" = ")
        if _TERM.sub("", f"+ {formula}"):
            raise ValueError(line)
        terms = [(-1 if sign == "-" else 1, factors.split(" * ")) for sign, factors in _TERM.findall(f"+ {formula}")]
        largest = max(sum(bits.get(factor, 64) for factor in factors) for _, factors in terms)
        bits[name] = largest + len(terms).bit_length()
        if len(terms) > _MOST or bits[name] > _BITS:
            raise ValueError(line)
        sums[name] = terms
    return sums


def evaluate(sums: Sums, lookup: Callable[[str], int]) -> dict[str, int]:
    """All sums by name. A sum may use earlier sums and the names of `lookup`. A negative sum counts as 0."""
    values: dict[str, int] = {}
    for name, terms in sums.items():
        products = (sign * math.prod(values[f] if f in values else lookup(f) for f in factors) for sign, factors in terms)
        values[name] = max(0, sum(products))
    return values


def compiled(sums: Sums, *names: Sequence[str]) -> Compiled:
    """
    A function that computes all sums of many caches, or of one process, as evaluate() does for one. It takes a sequence of
    numbers for each sequence of `names`: the numbers of the first cache in the order of the names, those of the second, and
    so on. It returns the sums of each cache, in order. Of equal names the first counts, and an unknown one is 0.

    The text of a record contributes no more than indices to the source of the function.
    """
    known = {name: f"v{i}_{j}" for i, group in reversed(list(enumerate(names))) for j, name in enumerate(group)}
    columns = {f"v{i}_{j}": f"a{i}[{j}::{len(group)}]" for i, group in enumerate(names) for j in range(len(group))}
    body, used = [], []
    for number, (name, terms) in enumerate(sums.items()):
        expression = []
        for sign, factors in terms:
            used += [known[factor] for factor in factors if factor in known]
            expression.append(("-" if sign < 0 else "+") + "*".join(known.get(factor, "0") for factor in factors))
        body += [f"        s{number} = {''.join(expression)}", f"        if s{number} < 0: s{number} = 0"]
        known[name] = f"s{number}"
    needed = [variable for variable in columns if variable in used] or list(columns)[:1]
    lines = [
        f"def add({', '.join(f'a{i}' for i in range(len(names)))}):",
        "    rows = []",
        f"    for {', '.join(needed)}, in zip({', '.join(columns[variable] for variable in needed)}):",
        *body,
        f"        rows.append(({''.join(f's{number}, ' for number in range(len(sums)))}))",
        "    return rows",
    ]
    scope: dict[str, Compiled] = {}
    exec("\n".join(lines), {"__builtins__": {"zip": zip}}, scope)
    return scope["add"]
