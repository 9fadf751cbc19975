"""The sums that the text of a record defines over its numbers, such as in_use = alloc_fastpath + ... - free_fastpath."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from itertools import repeat
from operator import add, mul, sub

_TERM = re.compile(r"([+-]) (\w+(?: \* \w+)*) ?")
_MOST = 100  # terms of a sum
_BITS = 900  # of a sum, which has to fit a float; products of sums would otherwise grow without bound
Sums = Mapping[str, list[tuple[int, list[str]]]]  # for each sum the sign and the factors of its terms
_Product = list[int]  # the columns whose numbers are multiplied


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


class Adder:
    """
    All sums of many caches, or of one process, as evaluate() computes them for one. It is called with a sequence of numbers for
    each sequence of `names`: the numbers of the first cache in the order of the names, those of the second, and so on. It
    returns the sums of each cache, in order. Of equal names the first counts, and an unknown one is 0.

    A column has one number of all caches. Columns are added and multiplied as a whole, which is faster than cache by cache.
    """

    def __init__(self, sums: Sums, *names: Sequence[str]) -> None:
        inputs = {name: (i, j) for i, group in reversed(list(enumerate(names))) for j, name in enumerate(group)}
        self._widths = [len(group) for group in names]
        self._inputs: list[tuple[int, int]] = []  # of each column that is no sum: which of the sequences, and where in it
        self._sums: list[tuple[list[_Product], list[_Product]]] = []  # the terms to add and to subtract
        columns: dict[str, int] = {}
        used = {factor for terms in sums.values() for _, factors in terms for factor in factors}
        for name in inputs:
            if name in used:
                columns[name] = len(self._inputs)
                self._inputs.append(inputs[name])
        for name, terms in sums.items():
            known = [
                (sign, [columns[one] for one in factors]) for sign, factors in terms if all(one in columns for one in factors)
            ]
            self._sums.append(([of for sign, of in known if sign > 0], [of for sign, of in known if sign < 0]))
            columns[name] = len(self._inputs) + len(self._sums) - 1

    def __call__(self, *numbers: Sequence[int]) -> list[tuple[int, ...]]:
        """The sums of each cache."""
        count = max(len(row) // width for row, width in zip(numbers, self._widths, strict=True) if width)
        columns: list[Iterable[int]] = [numbers[i][j :: self._widths[i]] for i, j in self._inputs]
        first = len(columns)
        for plus, minus in self._sums:
            added, subtracted = (
                [reduce(partial(map, mul), [columns[one] for one in factors]) for factors in products]
                for products in (plus, minus)
            )
            total = reduce(partial(map, add), added) if added else repeat(0, count)
            total = reduce(partial(map, sub), subtracted, total)
            columns.append([one if one > 0 else 0 for one in total] if subtracted else list(total))
        return list(zip(*columns[first:], strict=True))
