"""Frequent predicate sets of a workload (WP-02…WP-05): which conditions, alone or together, subsume many queries.

A set subsumes a query when each of its items is implied by some item of the query, and its support is the weight of the
queries it subsumes (3.4-2). Supports only fall as a set grows, so sets are built level by level, as Apriori does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from parquetry.layouts.coding.codec import Numbers
from parquetry.layouts.coding.positions import Positions
from parquetry.layouts.pruning.features import Item, bounds_of, items_of, truth
from parquetry.layouts.pruning.subsume import implies
from parquetry.model.layout import Feature
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import (
    And,
    Anything,
    IsNull,
    Nothing,
    NotNull,
    OneOf,
    Opaque,
    Or,
    Predicate,
    Range,
    columns_of,
    restrict,
)
from parquetry.model.values import order_key
from parquetry.workload.simplify import both

LEAST_SUPPORT = 0.01  # of the workload's weight (3.4-13)
_MOST_ITEMS = 1_000  # those of the heaviest queries; with the next ones it bounds the time of a workload of any size
_MOST_QUERIES = 5_000  # distinct ones
_MOST_DISJUNCTIONS = 50  # each of which must itself be frequent; what it demands of single columns counts anyway
_LEAST_OR = 0.05  # of the weight, for a disjunction as a whole: one that a single query has tells nothing of others
_MOST_SETS = 3_000  # per level
_LARGEST_SET = 4


@dataclass(frozen=True, eq=False)
class Mined:
    """``covers[s, q]``: set ``s`` subsumes query ``q``. ``narrower[i, j]``: item i implies item j."""

    queries: tuple[LoggedQuery, ...]  # distinct, with their weight
    items: tuple[Item, ...]
    narrower: Numbers
    sets: tuple[tuple[int, ...], ...]
    covers: Numbers
    left_out: int = 0  # queries and items beyond the bounds

    @cached_property
    def weight(self) -> Numbers:
        return np.array([q.weight for q in self.queries])

    @cached_property
    def support(self) -> Numbers:
        return np.asarray(self.covers @ self.weight)

    def feature(self, at: int) -> Feature:
        chosen = [self.items[i] for i in self.sets[at]]
        opaque = tuple(sorted(i for i in chosen if isinstance(i, Opaque)))
        return Feature(both(i for i in chosen if not isinstance(i, Opaque)), opaque, float(self.support[at]))

    def subsumes(self, general: int, special: int) -> bool:
        """Whether every row of the special set's condition satisfies the general one's."""
        return all(any(self.narrower[i, j] for i in self.sets[special]) for j in self.sets[general])


def mine(workload: Iterable[LoggedQuery], columns: frozenset[str], widen: bool = True) -> Mined:
    """The frequent predicate sets over ``columns``.

    Of a disjunction, what all its parts have in common is an item of its own; with ``widen`` also the range or value
    set that they demand of a column together.
    """
    queries, left_out = _distinct(workload, columns)
    asked = [_items(q, widen) for q in queries]
    weight: dict[Item, float] = {}
    for q, items in zip(queries, asked, strict=True):
        for item in items:
            weight[item] = weight.get(item, 0.0) + q.weight
    conditions = sorted(weight, key=lambda i: (-weight[i], str(i)))
    w = np.array([q.weight for q in queries], np.float32)
    least = max(LEAST_SUPPORT * float(w.sum()), float(w.min()) if len(w) else 0.0) * 0.999999
    least_or = max(least, _LEAST_OR * float(w.sum()))
    chosen = _candidates([c for c in conditions if not isinstance(c, Or) or weight[c] >= least_or])
    number = {c: n for n, c in enumerate(conditions)}
    implied = _implied(conditions, chosen)
    demands = np.zeros((len(conditions), len(queries)), np.float32)
    for n, items in enumerate(asked):
        demands[[number[i] for i in items], n] = 1
    speaks_of = [(q.predicate, columns_of(q.predicate)) for q in queries]
    covers = implied.T.astype(np.float32) @ demands > 0
    for n, item in enumerate(chosen):
        if isinstance(item, Or):
            covers[n] = _imply(speaks_of, item)
    frequent = np.flatnonzero(covers @ w >= least)
    items = tuple(chosen[i] for i in frequent.tolist())
    rows = [number[i] for i in items]
    places = {c: n for n, c in enumerate(chosen)}
    narrower = implied[rows][:, [places[i] for i in items]] if items else np.zeros((0, 0), bool)
    sets, found = _grow(covers[frequent], w, narrower, least)
    left_out += len(conditions) - len(chosen)
    return Mined(tuple(queries), items, narrower, sets, found, left_out)


def _distinct(workload: Iterable[LoggedQuery], columns: frozenset[str]) -> tuple[list[LoggedQuery], int]:
    """Each query once, over the columns that may be used, with its weight; the heaviest if there are too many."""
    weight: dict[tuple[Predicate, tuple[Opaque, ...]], float] = {}
    for q in workload:
        predicate = restrict(q.predicate, columns)
        opaque = tuple(sorted({o for o in q.opaque if set(o.columns) <= columns}))
        if not isinstance(predicate, Nothing) and (opaque or not isinstance(predicate, Anything)):
            weight[predicate, opaque] = weight.get((predicate, opaque), 0.0) + q.weight
    kept = sorted(weight.items(), key=lambda entry: -entry[1])[:_MOST_QUERIES]
    return [LoggedQuery(p, w, o) for (p, o), w in kept], len(weight) - len(kept)


def _items(query: LoggedQuery, widen: bool) -> tuple[Item, ...]:
    own = items_of(query)
    return tuple(dict.fromkeys([*own, *(leaf for i in own if isinstance(i, Or) for leaf in _hulls(i, widen))]))


def _hulls(p: Or, widen: bool) -> list[Predicate]:
    """What every disjunct demands of a column: the same of all, or widened to one range or value set."""
    disjuncts = [{leaf.column: leaf for leaf in _leaves(part)} for part in p.parts]
    shared = [c for c in disjuncts[0] if all(c in d for d in disjuncts)] if disjuncts else []
    if not widen:
        return [disjuncts[0][c] for c in shared if all(d[c] == disjuncts[0][c] for d in disjuncts)]
    return [h for c in shared if (h := reduce(_hull, [d[c] for d in disjuncts])) is not None]  # type: ignore[arg-type]


def _leaves(p: Predicate) -> list[Range | OneOf]:
    return [x for x in (p.parts if isinstance(p, And) else (p,)) if isinstance(x, Range | OneOf)]


def _hull(a: Range | OneOf | None, b: Range | OneOf) -> Range | OneOf | None:
    if a is None:
        return None
    if isinstance(a, OneOf) and isinstance(b, OneOf):
        return OneOf(a.column, a.values | b.values)
    a, b = _as_range(a), _as_range(b)
    lo, lo_open = (None, False)
    if a.lo is not None and b.lo is not None:
        lo, lo_open = min((a.lo, a.lo_open), (b.lo, b.lo_open), key=lambda end: (order_key(end[0]), end[1]))
    hi, hi_open = (None, False)
    if a.hi is not None and b.hi is not None:
        hi, hi_open = max((a.hi, a.hi_open), (b.hi, b.hi_open), key=lambda end: (order_key(end[0]), not end[1]))
    return None if lo is None and hi is None else Range(a.column, lo, hi, lo_open, hi_open)


def _as_range(leaf: Range | OneOf) -> Range:
    if isinstance(leaf, Range):
        return leaf
    return Range(leaf.column, min(leaf.values, key=order_key), max(leaf.values, key=order_key))


def _candidates(conditions: Sequence[Item]) -> list[Item]:
    """All conditions, or of too many a fair share for each column: the heaviest, and others evenly spaced."""
    groups: dict[frozenset[str], list[Item]] = {}
    for c in conditions:
        groups.setdefault(frozenset(c.columns) if isinstance(c, Opaque) else columns_of(c), []).append(c)
    share = _MOST_ITEMS // max(1, len(groups))
    found: list[Item] = []
    for group in groups.values():
        most = min(share, _MOST_DISJUNCTIONS) if isinstance(group[0], Or) else share
        rest = group[most // 2 :]
        step = max(1, -(-len(rest) // max(1, most - most // 2)))
        found += group[: most // 2] + rest[::step]
    return found


def _implied(conditions: Sequence[Item], items: Sequence[Item]) -> Numbers:
    """``[c, i]``: condition c implies item i. Leaves of a column are compared all at once, by the values they allow."""
    found = np.zeros((len(conditions), len(items)), bool)
    by_column: dict[str, tuple[list[int], list[int]]] = {}
    number = {c: n for n, c in enumerate(conditions)}
    for side, listed in enumerate((conditions, items)):
        for n, c in enumerate(listed):
            if isinstance(c, Range | OneOf | IsNull | NotNull):
                by_column.setdefault(c.column, ([], []))[side].append(n)
    for own, wanted in by_column.values():
        leaves = [conditions[n] for n in own]
        targets = [items[n] for n in wanted]
        # Bounds of items are boundaries; what lies between two of them is one position, so conditions only get wider.
        line = Positions.of([v for leaf in targets for v in bounds_of(leaf)])  # type: ignore[arg-type]
        outside = 1 - _allowed(targets, line)
        found[np.ix_(own, wanted)] = _allowed(leaves, line) @ outside.T == 0
    disjunctions = [(c, columns_of(c)) for c in conditions if isinstance(c, Or)][: 20 * _MOST_DISJUNCTIONS]
    for n, item in enumerate(items):
        found[number[item], n] = True
        if isinstance(item, Or):
            found[[number[c] for c, _ in disjunctions], n] |= _imply(disjunctions, item)
    return found


def _imply(conditions: Sequence[tuple[Predicate, frozenset[str]]], item: Or) -> Numbers:
    """Which conditions, given with the columns they speak of, imply the disjunction."""
    wanted = [columns_of(part) for part in item.parts]
    # A cheap look first: a condition that implies a disjunct speaks of all its columns.
    return np.array([any(w <= own for w in wanted) and implies(c, item) for c, own in conditions], bool)


def _allowed(leaves: Sequence[Item], line: Positions) -> Numbers:
    """One row per leaf, one column per position of the line: 1 where the leaf may be TRUE."""
    return np.array([truth(leaf, line) for leaf in leaves], np.float32).reshape(-1, line.top + 1)  # type: ignore[arg-type]


def _grow(
    covers: Numbers, weight: Numbers, narrower: Numbers, least: float
) -> tuple[tuple[tuple[int, ...], ...], Numbers]:
    """All frequent sets of items of which none implies another, and the queries that each covers."""
    comparable = narrower | narrower.T
    numbers = covers.astype(np.float32)
    sets: list[tuple[int, ...]] = [(i,) for i in range(len(covers))]
    level, level_covers = list(sets), covers
    all_covers = [covers]
    for _ in range(_LARGEST_SET - 1):
        if not level:
            break
        support = (level_covers * weight).astype(np.float32) @ numbers.T
        fits = support >= least
        for n, members in enumerate(level):
            fits[n, : members[-1] + 1] = False
            fits[n, comparable[list(members)].any(axis=0)] = False
        at, item = np.nonzero(fits)
        heaviest = np.argsort(-support[at, item], kind="stable")[:_MOST_SETS]
        at, item = at[heaviest], item[heaviest]
        level_covers = level_covers[at] & covers[item]
        level = [(*level[a], i) for a, i in zip(at.tolist(), item.tolist(), strict=True)]
        sets += level
        all_covers.append(level_covers)
    return tuple(sets), np.concatenate(all_covers)
