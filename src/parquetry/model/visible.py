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
_SPARE_DIGITS = 38 - MOST_AVERAGED_DIGITS - _COUNT_DIGITS  # that the largest sum leaves of a decimal's 38

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
    if type_ == "double":
        divided = f"(CAST({total} AS DOUBLE) / CAST({count} AS DOUBLE))"
    elif duck:
        divided = decimal_average(type_, total, count)
    else:
        # Whole part and rest apart: the rest has few digits before the point, so its division keeps enough after it.
        by = f"CAST({count} AS DECIMAL({_COUNT_DIGITS},0))"
        rest = f"({total} % {by})"
        divided = f"CAST(CAST(({total} - {rest}) / {by} AS {type_}) + CAST({rest} / {by} AS {type_}) AS {type_})"
    return f"CASE WHEN {count} > 0 THEN {divided} END"


def decimal_average(type_: str, total: str, count: str) -> str:
    """DuckDB text of an average of type ``type_``, exact for up to 10^15 rows; null where ``total`` is."""
    arrow = arrow_type(type_)
    # The sum as a whole number of the last digit's units, four more digits, then half away from zero as in Spark.
    scale = arrow.scale - 4
    wide = f"CAST({total} AS DECIMAL(38,{scale}))"
    shift = f"CAST({10**scale} AS DECIMAL({scale + 1},0))"
    if scale <= _SPARE_DIGITS:
        units = f"CAST({wide} * {shift} AS HUGEINT)"
    else:  # whole part and rest apart: a product has the sum's scale, which leaves too few digits before the point
        rest = f"({wide} - trunc({wide}))"
        units = f"(CAST(trunc({wide}) AS HUGEINT) * CAST({10**scale} AS HUGEINT) + CAST({rest} * {shift} AS HUGEINT))"
    whole = f"CAST({count} AS HUGEINT)"
    rounded = f"(((abs({units}) * 20000 + {whole}) // (2 * {whole})) * sign({units}))"
    step = f"CAST('{10**-arrow.scale:.{arrow.scale}f}' AS DECIMAL({arrow.scale},{arrow.scale}))"
    return f"CAST(CAST({rounded} AS DECIMAL({arrow.precision},0)) * {step} AS {type_.upper()})"
