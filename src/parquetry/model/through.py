"""Columns that a table does not have, but reaches through a key: ``item_sk→item.brand`` is the brand of the item.

Each step looks a value up among the keys of another table, which has that one key column. The names stand in logged
conditions and in layouts; no query can use them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from parquetry.model.predicate import And, Anything, Nothing, Or, Predicate, columns_of, restrict

_STEP = "→"
MOST_STEPS = 4


def through(column: str, table: str, further: str) -> str:
    """The name of what ``further`` names in the row of ``table`` whose key ``column`` is.

    >>> through("s", "shop", through("city", "cities", "country"))
    's→shop.city→cities.country'
    """
    return f"{column}{_STEP}{table}.{further}"


def is_through(name: str) -> bool:
    return _STEP in name


def steps_of(name: str) -> tuple[str, list[tuple[str, str]]]:
    """The table's own column, and the table and column that each step leads to.

    >>> steps_of("s→shop.city→cities.country")
    ('s', [('shop', 'city'), ('cities', 'country')])
    """
    column, *steps = name.split(_STEP)
    found = [step.partition(".") for step in steps]
    return column, [(table, reached) for table, _, reached in found]


def about(predicate: Predicate, columns: Collection[str]) -> Predicate:
    """What ``predicate`` says about ``columns`` alone, and about what is reached through them."""
    return restrict(predicate, frozenset(c for c in columns_of(predicate) if steps_of(c)[0] in columns))


def renamed(predicate: Predicate, rename: Callable[[str], str]) -> Predicate:
    """The same condition on other names."""
    if isinstance(predicate, And | Or):
        return replace(predicate, parts=tuple(renamed(p, rename) for p in predicate.parts))
    if isinstance(predicate, Anything | Nothing):
        return predicate
    return replace(predicate, column=rename(predicate.column))
