"""Random SQL conditions over the sample table, and a plain reading of predicates to judge them by."""

from __future__ import annotations

import math
import random
from typing import Any

from parquetry.model.predicate import And, Anything, IsNull, Nothing, NotNull, OneOf, Or, Predicate, Range

_NUMBERS = ["0", "1", "-1", "3", "5", "-7", "127", "40", "0.5", "-0.05", "5.5", "1.25", "0.055", "-3.1", "2147483647"]
_NUMBERS += ["1e0", "0.1D", "1.5e0", "-2.25D", "1e10", "2 * 3 - 1", "0.06 - 0.01", "3L", "(1 + 1)", "9007199254740993"]
_NUMBERS += ["0.1", "0.1F", "1.5F", "1e300", "-99999.9999", "12345678901234567890.123456", "16777217"]
_DATES = ["DATE '2020-01-01'", "'2020-02-29'", "CAST('1998-09-02' AS DATE)", "DATE '2020-01-31' + INTERVAL '1' MONTH"]
_DATES += [
    "DATE '1998-12-01' - INTERVAL '90' DAY",
    "add_months(DATE '2020-02-29', -12)",
    "date_add(DATE '2020-01-01', 59)",
]
_DATES += ["TIMESTAMP '2020-01-01 00:00:00'", "TIMESTAMP '2020-06-01 12:30:00'", "to_date('1969-12-31')"]
_MOMENTS = ["TIMESTAMP '2020-01-01 00:00:00'", "'2020-06-01 12:30:00'", "DATE '2020-01-01'", "'2020-01-01'"]
_MOMENTS += ["TIMESTAMP '1969-12-31 23:59:59.999999'", "DATE '2020-01-01' + INTERVAL '12' HOUR"]
_STRINGS = ["'abc'", "''", "'é'", "'日本'", "'it''s'", "'a'", "'b%'", "'zz'"]
_PATTERNS = ["'a%'", "'ab_'", "'%b'", "'abc'", "'é%'", "''", "'日%'", "'z_'", "'%'"]
_OPS = ["=", "<>", "!=", "<", "<=", ">", ">=", "<=>", "=="]

_OPERANDS: list[tuple[list[str], list[str]]] = [
    (["i8", "i16", "i", "l", "g", "CAST(i AS BIGINT)", "CAST(i AS DOUBLE)", "CAST(l AS DOUBLE)"], _NUMBERS),
    (["f", "d", "CAST(f AS DOUBLE)"], _NUMBERS),
    (["d1", "d2", "d3", "dz", "CAST(d1 AS DECIMAL(20,4))", "CAST(d1 AS DOUBLE)"], _NUMBERS),
    (["i", "l", "d1", "d"], ["'3'", "'5'", "'-7'"]),
    (["dt", "date(ts)", "CAST(tn AS DATE)", "CAST(dt AS TIMESTAMP)"], _DATES),
    (["ts", "tn"], _MOMENTS),
    (["year(dt)", "year(ts)", "year(tn)"], ["2019", "2020", "1969", "2019.5", "1998"]),
    (["s"], _STRINGS),
    (["bin"], ["X'AB'", "X''", "X'00'", "X'61'"]),
]


def condition(rng: random.Random, depth: int = 2) -> str:
    """One random condition that Spark accepts."""
    roll = rng.random()
    if depth and roll < 0.45:
        word = rng.choice([" AND ", " OR "])
        return "(" + word.join(condition(rng, depth - 1) for _ in range(rng.randint(2, 3))) + ")"
    if depth and roll < 0.6:
        return f"NOT ({condition(rng, depth - 1)})"
    operands, constants = rng.choice(_OPERANDS)
    x = rng.choice(operands)
    form = rng.choice(["compare", "compare", "mirror", "between", "in", "null", "boolean", "like"])
    a, b = rng.choice(constants), rng.choice(constants)
    negation = rng.choice(["", "NOT "])
    match form:
        case "compare":
            return f"{x} {rng.choice(_OPS)} {a}"
        case "mirror":
            return f"{a} {rng.choice(_OPS)} {x}"
        case "between":
            return f"{x} {negation}BETWEEN {a} AND {b}"
        case "in":
            same = [c for c in constants if (c[0] == "'") == (a[0] == "'")]
            listed = [a, *(rng.choice(same) for _ in range(rng.randint(0, 3)))]
            return f"{x} {negation}IN ({', '.join(listed)}{rng.choice(['', '', ', NULL'])})"
        case "null":
            return rng.choice([f"{x} IS {negation}NULL", f"{x} <=> NULL", f"{x} = NULL"])
        case "boolean":
            return rng.choice(
                [
                    "b",
                    "NOT b",
                    "b = true",
                    f"b IS {negation}TRUE",
                    f"b IS {negation}FALSE",
                    f"(i > 1) IS {negation}TRUE",
                ]
            )
    return f"s {negation}LIKE {rng.choice(_PATTERNS)}"


def satisfies(p: Predicate, row: dict[str, Any]) -> bool:
    """Whether a row satisfies a predicate, written as the predicate's own documentation says."""
    match p:
        case Anything():
            return True
        case Nothing():
            return False
        case And(parts=parts):
            return all(satisfies(x, row) for x in parts)
        case Or(parts=parts):
            return any(satisfies(x, row) for x in parts)
        case IsNull(column=c):
            return row[c] is None
        case NotNull(column=c):
            return row[c] is not None
        case OneOf(column=c, values=values):
            return row[c] is not None and any(_order(row[c]) == _order(v) for v in values)
        case Range():
            value = row[p.column]
            if value is None:
                return False
            v = _order(value)
            if p.lo is not None and (v < _order(p.lo) or (p.lo_open and v == _order(p.lo))):
                return False
            return p.hi is None or v < _order(p.hi) or (not p.hi_open and v == _order(p.hi))
    raise AssertionError(p)


def _order(v: Any) -> tuple[bool, Any]:
    """NaN after every number; strings by their UTF-8 bytes."""
    if isinstance(v, str):
        return False, v.encode()
    nan = isinstance(v, float) and math.isnan(v)
    return nan, 0.0 if nan else v
