"""The names that Spark gives to columns of a result that have no alias. None: not certain, so left to Spark."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from parquetry.query.compile.typed import Typed
from parquetry.workload.coercion import INTEGRAL
from parquetry.workload.constants import Constant


def named(pattern: str, parts: Sequence[Typed], *more: str | None) -> str | None:
    """``pattern`` with the names of its parts, if all are certain."""
    names = [*(p.name for p in parts), *more]
    return None if None in names else pattern.format(*names)


def listed(parts: Sequence[Typed]) -> str | None:
    names = [p.name for p in parts if p.name is not None]
    return ", ".join(names) if len(names) == len(parts) else None


def constant_name(c: Constant) -> str | None:
    if c.value is None:
        return "NULL"
    if c.type == "string":
        return str(c.value)
    if c.type == "boolean":
        return "true" if c.value else "false"
    if c.type in INTEGRAL:
        return str(c.value)
    if isinstance(c.value, Decimal) and "E" not in str(c.value):
        return str(c.value)
    if c.type == "double" and 1e-3 <= abs(c.value) < 1e7:
        return repr(c.value)
    return None
