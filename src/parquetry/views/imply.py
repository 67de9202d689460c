"""Whether a query's conditions leave only rows that a view kept, as ``k > 5`` leaves only those with ``k > 3``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from parquetry.model.predicate import And, NotNull, OneOf, Or, Predicate, Range
from parquetry.model.values import order_key
from parquetry.workload.coercion import INTEGRAL
from parquetry.workload.constants import fold
from parquetry.workload.predicates import predicate

_COMPARISONS = (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


def implied(condition: exp.Expr, given: Sequence[exp.Expr], types: Mapping[str, str]) -> bool:
    """Whether ``condition`` holds wherever all of ``given`` do; False when that is not certain.

    A predicate holds at least where its condition does, so the given ones may be any; the implied one must be exact.
    """
    if not _exact(condition, types):
        return False
    wanted = predicate(condition, types)
    return any(_within(predicate(g, types), wanted) for g in given)


def _exact(e: exp.Expr, types: Mapping[str, str]) -> bool:
    """Whether the predicate of a condition holds nowhere else: plain comparisons of a column with its own type."""
    e = e.unnest()
    if isinstance(e, exp.Not) and isinstance(e.this.unnest(), exp.Is):
        inner = e.this.unnest()
        return isinstance(inner.this, exp.Column) and isinstance(inner.expression, exp.Null)
    if isinstance(e, _COMPARISONS):
        sides = e.this.unnest(), e.expression.unnest()
        column = next((s for s in sides if isinstance(s, exp.Column)), None)
        return column is not None and all(s is column or _same_type(s, column, types) for s in sides)
    if isinstance(e, exp.Between) and isinstance(e.this, exp.Column):
        return all(_same_type(e.args[k], e.this, types) for k in ("low", "high"))
    if isinstance(e, exp.In) and isinstance(e.this, exp.Column) and e.expressions and not e.args.get("query"):
        return all(_same_type(x, e.this, types) for x in e.expressions)
    return False


def _same_type(e: exp.Expr, column: exp.Column, types: Mapping[str, str]) -> bool:
    constant = fold(e)
    own = {n.lower(): t for n, t in types.items()}.get(column.name.lower(), "")
    if constant is None or constant.value is None:
        return False
    return constant.type == own in ("string", "date") or (constant.type in INTEGRAL and own in INTEGRAL)


def _within(have: Predicate, wanted: Predicate) -> bool:
    match have:
        case And(parts):
            return any(_within(p, wanted) for p in parts)
        case Or(parts):
            return bool(parts) and all(_within(p, wanted) for p in parts)
        case Range() | OneOf() | NotNull() if isinstance(wanted, NotNull):
            return have.column == wanted.column
        case OneOf(column, values) if isinstance(wanted, Range | OneOf):
            return column == wanted.column and all(_holds(v, wanted) for v in values)
        case Range() if isinstance(wanted, Range):
            return (
                have.column == wanted.column
                and _inside(have.lo, have.lo_open, wanted.lo, wanted.lo_open, below=False)
                and _inside(have.hi, have.hi_open, wanted.hi, wanted.hi_open, below=True)
            )
    return False


def _holds(value: Any, wanted: Range | OneOf) -> bool:
    if isinstance(wanted, OneOf):
        return value in wanted.values
    return _within(Range(wanted.column, value, value), wanted)


def _inside(have: Any, have_open: bool, wanted: Any, wanted_open: bool, *, below: bool) -> bool:
    """Whether one end of a range lies within the same end of another."""
    if have is None or wanted is None:
        return wanted is None
    a, b = order_key(have), order_key(wanted)
    return (a < b if below else a > b) or (a == b and (have_open or not wanted_open))
