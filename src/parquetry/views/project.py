"""What a view stores as what its definition says: averages divided, groups without rows left out.

The same projection as text of Spark and of DuckDB; both give exactly the value and type of Spark's own aggregates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from parquetry.model.distinct import FUNCTION as DISTINCT
from parquetry.model.distinct import estimate_text
from parquetry.model.types import arrow_type
from parquetry.model.view import ROWS, ViewColumn, ViewSpec

MOST_AVERAGED_DIGITS = 18
"""Decimals up to here are averaged exactly by both engines; wider ones are refused."""
_COUNT_DIGITS = 15

Quote = Callable[[str], str]


def visible_columns(spec: ViewSpec, quote: Quote, *, duck: bool, wanted: Collection[str] | None = None) -> list[str]:
    """``text AS name`` of the view's columns over its stored ones."""
    columns = [c for c in spec.columns if wanted is None or c.name in wanted]
    return [f"{_visible(spec, c, quote, duck)} AS {quote(c.name)}" for c in columns]


def visible_rows(spec: ViewSpec, quote: Quote) -> str:
    """The condition under which a stored group is there at all; empty when it always is."""
    return f"{quote(ROWS)} > 0" if spec.hides_rows else ""


def _visible(spec: ViewSpec, column: ViewColumn, quote: Quote, duck: bool) -> str:
    stored = [quote(s) for s in spec.stored(column)]
    if column.function == DISTINCT:
        return estimate_text(stored[0], duck=duck)
    if column.function == "avg":
        return average(column.type, stored[0], stored[1], duck=duck)
    return f"CASE WHEN {stored[1]} > 0 THEN {stored[0]} END" if len(stored) > 1 else stored[0]


def average(type_: str, total: str, count: str, *, duck: bool) -> str:
    """The average of type ``type_`` as Spark rounds it, from texts of the sum and the count of values."""
    arrow = arrow_type(type_)
    if type_ == "double":
        divided = f"(CAST({total} AS DOUBLE) / CAST({count} AS DOUBLE))"
    elif duck:
        # The sum as a whole number of the last digit's units, four more digits, then half away from zero.
        scale = arrow.scale - 4
        shift = f"CAST({10**scale} AS DECIMAL({scale + 1},0))"
        units = f"CAST(CAST({total} AS DECIMAL(38,{scale})) * {shift} AS HUGEINT)"
        whole = f"CAST({count} AS HUGEINT)"
        rounded = f"(((abs({units}) * 20000 + {whole}) // (2 * {whole})) * sign({units}))"
        step = f"CAST('{10**-arrow.scale:.{arrow.scale}f}' AS DECIMAL({arrow.scale},{arrow.scale}))"
        divided = f"CAST(CAST({rounded} AS DECIMAL({arrow.precision},0)) * {step} AS {type_.upper()})"
    else:
        # Whole part and rest apart: the rest has few digits before the point, so its division keeps enough after it.
        by = f"CAST({count} AS DECIMAL({_COUNT_DIGITS},0))"
        rest = f"({total} % {by})"
        divided = f"CAST(CAST(({total} - {rest}) / {by} AS {type_}) + CAST({rest} / {by} AS {type_}) AS {type_})"
    return f"CASE WHEN {count} > 0 THEN {divided} END"
