"""Averages of decimals in DuckDB text: exactly what Spark's rounding gives, for every scale."""

from __future__ import annotations

import random
from decimal import ROUND_HALF_UP, Context, Decimal

import duckdb
import pyarrow as pa
import pytest

from parquetry.model.visible import MOST_AVERAGED_DIGITS, decimal_average

_EXACT = Context(prec=80, rounding=ROUND_HALF_UP)


@pytest.mark.parametrize("scale", range(MOST_AVERAGED_DIGITS + 1))
def test_averages_of_decimals_are_exact_for_every_scale(scale: int) -> None:
    rng = random.Random(scale)
    most = 10**MOST_AVERAGED_DIGITS - 1
    one_sign = [most - rng.randrange(3) for _ in range(997)]
    both_signs = [rng.randrange(-most, most) for _ in range(7)]
    halves = [1] * 3 + [2] * 29_997  # ends in half a unit, or close to it
    for units in (one_sign, [-u for u in one_sign], both_signs, halves, [-u for u in halves], [0, 0], [most]):
        values = [Decimal(u).scaleb(-scale, _EXACT) for u in units]
        rows = pa.table({"v": pa.array(values, pa.decimal128(MOST_AVERAGED_DIGITS, scale))})
        text = decimal_average(f"decimal({MOST_AVERAGED_DIGITS + 4},{scale + 4})", "sum(v)", "count(v)")
        connection = duckdb.connect()
        connection.register("t", rows)
        (found,) = connection.execute(f"SELECT {text} FROM t").fetchone() or ()
        exact = _EXACT.divide(Decimal(sum(units)), Decimal(len(units)))
        wanted = exact.scaleb(4, _EXACT).to_integral_value(ROUND_HALF_UP).scaleb(-scale - 4, _EXACT)
        assert found == wanted
    (nothing,) = connection.execute(f"SELECT {text} FROM t WHERE false").fetchone() or ()
    assert nothing is None
