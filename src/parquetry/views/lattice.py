"""Which views a log of queries asks for: candidates from a lattice of group-by sets, with what each would save.

A candidate is what one query, or several together, group and filter by, with all their aggregates. Its size is
estimated from a sample of the table; its benefit are the rows that queries save beyond those that have to be written to
keep it up (NA-02, NA-38).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

import numpy as np

from parquetry.model.settings import VIEW_GROUP_ROWS
from parquetry.views.best_subset import choose, needless
from parquetry.views.shapes import Shape

_MOST_SHAPES = 30  # the most frequent shapes of the log, which candidates are made from
_LEAST_REDUCTION = 10  # a joined candidate has at most a tenth of the table's rows
_MOST_ROUNDS = 5


@dataclass(frozen=True)
class Suggestion:
    """A view worth having: the rows that it saves the logged queries, and the rows that it holds."""

    name: str
    sql: str
    shape: Shape
    rows: int
    queries: int
    rows_before: int  # that those queries read without it
    rows_after: int

    @property
    def factor(self) -> float:
        return self.rows_before / max(1, self.rows_after)


@dataclass(frozen=True)
class Suggested:
    """Views to make, the best first, and views that none of the logged ``queries`` needs then.

    ``refused``: why no view is made for some of them, and for how many, the most frequent reason first.
    """

    views: tuple[Suggestion, ...]
    drop: tuple[str, ...]
    queries: int
    refused: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class There:
    """A view that there is: its shape, its key as grouping expressions, and its rows.

    One that is not ``filled`` yet will have about so many. It is not made twice, but makes no other one needless.
    """

    name: str
    shape: Shape
    order: tuple[str, ...]
    rows: float
    filled: bool = True


def suggest(
    table: str,
    shapes: Sequence[Shape],
    rows: int,
    estimate: Callable[[frozenset[str]], float],
    most: int,
    there: Sequence[There] = (),
    names: Iterable[str] = (),
) -> Suggested:
    """At most ``most`` views for queries of these shapes over a table of ``rows`` rows, beside those that are there.

    ``estimate`` gives the number of groups of a set of grouping expressions; ``names`` are taken.
    """
    asked = Counter(shapes)
    sizes: dict[frozenset[str], float] = {}

    def size(groups: frozenset[str]) -> float:
        if groups not in sizes:
            sizes[groups] = min(float(rows), max(1.0, estimate(groups)))
        return sizes[groups]

    kinds, weights = list(asked), np.array(list(asked.values()), float)
    present = [_Candidate(t.shape, t.order, t.rows) for t in there]
    reads_there = np.array([[c.reads(s, size) for s in kinds] for c in present]).reshape(len(present), len(kinds))
    table_rows = np.full(len(kinds), float(rows))
    without = np.minimum(reads_there.min(axis=0, initial=np.inf), table_rows)
    shapes_made = _candidates(asked, size, rows)
    chosen: list[int] = []
    reads = np.empty((0, len(kinds)))
    for _ in range(_MOST_ROUNDS if shapes_made else 0):
        candidates = [_Candidate.of(c, asked, size) for c in shapes_made]
        reads = np.array([[c.reads(s, size) for s in kinds] for c in candidates])
        chosen = choose(reads, weights, without, np.array([c.rows for c in candidates]), most)
        narrower = [s for s in _needed(kinds, reads[chosen], without) if s not in shapes_made]
        if not narrower:
            break
        shapes_made += narrower
    found: list[Suggestion] = []
    cost, taken = without, {n.lower() for n in names}
    for i in chosen:
        c, mine = candidates[i], reads[i] < cost
        before, after = (int((x[mine] * weights[mine]).sum()) for x in (cost, reads[i]))
        cost = np.minimum(cost, reads[i])
        name = _free_name(f"{table}_by_{'_'.join(sorted(_word(g) for g in c.shape.groups))}"[:100], taken)
        taken.add(name.lower())
        sql = _definition(table, c.shape, c.order)
        found.append(Suggestion(name, sql, c.shape, int(c.rows), int(weights[mine].sum()), before, after))
    filled = [i for i, t in enumerate(there) if t.filled]
    left = needless(np.vstack([reads_there[filled], reads[chosen]]), table_rows, len(filled))
    return Suggested(tuple(found), tuple(there[filled[i]].name for i in left), len(shapes))


def _free_name(wanted: str, taken: Collection[str]) -> str:
    numbers = itertools.count(2)
    name = wanted
    while name.lower() in taken:
        name = f"{wanted}_{next(numbers)}"
    return name


@dataclass(frozen=True)
class _Candidate:
    """A possible view: its groups in the order of its key, and how many of them it would have."""

    shape: Shape
    order: tuple[str, ...]
    rows: float

    @classmethod
    def of(cls, shape: Shape, asked: Counter[Shape], size: Callable[[frozenset[str]], float]) -> _Candidate:
        """What its queries ask for one value of comes first: they find it in one place."""
        fixed = Counter[str]()
        for s, n in asked.items():
            if shape.covers(s):
                fixed.update(dict.fromkeys(s.fixed, n))
        order = sorted(shape.groups, key=lambda g: (-fixed[g], size(frozenset([g])), g))
        return cls(shape, tuple(order), size(shape.groups))

    def reads(self, s: Shape, size: Callable[[frozenset[str]], float]) -> float:
        """The rows that a query of this shape reads here: at least a row group of those that it asks for."""
        if not self.shape.covers(s):
            return math.inf
        share = 1.0
        for g in self.order:
            if g not in s.fixed:
                break
            share /= size(frozenset([g]))
        return max(self.rows * share, min(self.rows, VIEW_GROUP_ROWS))


def _candidates(asked: Counter[Shape], size: Callable[[frozenset[str]], float], rows: int) -> list[Shape]:
    """The shapes, and from each a chain of ever wider ones: joined with the shape that makes it grow least.

    A chain ends where the view would no longer be much smaller than the table.
    """
    usual = [s for s, _ in asked.most_common(_MOST_SHAPES)]
    made = list(usual)
    for start in usual:
        wide, left = start, [s for s in usual if not start.covers(s)]
        while left and size(wide.groups) < rows / _LEAST_REDUCTION:
            wide |= _nearest(wide, left, size)
            left = [s for s in left if not wide.covers(s)]
            made.append(wide)
    with_all_aggregates = []
    for c in made:
        for s in usual:
            if s.groups <= c.groups:
                c |= s
        with_all_aggregates.append(c)
    return list(dict.fromkeys(with_all_aggregates))


def _needed(kinds: Sequence[Shape], reads: np.ndarray, without: np.ndarray) -> list[Shape]:
    """What each of some views is really asked for when every query takes the one that it reads least of.

    A view that was chosen first is often wider than what the others leave to it.
    """
    found = []
    for view, own in enumerate(reads):
        mine = np.flatnonzero((reads.argmin(axis=0) == view) & (own < without))
        if mine.size:
            found.append(reduce(or_, (kinds[int(q)] for q in mine)))
    return found


def _nearest(wide: Shape, left: Sequence[Shape], size: Callable[[frozenset[str]], float]) -> Shape:
    return min(left, key=lambda s: size((wide | s).groups))


def _definition(table: str, shape: Shape, groups: Sequence[str]) -> str:
    listed = [g if g.isidentifier() else f"{g} AS {_word(g)}" for g in groups]
    counted = shape.aggregates | {("count", "*")}
    listed += [f"{f}({a}) AS {f}_{'rows' if a == '*' else _word(a)}" for f, a in sorted(counted)]
    return f"SELECT {', '.join(listed)} FROM {table} GROUP BY {', '.join(groups)}"


def _word(text: str) -> str:
    """An expression as part of a name."""
    return "_".join("".join(c if c.isalnum() else " " for c in text.lower()).split())
